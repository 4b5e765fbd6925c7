# watch.rb HANDLER [COUNT]: Prints a line for each result of a handler. HANDLER/ selects all handlers below it.

require_relative 'earshot'

pattern, count, *more = ARGV
Earshot.usage('watch.rb HANDLER [COUNT]') if pattern.nil? || !more.empty? || (count && !count.match?(/\A[1-9]\d*\z/))

Earshot.open do |bus|
  bus.subscribe(pattern)
  left = count ? count.to_i : Float::INFINITY
  listening = false
  while left.positive?
    message = bus.receive
    if message.terminal?
      puts message
      bus.acknowledge(message)
      left -= 1
    elsif message.verb == 'ANSWER' && !listening
      warn "earshot: listening to #{pattern}"
      listening = true
    end
  end
end
