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
    /// Maximum number of bytes of one reply: a full batch of results, each with `EngineLimits.maximumResultBytes`.
    static let maximumReplyBytes = 16_777_216
    /// Maximum number of bytes that wait for the kernel. A server that reads nothing is too slow.
    private static let maximumUnsentBytes = 16_777_216

    private let loop: EventLoop
    /// Look-up that runs, even if it is no longer needed: so a name server that hangs keeps only one thread busy.
    private var lookup: HostLookup?
    /// Port at the host that is looked up; nil if the connection was closed meanwhile.
    private var awaitedPort: UInt16?
    /// Number of look-ups that succeeded, by which the addresses of a host are taken in turn.
    private var lookupCount = 0
    private var descriptor: Int32?
    private var registration: EventLoop.Registration?
    private var reader: ReplyReader?
    private var isConnected = false
    private var output: [UInt8] = []
    private var sentOutputBytes = 0
    private var awaitsWritability = false
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
        case .ipAddress(let host, let port): connect { try StreamConnection.connect(to: host, port: port) }
        case .hostName(let name, let port): lookUpHost(name, port: port)
        case .unixSocket(let path): connect { try StreamConnection.connect(to: path) }
        }
    }

    /// Looks up the addresses of a host, and connects to one of them.
    private func lookUpHost(_ name: HostName, port: UInt16) {
        awaitedPort = port
        if let lookup {
            if lookup.name != name {
                endConnection(.unreachable("the look-up of the host name \(lookup.name) has not ended"))
            }
            return
        }
        do {
            lookup = try HostLookup(name, on: loop) { [unowned self] outcome in lookupEnded(outcome) }
        } catch {
            endConnection(.unreachable("\(error)"))
        }
    }

    private func lookupEnded(_ outcome: HostLookup.Outcome) {
        lookup = nil
        guard let port = awaitedPort else { return }
        awaitedPort = nil
        switch outcome {
        case .success(let addresses):
            lookupCount += 1
            // Name servers change the order. Both connections of a session go to one address.
            let sorted = addresses.sorted { "\($0)" < "\($1)" }
            let address = sorted[lookupCount % sorted.count]
            connect { try StreamConnection.connect(to: address, port: port) }
        case .failure(let failure): endConnection(.unreachable("\(failure)"))
        }
    }

    private func connect(_ makeSocket: () throws -> Int32) {
        do {
            reader = ReplyReader(maximumReplyBytes: Self.maximumReplyBytes)
            let descriptor = try makeSocket()
            self.descriptor = descriptor
            registration = try loop.add(descriptor, [.readable, .writable]) { [unowned self] in handleReadiness($0) }
        } catch {
            endConnection(.unreachable("\(error)"))
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
        sentOutputBytes = 0
        awaitsWritability = false
        events = []
    }

    /// Whether no event waits.
    var hasNoPendingEvents: Bool { events.isEmpty }

    func takeEvents() -> [Event] {
        defer { events = [] }
        return events
    }

    /// Adds a command to the output, which `flush` sends.
    func append(_ command: Command) {
        guard descriptor != nil else { return }
        command.encode(into: &output)
        if output.count - sentOutputBytes > Self.maximumUnsentBytes { endConnection(.timedOut) }
    }

    /// Sends the commands of a pass with one system call, unless the kernel's buffer is full.
    func flush() {
        guard let descriptor, isConnected, sentOutputBytes < output.count else { return }
        while sentOutputBytes < output.count {
            let transfer = unsafe output.withUnsafeBytes {
                unsafe UnixSocket.send(descriptor, UnsafeRawBufferPointer(rebasing: $0[sentOutputBytes...]))
            }
            switch transfer {
            case .bytesTransferred(let count): sentOutputBytes += count
            case .wouldBlock:
                watchDescriptor(writability: true)
                return
            case .connectionEnded: return endConnection(.connectionClosed)
            }
        }
        output.removeAll(keepingCapacity: output.count <= 65_536)
        sentOutputBytes = 0
        watchDescriptor(writability: false)
    }

    private func watchDescriptor(writability: Bool) {
        guard writability != awaitsWritability, let registration else { return }
        awaitsWritability = writability
        do {
            try loop.changeInterest(of: registration, to: writability ? [.readable, .writable] : .readable)
        } catch {
            endConnection(.unreachable("\(error)"))
        }
    }

    private func handleReadiness(_ readiness: EventLoop.Readiness) {
        guard let descriptor else { return }
        if !isConnected {
            if let failure = StreamConnection.connectError(of: descriptor) {
                return endConnection(.unreachable("\(failure)"))
            }
            guard readiness.contains(.writable) else { return }
            isConnected = true
            awaitsWritability = true
            watchDescriptor(writability: false)
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
            case .bytesTransferred(let count):
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
                guard isSound else { return endConnection(.malformedReply) }
                if count < input.count { return }
            case .wouldBlock: return
            case .connectionEnded: return endConnection(.connectionClosed)
            }
        }
    }

    private func endConnection(_ fault: EngineFault) {
        let earlier = events
        close()
        events = earlier + [.closed(fault)]
    }
}
