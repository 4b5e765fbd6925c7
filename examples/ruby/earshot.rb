# Client of an Earshot bus, protocol EAR/1 (protocols/1-CLIENT.md), on ffi-rzmq.

require 'ffi-rzmq'

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

  # Message from the broker: the words of its first line, its fields, and the HTTP fields as lines.
  class Message
    attr_reader :verb, :operands, :fields, :http

    def initialize(head, body = '')
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
      fields.key?('file') ? File.binread(fields['file']) : @body
    end

    # Returns the terminal as a line: handler, request, status or code, and URL.
    def to_s
      [*operands, fields['url'] || '-'].join(' ')
    end
  end

  # Connection to a bus. Closing it removes its requests.
  class Bus
    GREETING_MS = 3000
    SILENCE_MS = 5000
    LINGER_MS = 500

    # Connects and performs the handshake, within 3 s.
    def initialize
      @heard = 0
      make_socket
      greet 'bus', 'HELLO', 'EAR/1'
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
      say 'ACK', message.fields['seq'] if message.fields['seq']
    end

    # Waits for the next message without a time limit. Skips terminals that the broker redelivers with the same number.
    def receive
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

    def close
      @socket&.close
      @context&.terminate
    end

    private

    # Waits for the next message. A broker that ends sends no message, so a QUERY checks that it is alive after some silence.
    def receive_any
      frames = await(SILENCE_MS)
      unless frames
        say 'QUERY', 'ping'
        frames = await(SILENCE_MS)
      end
      raise Error.new('the broker is gone: start one with `earshot serve`', NO_BROKER) unless frames

      understand frames
    end

    def folder
      session = named('XDG_RUNTIME_DIR')
      named('EARSHOT_RUNTIME') || (session && "#{session}/earshot") || File.join('/tmp', "earshot-#{Process.euid}")
    end

    def named(variable)
      value = ENV.fetch(variable, '')
      value unless value.empty?
    end

    def make_socket
      @context = ZMQ::Context.new
      @socket = @context.socket(ZMQ::DEALER)
      check @socket.setsockopt(ZMQ::LINGER, LINGER_MS)
    end

    # Fails unless the directory is private to this user. In /tmp any user can create one and would receive requests.
    def look_at_folder
      found = File.lstat(folder)
      return if found.directory? && found.uid == Process.euid && found.mode.nobits?(0o077)

      raise Error.new("#{folder} is not a directory private to this user: remove it, or set EARSHOT_RUNTIME", NO_BROKER)
    rescue SystemCallError
      raise no_broker
    end

    def no_broker
      Error.new("no broker answers in #{folder}: start one with `earshot serve`", NO_BROKER)
    end

    def greet(endpoint, *words, **fields)
      look_at_folder
      check @socket.connect("ipc://#{folder}/#{endpoint}")
      answer = await(GREETING_MS) if try_to_say(head(words, fields))
      raise no_broker unless answer

      understand answer
    end

    # Returns the frames of the next message, or nil after a time-out.
    def await(milliseconds)
      check @socket.setsockopt(ZMQ::RCVTIMEO, milliseconds)
      frames = []
      until ZMQ::Util.resultcode_ok?(@socket.recv_strings(frames))
        return nil if ZMQ::Util.errno == ZMQ::EAGAIN
        raise Error, "cannot receive: #{ZMQ::Util.error_string}" unless ZMQ::Util.errno == Errno::EINTR::Errno
      end
      frames
    end

    # Returns the message in these frames. Fails if it is an ERROR.
    def understand(frames)
      message = Message.new(*frames.first(2))
      return message unless message.verb == 'ERROR'

      code = message.operands.first
      raise Error, "#{code}: #{message.fields['detail']}" unless code == 'hello-required'

      raise Error.new('the broker has ended and another one is there: ask again', NO_BROKER)
    end

    def say(*words, **fields)
      check @socket.send_string(head(words, fields))
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
  end

  # Connection of a worker, protocol EARW/1 (protocols/2-WORKER.md), without the methods for clients.
  class Worker < Bus
    undef_method :fetch, :remove, :cancel, :subscribe, :acknowledge

    # Connects as a worker for URLs of a scheme, with `slots` concurrent jobs, within 3 s.
    def initialize(scheme, slots)
      @heard = 0
      make_socket
      # The socket serves one connection, so that messages for one broker never reach the next one. Without a connection
      # a send fails, and `wait` detects that.
      check @socket.setsockopt(ZMQ::RECONNECT_IVL, -1)
      check @socket.setsockopt(ZMQ::IMMEDIATE, 1)
      check @socket.setsockopt(ZMQ::SNDTIMEO, GREETING_MS)
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

    private

    def option(name)
      value = []
      check @socket.getsockopt(name, value)
      value.first
    end
  end

  # Runs a program with a bus, and closes the bus. Reports a failure on standard error and as the exit code.
  def self.open(&program)
    run(-> { Bus.new }, &program)
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
