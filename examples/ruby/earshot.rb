# A client of an Earshot bus, protocol EAR/1 (protocols/1-CLIENT.md), on ffi-rzmq.

require 'ffi-rzmq'

module Earshot
  FAILED = 1
  USAGE = 64
  NO_BROKER = 69

  # Why it cannot go on; `status` is the exit status that fits, as those of the command `earshot`.
  class Error < StandardError
    attr_reader :status

    def initialize(message, status = FAILED)
      super(message)
      @status = status
    end
  end

  # A message of the broker: its first line in words, its fields, the HTTP fields one a line.
  class Message
    attr_reader :verb, :operands, :fields, :http

    def initialize(head, body = '')
      top, @http = head.split("\n\n", 2)
      line, *fields = top.split("\n")
      @verb, *@operands = line.split
      @fields = fields.to_h { |field| field.split(/: */, 2) }
      @body = body
    end

    # Whether it is the last one of a request.
    def terminal?
      verb == 'RESULT' || verb == 'FAILED'
    end

    # The body. To be read before the acknowledgement: then the file that it may be in is gone.
    def content
      fields.key?('file') ? File.binread(fields['file']) : @body
    end

    # What became of a request, as a line.
    def to_s
      [*operands, fields['url'] || '-'].join(' ')
    end
  end

  # A connection. What it asked for ends with it.
  class Bus
    GREETING_MS = 3000
    SILENCE_MS = 5000
    LINGER_MS = 500

    # Connects and is greeted, in at most 3 s.
    def initialize
      @heard = 0
      make_socket
      greet 'bus', 'HELLO', 'EAR/1'
    end

    # Wants a URL. The fields are those of FETCH: priority: 'high', timeout: 5.
    def fetch(handler, request, url, **fields)
      say 'FETCH', handler, request, url, **fields
    end

    # Nothing under the handler is wanted any more. Answered with REMOVED and how many requests had not ended.
    def remove(handler)
      say 'REMOVE', handler
    end

    # One request is not wanted any more. Answered with CANCELLED.
    def cancel(handler, request)
      say 'CANCEL', handler, request
    end

    # Hears what becomes of a handler's requests, or with a slash at its end of all below. Answered with ANSWER.
    def subscribe(pattern)
      say 'SUBSCRIBE', pattern
      say 'QUERY', 'ping' # SUBSCRIBE itself is not answered
    end

    # Unacknowledged terminals are in the way of the next.
    def acknowledge(message)
      say 'ACK', message.fields['seq'] if message.fields['seq']
    end

    # The next message, however long it takes, a terminal once: a broker may say it again, with the number that it had.
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

    # The next message. A broker that ends tells nobody: after some silence it is asked for a sign of life.
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

    # Fails unless the folder is this user's alone: in /tmp anybody can make one, and would hear what is asked for.
    def look_at_folder
      found = File.lstat(folder)
      return if found.directory? && found.uid == Process.euid && found.mode.nobits?(0o077)

      raise Error.new("#{folder} is not a folder of this user's alone: what runs there is not to be trusted", NO_BROKER)
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

    # The frames of the next message, or nil when none comes in time.
    def await(milliseconds)
      check @socket.setsockopt(ZMQ::RCVTIMEO, milliseconds)
      frames = []
      until ZMQ::Util.resultcode_ok?(@socket.recv_strings(frames))
        return nil if ZMQ::Util.errno == ZMQ::EAGAIN
        raise Error, "cannot receive: #{ZMQ::Util.error_string}" unless ZMQ::Util.errno == Errno::EINTR::Errno
      end
      frames
    end

    # The message in these frames, unless it is an ERROR.
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

    # Whether there was a connection to send it by, or soon was.
    def try_to_say(head)
      result = @socket.send_string(head)
      return false if !ZMQ::Util.resultcode_ok?(result) && ZMQ::Util.errno == ZMQ::EAGAIN

      check result
      true
    end

    def head(words, fields)
      # One with a line end in it could say anything.
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

  # A connection as a worker, protocol EARW/1 (protocols/2-WORKER.md). What a client says it cannot say.
  class Worker < Bus
    undef_method :fetch, :remove, :cancel, :subscribe, :acknowledge

    # Connects as a worker for URLs of a scheme, so many at once, in at most 3 s.
    def initialize(scheme, slots)
      @heard = 0
      make_socket
      # Its socket is for one connection: what is meant for one broker shall not reach the next. Without a connection
      # nothing can be sent, and `wait` notices that.
      check @socket.setsockopt(ZMQ::RECONNECT_IVL, -1)
      check @socket.setsockopt(ZMQ::IMMEDIATE, 1)
      check @socket.setsockopt(ZMQ::SNDTIMEO, GREETING_MS)
      greet 'work', 'READY', 'EARW/1', slots: slots, schemes: scheme, pid: Process.pid, drain: 'yes'
      @ready = IO.for_fd(option(ZMQ::FD), autoclose: false)
    end

    # Waits until there is something to do, or the seconds are over, or there is something in the pipe, if there is one.
    # Whether it is a message.
    def wait(pipe, seconds)
      events = option(ZMQ::EVENTS)
      return true if events.anybits?(ZMQ::POLLIN)
      raise Error.new('the broker is gone', NO_BROKER) unless events.anybits?(ZMQ::POLLOUT)

      IO.select([@ready, pipe].compact, nil, nil, seconds)
      false
    end

    # Answers a JOB with a body and its type.
    def done(attempt, type, body)
      top = head(['DONE', attempt, 200], { length: body.bytesize })
      check @socket.send_strings(["#{top}\ncontent-type: #{type}\n", body])
    end

    # Answers a JOB that came to nothing; `detail` is a line for who asked, if the code is worker-failed.
    def failed(attempt, code, detail)
      say 'FAILED', attempt, code, detail: detail
    end

    # Answers PING.
    def pong
      say 'PONG'
    end

    # Leaves.
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

  # Runs a program's body with a bus, closed at its end; a failure is told on standard error and by the exit status.
  def self.open(&program)
    run(-> { Bus.new }, &program)
  end

  # Runs it with a worker's connection.
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

  # Ends a program that was called wrongly.
  def self.usage(text)
    warn "usage: #{text}"
    exit USAGE
  end
end
