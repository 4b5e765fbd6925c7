# Where the bus is: its directory on this machine, or its address on a network with the keys of both ends.

require 'ffi-rzmq'
require 'socket'

module Earshot
  # Place of a bus. Options: bus, key and server_key, by default EARSHOT_BUS, EARSHOT_BUS_KEY and EARSHOT_SERVER_KEY. `local`
  # ignores the variables.
  class Place
    # Runtime directory of a bus for several users of the machine.
    SHARED = '/run/earshot'
    CONNECT_MS = 5000
    # Options of libzmq 4.2 that ffi-rzmq does not name.
    TIMES = { 66 => CONNECT_MS, 79 => CONNECT_MS, 75 => 5000, 77 => 15_000 }.freeze
    CURVE = { public: 48, secret: 49, server: 50 }.freeze

    def initialize(bus: nil, key: nil, server_key: nil, local: false)
      return if local

      @bus = bus || named('EARSHOT_BUS')
      @key = key || named('EARSHOT_BUS_KEY')
      @server_key = server_key || named('EARSHOT_SERVER_KEY')
    end

    def remote?
      !@bus.nil?
    end

    # Returns the address of a socket of the bus, `bus` or `work`. Fails if its directory is not trusted.
    def address(socket)
      return @bus if remote?

      begin
        found = File.lstat(folder)
      rescue SystemCallError
        raise no_broker
      end
      return "ipc://#{folder}/#{socket}" if trusted?(folder, found)

      raise Error.new("#{folder} is not a directory private to this user: remove it, or set EARSHOT_RUNTIME", NO_BROKER)
    end

    def no_broker
      return Unreachable.new("no broker answers in #{folder}: start one with `earshot serve`") unless remote?

      Unreachable.new("no bus answers at #{@bus}: check the address, the key and the server key, and that its " \
                      '`earshot serve` has --listen')
    end

    # Sets the keys, the limits of time, and heartbeats of a connection over a network.
    def secure(socket)
      raise Error.new('the address of the bus is invalid: use tcp://HOST:PORT', USAGE) unless @bus.match?(%r{\Atcp://.+:\d+\z})
      raise Error.new('a bus on a network needs the key file of this client and the server key', USAGE) unless @key && @server_key

      keys = { public: read(@key, 'public-key', true), secret: read(@key, 'secret-key', true),
               server: File.exist?(@server_key) ? read(@server_key, 'public-key', false) : @server_key }
      if keys[:server].bytesize != 40
        raise Error.new('the server key is neither a key of 40 characters nor a file', USAGE)
      end

      keys.each { |end_, key| set_text(socket, CURVE[end_], key) }
      TIMES.each { |option, milliseconds| set_number(socket, option, milliseconds) }
    end

    private

    def named(variable)
      value = ENV.fetch(variable, '')
      value unless value.empty?
    end

    def folder
      session = named('XDG_RUNTIME_DIR')
      chosen = named('EARSHOT_RUNTIME') || (session && "#{session}/earshot")
      return chosen if chosen

      own = File.join('/tmp', "earshot-#{Process.euid}")
      return own if served?(own) || !File.directory?(SHARED)

      trusted?(SHARED, File.lstat(SHARED)) ? SHARED : own
    end

    def served?(folder)
      UNIXSocket.new("#{folder}/bus").close
      true
    rescue SystemCallError
      false
    end

    # Returns whether the listener in the directory is trusted: of a directory of this user, or of one whose owner root decided.
    def trusted?(folder, found)
      return false unless found.directory?
      return found.mode.nobits?(0o077) || (found.mode & 0o7777) == 0o755 if found.uid == Process.euid

      found.mode.nobits?(0o022) && only_root_decides?(folder, found.uid.zero?)
    end

    # Returns whether only root, or this user, can create and replace the directory. A path with links is not accepted.
    def only_root_decides?(folder, permits_sticky)
      return false unless folder.start_with?('/')

      until folder == '/'
        folder = File.dirname(folder)
        found = File.lstat(folder)
        safe = found.mode.nobits?(0o022) || (permits_sticky && found.sticky?)
        return false unless found.directory? && safe && [0, Process.euid].include?(found.uid)
      end
      true
    end

    # Returns the text of a line `name = "text"` of a file, with 40 characters.
    def read(path, name, secret)
      text = File.open(path) do |file|
        if secret && file.stat.mode.anybits?(0o077)
          raise Error.new("the key file #{path} is accessible to other users: run `chmod 600` on it", NO_BROKER)
        end
        file.read(16_384).to_s
      end
      # The output of `earshot key show` is a public key alone.
      return text.strip if !secret && text.strip.match?(/\A\S{40}\z/)

      found = text.match(/^\s*#{name}\s*=\s*(["'])(.{40})\1/)
      return found[2] if found

      raise Error.new("the key file #{path} has no #{name} of 40 characters: create one with `earshot key new`", NO_BROKER)
    rescue SystemCallError => e
      raise Error.new("cannot read the key file #{path}: #{e.message}", NO_BROKER)
    end

    # ffi-rzmq refuses options that it does not know, so they go to libzmq directly.
    def set_text(socket, option, text)
      pointer = FFI::MemoryPointer.from_string(text)
      set(socket, option, pointer, pointer.size)
    end

    def set_number(socket, option, number)
      pointer = FFI::MemoryPointer.new(:int)
      pointer.write_int(number)
      set(socket, option, pointer, pointer.size)
    end

    def set(socket, option, pointer, size)
      result = LibZMQ.zmq_setsockopt(socket.socket, option, pointer, size)
      raise Error, ZMQ::Util.error_string unless ZMQ::Util.resultcode_ok?(result)
    end
  end
end
