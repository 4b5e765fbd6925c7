# fetch.rb URL: Writes the body of a URL to standard output.

require 'securerandom'
require_relative 'earshot'

Earshot.usage('fetch.rb URL') unless ARGV.size == 1
url = ARGV.first

Earshot.open do |bus|
  # All programs of the user share the handler names, so a random part keeps this one unique.
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
