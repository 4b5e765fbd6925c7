# gallery.rb HANDLER URL...: Requests all URLs, and removes the handler after half of the results.

require_relative 'earshot'

handler, *urls = ARGV
Earshot.usage('gallery.rb HANDLER URL...') if urls.empty?

Earshot.open do |bus|
  urls.each.with_index(1) { |url, number| bus.fetch(handler, number, url) }
  heard = 0
  loop do
    message = bus.receive
    if message.terminal?
      puts message
      bus.acknowledge(message)
      bus.remove(handler) if (heard += 1) == (urls.size + 1) / 2
    elsif message.verb == 'REMOVED'
      puts "dropped #{message.operands[1]}"
      break
    end
  end
end
