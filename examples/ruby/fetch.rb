# fetch.rb URL: writes what is there to standard output.

require 'securerandom'
require_relative 'earshot'

Earshot.usage('fetch.rb URL') unless ARGV.size == 1
url = ARGV.first

Earshot.open do |bus|
  # Handlers are shared by all programs of the user: one's own has something in it that no other has.
  bus.fetch("fetch/#{SecureRandom.uuid}", 1, url)
  message = bus.receive until message&.terminal?
  if message.verb == 'RESULT'
    $stdout.binmode.write(message.content)
    bus.acknowledge(message)
  else
    bus.acknowledge(message)
    reason = [message.operands[2], message.fields['status']].compact.join(' ')
    raise Earshot::Error, "#{url}: #{message.fields['detail']} (#{reason})"
  end
end
