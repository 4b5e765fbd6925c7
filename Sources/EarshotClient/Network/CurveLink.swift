internal import EarshotLoop
internal import ZMTP
internal import ZeroMQ

/// One connection to a bus over tcp: a DEALER of libzmq with CURVE, driven by the loop of its owner.
///
/// ```
/// connecting -> open -> ended
/// ```
///
/// libzmq encrypts and sends in a thread of its own. It reports by descriptors that any call may clear, so the owner
/// asks ``needsPass(hasUnsent:)`` before it sleeps. libzmq never reconnects: a new connection needs a new object.
final class CurveLink {
    private enum Phase: Equatable {
        case connecting
        case open
        case ended(LinkEnding)
    }

    /// Timeouts of the tcp connection and of the handshake. Three retransmissions of a lost packet take 7 s.
    private static let connectMilliseconds: Int32 = 5_000
    /// Maximum messages in each direction between this object and libzmq's thread. Later ones wait in the kernel, or
    /// with the owner.
    private static let queuedMessages: Int32 = 256
    /// Maximum frame size in bytes, as of local connections.
    private static let frameBytes: Int64 = 1 << 30
    /// ZAP status for a key that is not authorized. Other codes are failures of the server.
    private static let unauthorized: Int32 = 400

    private let socket: Socket
    private let monitor: Monitor
    private let loop: EventLoop
    private var parts = Multipart(capacity: 2)
    private var registrations: [EventLoop.Registration] = []
    private var phase = Phase.connecting
    /// Whether messages are read. Unread ones wait in libzmq's bounded queue.
    var isReading = true

    /// Starts to connect.
    ///
    /// - Parameter usesIPv6: whether a host name is resolved to an address of IPv6.
    init(
        _ address: NetworkAddress, _ key: BusKey, serverKey: String, usesIPv6: Bool, _ network: Network,
        loop: EventLoop
    ) throws {
        self.loop = loop
        var options = SocketOptions()
        options.sendHighWaterMark = Self.queuedMessages
        options.receiveHighWaterMark = Self.queuedMessages
        options.maximumFrameBytes = Self.frameBytes
        options.handshakeMilliseconds = Self.connectMilliseconds
        options.heartbeat = network.heartbeat
        // With this option libzmq would discard the unread frames of a broken connection, and abort the process (`!_more` in
        // fq.cpp) if that happens between two frames of a message. This object sends nothing before the handshake anyway.
        options.isImmediate = false
        // libzmq reports a failed attempt only if it plans another one, an hour later.
        options.reconnectMilliseconds = 3_600_000...3_600_000
        socket = try network.dealer(options)
        monitor = try Monitor.make(of: socket)
        var curve = CurveClient(serverKey: serverKey, publicKey: key.publicKey, secretKey: key.secretKey)
        curve.connectMilliseconds = Self.connectMilliseconds
        curve.usesIPv6 = usesIPv6 || address.isIPv6
        try socket.useCurve(curve)
        for descriptor in [socket.descriptor, monitor.descriptor] {
            // The pass that follows each wake reads everything.
            registrations.append(try loop.add(descriptor, .readable) { _ in })
        }
        try socket.connect(address.description)
    }

    deinit { for registration in registrations { loop.remove(registration) } }

    /// Whether messages can be sent, which is the case after the handshake.
    var isOpen: Bool { phase == .open }

    /// Reason why the connection ended; nil while it has not.
    var ending: LinkEnding? { if case .ended(let ending) = phase { ending } else { nil } }

    /// Reads the events of the connection.
    ///
    /// - Returns: whether the handshake was completed.
    func advance() -> Bool {
        let wasConnecting = phase == .connecting
        // An error ends the connection like its loss: the socket cannot be used any more.
        while let event = try? monitor.next() { handle(event) }
        return wasConnecting && phase == .open
    }

    private func handle(_ event: Monitor.Event) {
        switch (event.kind, phase) {
        case (_, .ended): break
        case (.handshakeSucceeded, _): phase = .open
        case (.handshakeRefused, _): phase = .ended(event.value == Self.unauthorized ? .refused : .handshakeFailed)
        case (.handshakeInvalid, _): phase = .ended(.handshakeInvalid)
        case (.handshakeFailed, _): phase = .ended(.handshakeFailed)
        case (.disconnected, .open): phase = .ended(.lost)
        case (.disconnected, .connecting): phase = .ended(.handshakeFailed)
        case (.closed, .connecting), (.connectRetried, .connecting): phase = .ended(.unreachable)
        case (.closed, .open), (.connectRetried, .open), (.accepted, _), (.connected, _), (.acceptFailed, _): break
        }
    }

    /// Returns the next message; nil if none is complete.
    func next() -> ZMTP.Message? {
        guard isReading, let isThere = try? socket.receive(into: &parts), isThere else { return nil }
        defer { parts.removeAll() }
        var message = ZMTP.Message(head: parts.bytes(0), body: parts.count > 1 ? parts.bytes(1) : nil)
        message.isLonger = parts.surplusFrames > 0
        return message
    }

    /// Sends a message.
    ///
    /// - Returns: false if the queue is full or the connection is not open.
    func send(_ message: ZMTP.Message) -> Bool {
        guard isOpen, (try? socket.send(message.head, more: message.body != nil)) == .sent else { return false }
        // libzmq has accepted the whole message with its first frame.
        if let body = message.body { _ = try? socket.send(body) }
        return true
    }

    /// Whether events, messages or room for messages are pending that no descriptor reports any more.
    ///
    /// This call itself clears the report of room in libzmq's queue, so an owner with unsent messages must ask for it.
    func needsPass(hasUnsent: Bool) -> Bool {
        if (try? monitor.isReadable()) == true { return true }
        guard let readiness = try? socket.readiness() else { return false }
        return isReading && readiness.contains(.readable) || hasUnsent && isOpen && readiness.contains(.writable)
    }

    /// Lets libzmq send queued messages for a time after the end of this object.
    func linger(milliseconds: Int32) { try? socket.linger(milliseconds: milliseconds) }
}
