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
/// calls ``needsPass(hasUnsent:)`` before it sleeps. libzmq never reconnects: a new connection needs a new object.
final class CurveLink {
    private enum Phase: Equatable {
        case connecting
        case open
        case ended(LinkEnding)
    }

    /// Timeouts of the tcp connection and of the handshake. Three retransmissions of a lost packet take 7 s.
    private static let connectTimeoutMilliseconds: Int32 = 5_000
    /// Maximum messages in each direction between this object and libzmq's thread. Later ones wait in the kernel, or
    /// with the owner.
    private static let maximumQueuedMessages: Int32 = 256
    /// Maximum frame size in bytes, as of local connections.
    private static let maximumFrameBytes: Int64 = 1 << 30
    /// ZAP status for a key that is not authorized. Other codes are failures of the server.
    private static let unauthorizedZAPStatus: Int32 = 400

    private let socket: Socket
    private let monitor: Monitor
    private let loop: EventLoop
    private var receivedParts = Multipart(capacity: 2)
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
        options.sendHighWaterMark = Self.maximumQueuedMessages
        options.receiveHighWaterMark = Self.maximumQueuedMessages
        options.maximumFrameBytes = Self.maximumFrameBytes
        options.handshakeTimeoutMilliseconds = Self.connectTimeoutMilliseconds
        options.heartbeat = network.heartbeat
        // With this option libzmq would discard the unread frames of a broken connection, and abort the process
        // (`!_more` in fq.cpp) if that happens between two frames of a message. This object sends nothing before the
        // handshake anyway.
        options.isImmediate = false
        // libzmq reports a failed attempt only if it plans another one, an hour later.
        options.reconnectIntervalMilliseconds = 3_600_000...3_600_000
        socket = try network.makeDealerSocket(options)
        monitor = try Monitor.make(of: socket)
        var curve = CurveClient(serverKey: serverKey, publicKey: key.publicKey, secretKey: key.secretKey)
        curve.connectTimeoutMilliseconds = Self.connectTimeoutMilliseconds
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
    func readConnectionEvents() -> Bool {
        let wasConnecting = phase == .connecting
        // An error ends the connection like its loss: the socket cannot be used any more.
        while let event = try? monitor.next() { handleEvent(event) }
        return wasConnecting && phase == .open
    }

    private func handleEvent(_ event: Monitor.Event) {
        switch (event.kind, phase) {
        case (_, .ended): break
        case (.handshakeSucceeded, _): phase = .open
        case (.handshakeRefused, _):
            phase = .ended(event.value == Self.unauthorizedZAPStatus ? .refused : .handshakeFailed)
        case (.handshakeInvalid, _): phase = .ended(.handshakeInvalid)
        case (.handshakeFailed, _): phase = .ended(.handshakeFailed)
        case (.disconnected, .open): phase = .ended(.connectionLost)
        case (.disconnected, .connecting): phase = .ended(.handshakeFailed)
        case (.closed, .connecting), (.connectRetried, .connecting): phase = .ended(.unreachable)
        case (.closed, .open), (.connectRetried, .open), (.accepted, _), (.connected, _), (.acceptFailed, _): break
        }
    }

    /// Returns the next message; nil if none is complete.
    func nextMessage() -> ZMTP.Message? {
        guard isReading, let hasMessage = try? socket.receive(into: &receivedParts), hasMessage else { return nil }
        defer { receivedParts.removeAll() }
        var message = ZMTP.Message(
            head: receivedParts.bytes(0), body: receivedParts.count > 1 ? receivedParts.bytes(1) : nil)
        message.hadSurplusFrames = receivedParts.surplusFrames > 0
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
    /// This call itself clears the report of room in libzmq's queue, so an owner with unsent messages must pass
    /// `hasUnsent`.
    func needsPass(hasUnsent: Bool) -> Bool {
        if (try? monitor.isReadable()) == true { return true }
        guard let readiness = try? socket.readiness() else { return false }
        return isReading && readiness.contains(.readable) || hasUnsent && isOpen && readiness.contains(.writable)
    }

    /// Lets libzmq send queued messages for a time after the end of this object.
    func linger(milliseconds: Int32) { try? socket.setLinger(milliseconds: milliseconds) }
}

/// Reason why a connection over a network ended or did not begin.
enum LinkEnding: Hashable, Sendable {
    /// The address does not resolve, or no server accepts the connection in time.
    case unreachable
    /// The server closed the connection in the handshake, as for a wrong server key or as a server of another protocol,
    /// or did not complete it in time.
    case handshakeFailed
    /// The server does not speak ZeroMQ with CURVE.
    case handshakeInvalid
    /// The server has not authorized the client's key.
    case refused
    /// An established connection broke.
    case connectionLost
    /// The bus did not answer HELLO in time.
    case helloTimedOut

    /// Sentence for users, with a next step.
    func userMessage(for endpoint: BusEndpoint) -> String {
        switch self {
        case .unreachable:
            "no bus answers at \(endpoint); check address and network, and that its `earshot serve` has --listen"
        case .handshakeFailed:
            "the handshake with \(endpoint) failed: it is no bus, or has another server key; compare with `earshot key show`"
        case .handshakeInvalid:
            "\(endpoint) is no bus with encryption; check the address and the port"
        case .refused:
            "the bus at \(endpoint) has not authorized the key of this client; ask its administrator for `earshot key`"
        case .connectionLost: "the connection to the bus at \(endpoint) broke; wait for the bus or the network"
        case .helloTimedOut: "the bus at \(endpoint) accepts the connection and does not answer; check its log"
        }
    }
}
