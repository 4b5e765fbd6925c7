internal import EarshotCore
internal import EarshotLoop
internal import RESP

/// One connection to a server. Events are recorded and taken by the owner at the end of a pass.
final class EngineStream {
    enum Event {
        case opened
        case reply(Reply)
        case closed(EngineFault)
    }

    /// Bytes that are read in one pass, so that a fast server does not delay the loop.
    private static let bytesPerPass = 262_144
    /// Maximum number of bytes of one reply: a full batch of results, each with `EngineLimits.resultBytes`.
    static let replyBytes = 16_777_216
    /// Maximum number of bytes that wait for the kernel. A server that reads nothing is too slow.
    private static let mostUnsentBytes = 16_777_216

    private let loop: EventLoop
    /// Look-up that runs, also one that is no longer needed: so a name server that hangs keeps one thread busy.
    private var lookup: HostLookup?
    /// Port at the host that is looked up; nil if the connection was closed meanwhile.
    private var awaitedPort: UInt16?
    /// Number of the look-ups that ended, by which the addresses of a host are taken in turn.
    private var lookups = 0
    private var descriptor: Int32?
    private var registration: EventLoop.Registration?
    private var reader: ReplyReader?
    private var isConnected = false
    private var output: [UInt8] = []
    private var sent = 0
    private var awaitsRoom = false
    private var input = [UInt8](repeating: 0, count: 65_536)
    private(set) var events: [Event] = []

    init(_ loop: EventLoop) {
        self.loop = loop
    }

    deinit { close() }

    /// Starts a connection. A failure is an event.
    func open(_ address: EngineAddress) {
        close()
        switch address {
        case .network(let host, let port): connect { try StreamConnection.connect(to: host, port: port) }
        case .named(let name, let port): find(name, port)
        case .local(let path): connect { try StreamConnection.connect(to: path) }
        }
    }

    /// Looks up the addresses of a host, and connects to one of them.
    private func find(_ name: HostName, _ port: UInt16) {
        awaitedPort = port
        if let lookup {
            if lookup.name != name { end(.unreachable("the look-up of the host name \(lookup.name) has not ended")) }
            return
        }
        do {
            lookup = try HostLookup(name, on: loop) { [unowned self] outcome in lookupEnded(outcome) }
        } catch {
            end(.unreachable("\(error)"))
        }
    }

    private func lookupEnded(_ outcome: HostLookup.Outcome) {
        lookup = nil
        guard let port = awaitedPort else { return }
        awaitedPort = nil
        switch outcome {
        case .success(let addresses):
            lookups += 1
            // Name servers change the order. Both connections of a session go to one address.
            let sorted = addresses.sorted { "\($0)" < "\($1)" }
            let address = sorted[lookups % sorted.count]
            connect { try StreamConnection.connect(to: address, port: port) }
        case .failure(let failure): end(.unreachable("\(failure)"))
        }
    }

    private func connect(_ makeSocket: () throws -> Int32) {
        do {
            reader = ReplyReader(maximumReplyBytes: Self.replyBytes)
            let descriptor = try makeSocket()
            self.descriptor = descriptor
            registration = try loop.add(descriptor, [.readable, .writable]) { [unowned self] in ready($0) }
        } catch {
            end(.unreachable("\(error)"))
        }
    }

    /// Closes the connection and drops its events.
    func close() {
        awaitedPort = nil
        if let registration { loop.remove(registration) }
        registration = nil
        if let descriptor { UnixSocket.close(descriptor) }
        descriptor = nil
        reader = nil
        isConnected = false
        output = []
        sent = 0
        awaitsRoom = false
        events = []
    }

    /// Whether no event waits.
    var isQuiet: Bool { events.isEmpty }

    func takeEvents() -> [Event] {
        defer { events = [] }
        return events
    }

    /// Adds a command to the output, which `flush` sends.
    func append(_ command: Command) {
        guard descriptor != nil else { return }
        command.encode(into: &output)
        if output.count - sent > Self.mostUnsentBytes { end(.timedOut) }
    }

    /// Sends the commands of a pass with one system call, unless the kernel's buffer is full.
    func flush() {
        guard let descriptor, isConnected, sent < output.count else { return }
        while sent < output.count {
            let transfer = unsafe output.withUnsafeBytes {
                unsafe UnixSocket.send(descriptor, UnsafeRawBufferPointer(rebasing: $0[sent...]))
            }
            switch transfer {
            case .bytes(let count): sent += count
            case .wouldBlock:
                watch(room: true)
                return
            case .ended: return end(.closed)
            }
        }
        output.removeAll(keepingCapacity: output.count <= 65_536)
        sent = 0
        watch(room: false)
    }

    private func watch(room: Bool) {
        guard room != awaitsRoom, let registration else { return }
        awaitsRoom = room
        do {
            try loop.change(registration, to: room ? [.readable, .writable] : .readable)
        } catch {
            end(.unreachable("\(error)"))
        }
    }

    private func ready(_ readiness: EventLoop.Readiness) {
        guard let descriptor else { return }
        if !isConnected {
            if let failure = StreamConnection.failure(of: descriptor) { return end(.unreachable("\(failure)")) }
            guard readiness.contains(.writable) else { return }
            isConnected = true
            awaitsRoom = true
            watch(room: false)
            events.append(.opened)
        } else if readiness.contains(.writable) {
            flush()
        }
        if readiness != .writable { read() }
    }

    private func read() {
        var taken = 0
        while let descriptor, taken < Self.bytesPerPass {
            let transfer = unsafe input.withUnsafeMutableBytes { unsafe UnixSocket.receive(descriptor, into: $0) }
            switch transfer {
            case .bytes(let count):
                taken += count
                var replies: [Reply] = []
                let isSound: Bool
                do {
                    try reader?.feed(input[..<count], into: &replies)
                    isSound = true
                } catch {
                    isSound = false
                }
                for reply in replies { events.append(.reply(reply)) }
                guard isSound else { return end(.malformed) }
                if count < input.count { return }
            case .wouldBlock: return
            case .ended: return end(.closed)
            }
        }
    }

    private func end(_ fault: EngineFault) {
        let earlier = events
        close()
        events = earlier + [.closed(fault)]
    }
}
