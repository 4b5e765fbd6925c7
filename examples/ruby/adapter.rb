# adapter.rb FOLDER: Executes the commands on standard input, for the tests common to all languages
# (protocols/README.md). Writes bodies to files in FOLDER.

require_relative 'earshot'

FOLDER = ARGV.first
Earshot.usage('adapter.rb FOLDER') unless FOLDER
$stdout.sync = true

# Returns the line for a message, or nil for a message without one.
def line(bus, message)
  words = message.operands.join(' ')
  case message.verb
  when 'RESULT', 'FAILED'
    path = File.join(FOLDER, message.fields['seq'])
    File.binwrite(path, message.content)
    bus.acknowledge(message)
    message.verb == 'RESULT' ? "result #{words} #{path}" : "failed #{words} #{message.fields['status'] || '-'} #{path}"
  when 'PROGRESS', 'REMOVED', 'CANCELLED' then "#{message.verb.downcase} #{words}"
  when 'ANSWER' then 'listening'
  end
end

begin
  bus = Earshot::Bus.new
  puts 'ready'
  $stdin.each_line do |command|
    verb, *words = command.split
    case verb
    when 'fetch'
      fields = words.drop(3).to_h { |field| field.split('=', 2) }
      bus.fetch(*words.first(3), **fields.transform_keys(&:to_sym))
    when 'receive'
      told = nil
      told = line(bus, bus.receive) until told
      puts told
    else
      bus.public_send(verb, *words)
    end
  end
  bus.close
rescue Earshot::Error => e
  puts e.status == Earshot::NO_BROKER ? 'gone' : "error #{e.message}"
end
