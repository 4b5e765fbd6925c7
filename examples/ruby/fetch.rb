# fetch.rb [--pull] URL: Writes the body of a URL to standard output. With --pull it comes over the connection, and a broken
# connection is resumed.

require 'securerandom'
require_relative 'earshot'

pull = ARGV.first == '--pull' && ARGV.shift
Earshot.usage('fetch.rb [--pull] URL') unless ARGV.size == 1
url = ARGV.first

Earshot.open(**(pull ? { pull: true, lease: 60 } : {})) do |bus|
  # All programs of the user share the handler names, so a random part keeps this one unique.
  bus.fetch("fetch/#{SecureRandom.uuid}", 1, url)
  message = bus.receive until message&.terminal?
  if message.verb == 'RESULT'
    $stdout.binmode
    message.each_part { |part| $stdout.write(part) }
    bus.acknowledge(message)
  else
    bus.acknowledge(message)
    reason = [message.operands[2], message.fields['status']].compact.join(' ')
    raise Earshot::Error, "#{url}: #{message.fields['detail']} (#{reason})"
  end
end
