internal import CLibZMQ

/// Tells of the connections of one ``Socket``: who came, who went. It must be read to the end whenever it is
/// readable: after some 2,000 unread events the whole context stands still.
///
/// It may outlive its socket, and then says nothing more.
public struct Monitor: ~Copyable {
    /// Something that happened to a connection.
    public struct Event: Equatable, Sendable {
        /// What can happen.
        public enum Kind: Equatable, Sendable {
            /// A listening socket took a connection; the peer may still fail the handshake.
            case accepted
            /// A connecting socket reached somebody; the peer may still fail the handshake.
            case connected
            /// The first try failed, the next one is set.
            case connectRetried
            /// Messages can pass.
            case handshakeSucceeded
            /// The peer is not ZMTP, or not of this version, or was turned away.
            case handshakeFailed
            /// A connection that stood is gone.
            case disconnected
            /// The socket's own end was closed (a listener, or a try to connect).
            case closed
            /// A connection could not be taken, for instance for want of descriptors.
            case acceptFailed
        }

        public let kind: Kind
        /// What libzmq says with it: a descriptor for `accepted`, `connected`, `disconnected` and `closed`,
        /// milliseconds for `connectRetried`, an error number for the failures.
        public let value: Int32

        /// The connection, under the number that ``Message/sourceDescriptor`` has for its messages.
        public var descriptor: Int32? {
            switch kind {
            case .accepted, .connected, .disconnected, .closed: value
            case .connectRetried, .handshakeSucceeded, .handshakeFailed, .acceptFailed: nil
            }
        }
    }

    private let monitored: SocketHandle
    private let socket: Socket

    /// To be put into epoll, under the rules of ``Socket/descriptor``.
    public var descriptor: Int32 { socket.descriptor }

    /// Watches `monitored` from now on. A socket has one monitor at most.
    public static func make(of monitored: borrowing Socket) throws(ZeroMQError) -> Monitor {
        let handle = monitored.handle
        let number = unsafe UInt(bitPattern: handle.pointer)
        let endpoint = "inproc://monitor-\(String(number, radix: 16))"
        var options = SocketOptions()
        options.receiveHighWaterMark = 0
        let socket = try Socket.make(.pair, in: handle.context, options)
        guard unsafe zmq_socket_monitor(handle.pointer, endpoint, mask) == 0 else {
            throw ZeroMQError("zmq_socket_monitor")
        }
        // From here on the deinit stops what was started.
        let monitor = Monitor(monitored: handle, socket: socket)
        try monitor.socket.connect(endpoint)
        return monitor
    }

    deinit {
        // First the sender, then the receiver: events without a receiver would block the I/O thread.
        if !monitored.isClosed { unsafe zmq_socket_monitor(monitored.pointer, nil, 0) }
    }

    /// The next event, or nil when there is none now. Kinds that are not in ``Event/Kind`` are not asked for.
    public func next() throws(ZeroMQError) -> Event? {
        while true {
            guard let head = try socket.receive() else { return nil }
            // The second frame is the endpoint. It is there: a message is handed out whole.
            if head.hasMore { _ = try socket.receive() }
            if let event = Monitor.event(head) { return event }
        }
    }

    /// Whether events wait, see ``Socket/readiness()``.
    public func isReadable() throws(ZeroMQError) -> Bool { try socket.readiness().contains(.readable) }

    /// zmq_socket_monitor(3): a 16 bit event and a 32 bit value, in the machine's order.
    private static func event(_ head: borrowing Message) -> Event? {
        guard head.count >= 6 else { return nil }
        let (number, value) = unsafe head.withUnsafeBytes { bytes in
            unsafe (
                bytes.loadUnaligned(as: UInt16.self), bytes.loadUnaligned(fromByteOffset: 2, as: Int32.self)
            )
        }
        return kinds.first { $0.number == Int32(number) }.map { Event(kind: $0.kind, value: value) }
    }

    private static let kinds: [(number: Int32, kind: Event.Kind)] = [
        (ZMQ_EVENT_ACCEPTED, .accepted),
        (ZMQ_EVENT_CONNECTED, .connected),
        (ZMQ_EVENT_CONNECT_RETRIED, .connectRetried),
        (ZMQ_EVENT_HANDSHAKE_SUCCEEDED, .handshakeSucceeded),
        (ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL, .handshakeFailed),
        (ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL, .handshakeFailed),
        (ZMQ_EVENT_HANDSHAKE_FAILED_AUTH, .handshakeFailed),
        (ZMQ_EVENT_DISCONNECTED, .disconnected),
        (ZMQ_EVENT_CLOSED, .closed),
        (ZMQ_EVENT_ACCEPT_FAILED, .acceptFailed),
    ]

    private static let mask = kinds.reduce(0) { $0 | $1.number }
}
