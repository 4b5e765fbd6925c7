internal import EarshotLoop
internal import EarshotWire
internal import ZMTP
internal import ZeroMQ

/// libzmq's socket for one connection, with CURVE. It decrypts and encrypts, and detects a client that vanished.
///
/// One socket for each connection: so one client's queue is left unread without another's, and no client can choose the
/// routing ID of another.
final class CurveEnd {
    /// Timeouts of the handshake and of a client that vanished without a word. A network may pause for 5 s.
    private static let handshakeTimeoutMilliseconds: Int32 = 5_000
    private static let heartbeat = SocketOptions.Heartbeat(intervalMilliseconds: 5_000, timeoutMilliseconds: 20_000)
    /// Maximum number of messages in libzmq in each direction. Their bytes are bounded by ``RelayMemory``.
    private static let maximumQueuedMessages: Int32 = 1_024
    /// Maximum length of an encrypted frame: the longest body of a FETCH.
    static let maximumFrameBytes = CurveServer.wireBytes(ofFrame: WireLimits.requestBodyBytes + WireLimits.headBytes)

    let number: UInt64
    private let socket: Socket
    private let loop: EventLoop
    private var registration: EventLoop.Registration?
    /// Routing ID that the socket assigned to the connection; nil before its first message.
    private var identity: [UInt8]?
    /// Routing ID, head, body and one more, which is too much.
    private var receivedParts = Multipart(capacity: 4)

    /// A message of the client.
    struct Received {
        var message: ZMTP.Message
        /// Its length on the wire.
        var bytes: Int
    }

    /// Creates a socket that waits for its connection at an abstract name, unix(7).
    ///
    /// - Parameter name: name that no other socket of this machine has.
    init(
        _ number: UInt64, name: String, secretKey: String, _ context: borrowing Context, loop: EventLoop,
        onReady: @escaping () -> Void
    ) throws {
        self.number = number
        self.loop = loop
        var options = SocketOptions()
        options.sendHighWaterMark = Self.maximumQueuedMessages
        options.receiveHighWaterMark = Self.maximumQueuedMessages
        options.maximumFrameBytes = Int64(Self.maximumFrameBytes)
        options.handshakeTimeoutMilliseconds = Self.handshakeTimeoutMilliseconds
        options.heartbeat = Self.heartbeat
        options.backlog = 1
        socket = try context.socket(.router, options)
        try socket.serveCurve(CurveServer(secretKey: secretKey, domain: String(number)))
        try socket.acceptOnlyThisProcess()
        try socket.bind("ipc://@\(name)")
        registration = try loop.add(socket.descriptor, .readable) { _ in onReady() }
    }

    deinit { if let registration { loop.remove(registration) } }

    /// Whether a message can be read, or sent if `hasUnsent`. Call it before sleep, because it and other calls clear
    /// the descriptor.
    func needsTurn(reads: Bool, hasUnsent: Bool) -> Bool {
        guard let readiness = try? socket.readiness() else { return false }
        return reads && readiness.contains(.readable) || hasUnsent && readiness.contains(.writable)
    }

    /// Returns the next message; nil without one.
    func nextMessage() -> Received? {
        guard (try? socket.receive(into: &receivedParts)) == true else { return nil }
        defer { receivedParts.removeAll() }
        var received = Received(message: ZMTP.Message(head: []), bytes: 0)
        for index in 1..<max(1, receivedParts.count) {
            received.bytes += CurveServer.wireBytes(ofFrame: receivedParts.byteCount(index))
        }
        if identity == nil { identity = receivedParts.bytes(0) }
        if receivedParts.count > 1 { received.message.head = receivedParts.bytes(1) }
        if receivedParts.count > 2 { received.message.body = receivedParts.bytes(2) }
        received.message.hadSurplusFrames = receivedParts.surplusFrames > 0 || receivedParts.count > 3
        return received
    }

    /// Sends a message.
    ///
    /// - Returns: its length on the wire; nil if libzmq accepts nothing now or the connection has ended.
    func send(_ message: ZMTP.Message) -> Int? {
        guard let identity, (try? socket.send(identity, more: true)) == .sent else { return nil }
        var bytes = 0
        _ = try? socket.send(message.head, more: message.body != nil)
        bytes += CurveServer.wireBytes(ofFrame: message.head.count)
        if let body = message.body {
            _ = try? socket.send(body)
            bytes += CurveServer.wireBytes(ofFrame: body.count)
        }
        return bytes
    }

    /// Lets libzmq send queued messages for a time after the end of this object.
    func linger(milliseconds: Int32) { try? socket.setLinger(milliseconds: milliseconds) }
}
