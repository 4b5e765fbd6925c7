# Client of an Earshot bus, protocol EAR/1 (protocols/1-CLIENT.md), on ffi-rzmq.

require 'digest'
require 'ffi-rzmq'
require 'securerandom'
require_relative 'place'

module Earshot
  FAILED = 1
  USAGE = 64
  NO_BROKER = 69

  # Error of the client. `status` is the exit code for it, the same as that of the command `earshot`.
  class Error < StandardError
    attr_reader :status

    def initialize(message, status = FAILED)
      super(message)
      @status = status
    end
  end

  # The broker, or its gateway, cannot be reached now.
  class Unreachable < Error
    def initialize(message)
      super(message, NO_BROKER)
    end
  end

  # Message from the broker: the words of its first line, its fields, and the HTTP fields as lines.
  class Message
    attr_reader :verb, :operands, :fields, :http

    def initialize(bus, head, body = '')
      @bus = bus
      top, @http = head.split("\n\n", 2)
      line, *fields = top.split("\n")
      @verb, *@operands = line.split
      @fields = fields.to_h { |field| field.split(/: */, 2) }
      @body = body
    end

    # Returns whether the message is a terminal, RESULT or FAILED.
    def terminal?
      verb == 'RESULT' || verb == 'FAILED'
    end

    # Returns the body. Call it before `acknowledge`, which lets the broker delete the body.
    def content
      content = +''.b
      each_part { |part| content << part }
      content
    end

    # Yields the parts of the body in order. Call it before `acknowledge`.
    def each_part(&block)
      if fields.key?('pull') then @bus.pull(self, &block)
      else yield fields.key?('file') ? File.binread(fields['file']) : @body
      end
    end

    # Returns the terminal as a line: handler, request, status or code, and URL.
    def to_s
      [*operands, fields['url'] || '-'].join(' ')
    end
  end

  # Connection to a bus. Closing it removes its requests.
  class Bus
    GREETING_MS = 3000
    REMOTE_GREETING_MS = 8000
    SILENCE_MS = 5000
    LINGER_MS = 500
    # Interval in milliseconds between two checks that the connection of a session with a lease stands.
    LOOK_MS = 1000
    PIECE_BYTES = 256 << 10
    OPEN_READS = 4
    # Message that each reply answers, and the number of their common operands.
    QUESTIONS = { 'RESULT' => ['FETCH', 2], 'FAILED' => ['FETCH', 2], 'REMOVED' => ['REMOVE', 1],
                  'CANCELLED' => ['CANCEL', 2], 'ANSWER' => ['QUERY', 1] }.freeze

    # The connection of a session with a lease has ended.
    class Lost < StandardError; end

    # Connects and performs the handshake, within 3 s.
    #
    # `pull`: bodies come over the connection and not in files, for programs that cannot open the files of the broker.
    # `lease`: seconds for which the broker keeps the session of a broken connection; `receive` resumes the session.
    # `bus`, `key`, `server_key`: tcp://HOST:PORT, the key file of this client, and the public key of the bus or its file. Over a
    # network bodies are always pulled, the lease is 60 s by default, and the limit 8 s.
    def initialize(pull: false, lease: nil, bus: nil, key: nil, server_key: nil)
      @place = Place.new(bus: bus, key: key, server_key: server_key)
      pull ||= @place.remote?
      lease ||= @place.remote? ? 60 : 0
      @lease = lease
      @hello = {}
      @hello = { client: "ruby-#{SecureRandom.hex(8)}", lease: lease } if lease.positive?
      @hello[:bodies] = 'pull' if pull
      start
      @token = greet('bus', 'HELLO', 'EAR/1', **@hello).fields['token']
    end

    # Requests a URL. The fields are those of FETCH: priority: 'high', timeout: 5.
    def fetch(handler, request, url, **fields)
      say 'FETCH', handler, request, url, **fields
    end

    # Removes a handler with all its requests. The answer is REMOVED with the number of pending requests.
    def remove(handler)
      say 'REMOVE', handler
    end

    # Cancels one request. The answer is CANCELLED.
    def cancel(handler, request)
      say 'CANCEL', handler, request
    end

    # Subscribes to a handler, or with a trailing slash to all handlers below it. The answer is ANSWER.
    def subscribe(pattern)
      say 'SUBSCRIBE', pattern
      say 'QUERY', 'ping' # SUBSCRIBE has no answer
    end

    # Acknowledges a terminal. Unacknowledged terminals fill the delivery window.
    def acknowledge(message)
      return unless message.fields['seq']

      @acknowledged = message.fields['seq']
      say 'ACK', @acknowledged
    end

    # Waits for the next message without a time limit. Skips terminals that the broker redelivers with the same number.
    def receive
      @waiting.shift || receive_new
    rescue Lost
      resume
      retry
    end

    # Yields the parts of a body with the field `pull`, in order.
    def pull(message)
      number, length, hash = message.fields.values_at('seq', 'length', 'sha-256')
      length = length.to_i
      digest = Digest::SHA256.new
      asked = taken = 0
      parts = {}
      connection = @connection
      while taken < length
        if connection != @connection # The broken connection had READs without an answer.
          asked = taken
          parts.clear
          connection = @connection
        elsif asked < [length, taken + OPEN_READS * PIECE_BYTES].min
          say 'READ', number, asked, [PIECE_BYTES, length - asked].min
          asked += PIECE_BYTES
        else
          keep_data(number, parts)
          while (part = parts.delete(taken))
            raise Error, 'a part of the body is missing' if part.bytesize != [PIECE_BYTES, length - taken].min

            digest << part
            yield part
            taken += part.bytesize
          end
        end
      end
      raise Error, 'the body has another hash than its result' if hash && hash != digest.hexdigest
    end

    def close
      try_to_say("BYE\n") if @token
      @socket&.close
      @context&.terminate
    end

    private

    def start
      @heard = @sent = @replies = @connection = 0
      @waiting = [] # received while a body was read
      @log = []     # messages of a session with a lease that the broker may not have received: number, words, head
      make_socket
    end

    # Receives a message. Keeps the bytes of DATA by their offset, and other messages for `receive`.
    def keep_data(number, parts)
      message = receive_new
      if message.verb != 'DATA' then @waiting << message unless message.verb == 'PROGRESS'
      elsif message.operands[0] == number then parts[message.operands[1].to_i] = message.content
      end
    rescue Lost
      resume
    end

    def receive_new
      loop do
        message = receive_any
        # The refusal of a durable request has no number, and needs no acknowledgement.
        return message unless message.terminal? && message.fields['seq']

        number = message.fields['seq'].to_i
        next if number <= @heard

        @heard = number
        return message
      end
    end

    # Waits for the next message. A broker that ends sends no message, so a QUERY checks that it is alive after some silence.
    def receive_any
      frames = await(SILENCE_MS)
      unless frames
        say 'QUERY', 'ping'
        frames = await(SILENCE_MS)
      end
      raise @token ? Lost : gone unless frames

      understand(frames).tap { |message| confirm(message) }
    end

    # Connects again, resumes the session, and repeats the messages that the broker has not received.
    def resume
      give_up_at = now + @lease
      pause = 0.01
      begin
        sleep pause
        pause = [2 * pause, 1].min
        @socket.close
        make_socket
        send_again(greet('bus', 'HELLO', 'EAR/1', **@hello, token: @token, replies: @replies).fields['resumed'])
      rescue Lost, Unreachable
        raise gone if now >= give_up_at

        retry
      end
    end

    def send_again(resumed)
      raise Error.new('the session has ended: ask again', NO_BROKER) unless resumed

      @connection += 1
      @sent = resumed.to_i
      @log.reject! { |number, _| number <= @sent }
      raise Lost unless @acknowledged.nil? || try_to_say("ACK #{@acknowledged}\n")

      @sent += 1 if @acknowledged
      @log.each do |entry|
        entry[0] = @sent += 1
        raise Lost unless try_to_say(entry[2])
      end
    end

    # Counts a reply, and drops messages from the log: an answer to one shows that the broker has received all before it.
    def confirm(message)
      @replies += 1 unless message.fields['seq'] || %w[DATA PROGRESS GOODBYE].include?(message.verb)
      verb, count = QUESTIONS[message.verb]
      asked = [verb, *message.operands.first(count.to_i)]
      index = @log.index { |_, words| words.first(asked.size) == asked }
      @log.shift(index + 1) if index
    end

    def gone
      Error.new('the broker is gone: start one with `earshot serve`', NO_BROKER)
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    def make_socket
      @context ||= ZMQ::Context.new
      @socket = @context.socket(ZMQ::DEALER)
      check @socket.setsockopt(ZMQ::LINGER, LINGER_MS)
      serve_one_connection if @lease&.positive?
      @place.secure(@socket) if @place.remote?
    end

    # Maximum time for a connection and its first answer. Over a network a lost packet takes a second or more.
    def greeting_ms
      @place.remote? ? REMOTE_GREETING_MS : GREETING_MS
    end

    # Messages for one connection must never reach the next one. Without a connection a send fails.
    def serve_one_connection
      check @socket.setsockopt(ZMQ::RECONNECT_IVL, -1)
      check @socket.setsockopt(ZMQ::IMMEDIATE, 1)
      check @socket.setsockopt(ZMQ::SNDTIMEO, greeting_ms)
      check @socket.setsockopt(ZMQ::SNDHWM, 0)
    end

    def greet(endpoint, *words, **fields)
      check @socket.connect(@place.address(endpoint))
      answer = await(greeting_ms) if try_to_say(head(words, fields))
      raise @place.no_broker unless answer

      check @socket.setsockopt(ZMQ::SNDTIMEO, 0) if @lease&.positive?
      understand answer
    end

    # Returns the frames of the next message, or nil after a time-out. Raises Lost if a session with a lease has no connection.
    def await(milliseconds)
      check @socket.setsockopt(ZMQ::RCVTIMEO, @token ? LOOK_MS : milliseconds)
      give_up_at = now + milliseconds / 1000.0
      frames = []
      until ZMQ::Util.resultcode_ok?(@socket.recv_strings(frames))
        case ZMQ::Util.errno
        when ZMQ::EAGAIN
          raise Lost if @token && option(ZMQ::EVENTS).nobits?(ZMQ::POLLOUT | ZMQ::POLLIN)
          return nil if now >= give_up_at
        when Errno::EINTR::Errno then next
        else raise Error, "cannot receive: #{ZMQ::Util.error_string}"
        end
      end
      frames
    end

    # Returns the message in these frames. Fails if it is an ERROR.
    def understand(frames)
      message = Message.new(self, *frames.first(2))
      return message unless message.verb == 'ERROR'

      code = message.operands.first
      raise Unreachable, 'the session is in use by another connection' if code == 'session-in-use'
      raise Error, "#{code}: #{message.fields['detail']}" unless code == 'hello-required'

      raise Error.new('the broker has ended and another one is there: ask again', NO_BROKER)
    end

    def say(*words, **fields)
      head = head(words, fields)
      @sent += 1
      @log << [@sent, words.map(&:to_s), head] if @token && !%w[ACK READ].include?(words.first)
      try_to_say(head) or resume
    end

    # Sends a head. Returns false if no connection was established in time.
    def try_to_say(head)
      result = @socket.send_string(head)
      return false if !ZMQ::Util.resultcode_ok?(result) && ZMQ::Util.errno == ZMQ::EAGAIN

      check result
      true
    end

    def head(words, fields)
      # A line feed in a word would inject fields into the message.
      unless words.all? { |word| word.to_s.b.match?(/\A[^\x00-\x20\x7f]+\z/n) }
        raise Error.new('a URL or name is empty, or has a space or control character in it', USAGE)
      end

      lines = fields.map { |name, value| "#{name.to_s.tr('_', '-')}: #{value}\n" }
      "#{words.join(' ')}\n#{lines.join}"
    end

    def check(result)
      raise Error, ZMQ::Util.error_string unless ZMQ::Util.resultcode_ok?(result)
    end

    def option(name)
      value = []
      check @socket.getsockopt(name, value)
      value.first
    end
  end

  # Connection of a worker, protocol EARW/1 (protocols/2-WORKER.md), without the methods for clients.
  class Worker < Bus
    undef_method :fetch, :remove, :cancel, :subscribe, :acknowledge, :pull

    # Connects as a worker for URLs of a scheme, with `slots` concurrent jobs, within 3 s.
    def initialize(scheme, slots)
      @place = Place.new(local: true)
      start
      serve_one_connection # `wait` detects its end.
      greet 'work', 'READY', 'EARW/1', slots: slots, schemes: scheme, pid: Process.pid, drain: 'yes'
      @ready = IO.for_fd(option(ZMQ::FD), autoclose: false)
    end

    # Waits for a message, for input on the pipe if there is one, or for the time limit in seconds; nil means no limit.
    # Returns whether a message can be received.
    def wait(pipe, seconds)
      events = option(ZMQ::EVENTS)
      return true if events.anybits?(ZMQ::POLLIN)
      raise Error.new('the broker is gone', NO_BROKER) unless events.anybits?(ZMQ::POLLOUT)

      IO.select([@ready, pipe].compact, nil, nil, seconds)
      false
    end

    # Completes a JOB with a body and its content type.
    def done(attempt, type, body)
      top = head(['DONE', attempt, 200], { length: body.bytesize })
      check @socket.send_strings(["#{top}\ncontent-type: #{type}\n", body])
    end

    # Fails a JOB. With the code worker-failed, clients receive `detail`, which is one line.
    def failed(attempt, code, detail)
      say 'FAILED', attempt, code, detail: detail
    end

    # Answers a PING of the broker.
    def pong
      say 'PONG'
    end

    # Ends the worker's session.
    def bye
      say 'BYE'
    end
  end

  # Runs a program with a bus, and closes the bus. Reports a failure on standard error and as the exit code.
  def self.open(**options, &program)
    run(-> { Bus.new(**options) }, &program)
  end

  # Runs a program with the connection of a worker.
  def self.register(scheme, slots, &program)
    run(-> { Worker.new(scheme, slots) }, &program)
  end

  def self.run(connection)
    $stdout.sync = true
    bus = connection.call
    yield bus
  rescue Error, SystemCallError => e
    warn "earshot: #{e.message}"
    exit e.is_a?(Error) ? e.status : FAILED
  ensure
    bus&.close
  end
  private_class_method :run

  # Prints the usage of a program and exits.
  def self.usage(text)
    warn "usage: #{text}"
    exit USAGE
  end
end
