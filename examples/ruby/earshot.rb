# Client of an Earshot bus (protocols/1-core.md), on ffi-rzmq:
# earshot.rb fetch URL | cancel HANDLER | watch HANDLER [COUNT]

require 'ffi-rzmq'
require 'securerandom'

# Connection to a bus. Closing it removes its requests.
class Bus
  class Error < StandardError; end

  # Message from the broker: the words of its first line, its fields, and its second frame.
  Message = Struct.new(:words, :fields, :frame) do
    def terminal? = %w[RESULT FAILED].include?(words.first)

    # Returns the body of a RESULT. Call it before `acknowledge`, which lets the broker delete the file.
    def body
      raise Error, 'this bus belongs to another user, and this example cannot read its files' if fields.key?('pull')

      fields.key?('file') ? File.binread(fields['file']) : frame.to_s
    end
  end

  GREETING_MS = 15_000
  SILENCE_MS = 5000

  def self.open
    bus = new
    bus.connect
    yield bus
  ensure
    bus&.close
  end

  def initialize
    @number = 0
    @context = ZMQ::Context.new
    @socket = @context.socket(ZMQ::DEALER)
    check @socket.setsockopt(ZMQ::LINGER, 500)
    check @socket.setsockopt(ZMQ::RCVTIMEO, GREETING_MS)
    # One connection: the next broker would not know this session. With -1 libzmq drops messages that have arrived.
    check @socket.setsockopt(ZMQ::RECONNECT_IVL, 3_600_000)
  end

  def connect
    # An empty variable counts as unset.
    runtime, parent = %w[EARSHOT_RUNTIME XDG_RUNTIME_DIR].map { |name| ENV.fetch(name, '') }
    runtime = "#{parent}/earshot" if runtime.empty? && !parent.empty?
    raise Error, 'set EARSHOT_RUNTIME to the directory of the bus' if runtime.empty?

    check @socket.connect("ipc://#{runtime}/bus")
    send 'HELLO', 'EAR/1'
    understand(read || raise(Error, "no broker answers in #{runtime}: start one with `earshot serve`"))
    check @socket.setsockopt(ZMQ::RCVTIMEO, SILENCE_MS)
  end

  def send(*words)
    # A line feed in a word would inject fields into the message.
    raise Error, 'a URL or name is empty, or has a space or control character' unless words.all?(/\A[^\x00-\x20\x7f]+\z/n)

    # The answer to a message with a number names it.
    number = "number: #{@number += 1}\n" unless %w[HELLO ACK].include?(words.first)
    check @socket.send_string("#{words.join(' ')}\n#{number}")
  end

  # Returns the next message. A broker that has ended sends none, so a QUERY checks it after some silence.
  def receive
    understand(read || send('QUERY', 'ping') && read || raise(Error, 'the broker is gone: start one with `earshot serve`'))
  end

  def acknowledge(message) = send('ACK', message.fields['seq'])

  def close
    @socket.close
    @context.terminate
  end

  private

  # Returns the frames of the next message, or nil after some silence.
  def read
    frames = []
    return frames if ZMQ::Util.resultcode_ok?(@socket.recv_strings(frames))

    case ZMQ::Util.errno
    when ZMQ::EAGAIN then nil
    when Errno::EINTR::Errno then read
    else check(-1)
    end
  end

  def understand(frames)
    line, *fields = frames.first.partition("\n\n").first.lines(chomp: true)
    message = Message.new(line.split, fields.to_h { |field| field.split(/: */, 2) }, frames[1])
    raise Error, "#{message.words[1]}: #{message.fields['detail']}" if message.words.first == 'ERROR'

    message
  end

  def check(code) = ZMQ::Util.resultcode_ok?(code) || raise(Error, ZMQ::Util.error_string)
end

# Writes the body of a URL to standard output.
def fetch(bus, url)
  # All programs of the user share the handler names, so a random part keeps this one unique.
  bus.send 'FETCH', "ruby/#{SecureRandom.uuid}", '1', url
  message = bus.receive until message&.terminal?
  if message.words.first == 'FAILED'
    bus.acknowledge message
    reason = [message.words[3], message.fields['status']].compact.join(' ')
    raise Bus::Error, "#{url}: #{message.fields['detail']} (#{reason})"
  end
  $stdout.binmode.write message.body
  $stdout.flush
  bus.acknowledge message
end

# Removes all requests of a handler, whichever program made them.
def cancel(bus, handler)
  bus.send 'REMOVE', handler
  message = bus.receive until message&.words&.first == 'REMOVED'
  puts "removed #{message.words[2]}"
end

# Prints a line for each result of a handler: handler, request, status or code, and URL.
def watch(bus, handler, count = Float::INFINITY)
  bus.send 'SUBSCRIBE', handler
  listening = false
  while count.positive?
    message = bus.receive
    listening ||= message.words.first == 'OK' && warn("earshot: listening to #{handler}").nil?
    next unless message.terminal?

    puts [*message.words.drop(1), message.fields.fetch('url', '-')].join(' ')
    $stdout.flush
    bus.acknowledge message
    count -= 1
  end
end

begin
  case ARGV
  in 'fetch', url then Bus.open { |bus| fetch(bus, url) }
  in 'cancel', handler then Bus.open { |bus| cancel(bus, handler) }
  in 'watch', handler then Bus.open { |bus| watch(bus, handler) }
  in 'watch', handler, /\A\d+\z/ => count then Bus.open { |bus| watch(bus, handler, count.to_i) }
  else raise Bus::Error, 'usage: earshot.rb fetch URL | cancel HANDLER | watch HANDLER [COUNT]'
  end
  $stdout.flush
rescue Bus::Error, SystemCallError => error
  warn "earshot: #{error.message}"
  exit 1
end
