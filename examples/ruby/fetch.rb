# fetch.rb [--pull] [--bus ADDRESS --bus-key FILE --server-key KEY] URL: Writes the body of a URL to standard output. With
# --pull, and over a network, it comes over the connection, and a broken connection is resumed.

require 'optparse'
require 'securerandom'
require_relative 'earshot'

USAGE = 'fetch.rb [--pull] [--bus ADDRESS --bus-key FILE --server-key KEY] URL'
options = {}
begin
  OptionParser.new do |parser|
    parser.on('--pull') { options.update(pull: true, lease: 60) }
    parser.on('--bus ADDRESS') { |value| options[:bus] = value }
    parser.on('--bus-key FILE') { |value| options[:key] = value }
    parser.on('--server-key KEY') { |value| options[:server_key] = value }
  end.parse!
rescue OptionParser::ParseError
  Earshot.usage(USAGE)
end
Earshot.usage(USAGE) unless ARGV.size == 1
url = ARGV.first

Earshot.open(**options) do |bus|
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
