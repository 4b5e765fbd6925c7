internal import CLibZMQ

/// Events of the connections of one ``Socket``. Read all events whenever it is readable: after about 2,000 unread
/// events the whole context blocks.
///
/// It may outlive its socket, and then reports no more events.
public struct Monitor: ~Copyable {
    /// Change of a connection's state.
    public struct Event: Equatable, Sendable {
        /// Kinds of events.
        public enum Kind: Equatable, Sendable {
            /// A listening socket accepted a connection; the handshake may still fail.
            case accepted
            /// A connecting socket is connected; the handshake may still fail.
            case connected
            /// A connection attempt failed; a retry is scheduled.
            case connectRetried
            /// The handshake is complete: messages can be sent.
            case handshakeSucceeded
            /// The connection ended in the handshake, or the handshake took too long. A server with CURVE closes the
            /// connection of a client that has another server's key.
            case handshakeFailed
            /// The peer violated the protocol, or uses another security mechanism.
            case handshakeInvalid
            /// The server's authentication refused this end, with a status code of ZAP.
            case handshakeRefused
            /// An established connection ended.
            case disconnected
            /// The socket's own end was closed: a listener, or a connection attempt.
            case closed
            /// A connection could not be accepted, for example without free descriptors.
            case acceptFailed
        }

        public let kind: Kind
        /// Value reported by libzmq: a descriptor for `accepted`, `connected`, `disconnected` and `closed`,
        /// milliseconds for `connectRetried`, a ZAP status for `handshakeRefused`, an error number for other failures.
        public let value: Int32

        /// Descriptor of the connection. Numbers are reused.
        public var descriptor: Int32? {
            switch kind {
            case .accepted, .connected, .disconnected, .closed: value
            case .connectRetried, .handshakeSucceeded, .handshakeFailed, .handshakeInvalid, .handshakeRefused,
                .acceptFailed:
                nil
            }
        }
    }

    private let monitoredSocket: SocketHandle
    private let socket: Socket

    /// Descriptor for epoll, under the rules of ``Socket/descriptor``.
    public var descriptor: Int32 { socket.descriptor }

    /// Starts monitoring a socket. A socket has at most one monitor.
    public static func make(of monitored: borrowing Socket) throws(ZeroMQError) -> Monitor {
        let handle = monitored.handle
        let number = unsafe UInt(bitPattern: handle.pointer)
        let endpoint = "inproc://monitor-\(String(number, radix: 16))"
        var options = SocketOptions()
        options.receiveHighWaterMark = 0
        let socket = try Socket.make(.pair, in: handle.context, options)
        guard unsafe zmq_socket_monitor(handle.pointer, endpoint, eventMask) == 0 else {
            throw ZeroMQError("zmq_socket_monitor")
        }
        // From here on, `deinit` stops the monitor.
        let monitor = Monitor(monitoredSocket: handle, socket: socket)
        try monitor.socket.connect(endpoint)
        return monitor
    }

    deinit {
        // Stops the sender before the receiver: events without a receiver would block the I/O thread.
        if !monitoredSocket.isClosed { unsafe zmq_socket_monitor(monitoredSocket.pointer, nil, 0) }
    }

    /// Returns the next event, or nil without one. libzmq reports only the kinds in ``Event/Kind``.
    public func next() throws(ZeroMQError) -> Event? {
        while true {
            guard let head = try socket.receive() else { return nil }
            // The second frame is the endpoint. It is available, because libzmq delivers complete messages.
            if head.hasMore { _ = try socket.receive() }
            if let event = Monitor.decodeEvent(head) { return event }
        }
    }

    /// Returns whether events are pending; see ``Socket/readiness()``.
    public func isReadable() throws(ZeroMQError) -> Bool { try socket.readiness().contains(.readable) }

    /// zmq_socket_monitor(3): a 16-bit event and a 32-bit value in native byte order.
    private static func decodeEvent(_ head: borrowing MessageFrame) -> Event? {
        guard head.count >= 6 else { return nil }
        let (number, value) = unsafe head.withUnsafeBytes { bytes in
            unsafe (bytes.loadUnaligned(as: UInt16.self), bytes.loadUnaligned(fromByteOffset: 2, as: Int32.self))
        }
        return eventKinds.first { $0.number == Int32(number) }.map { Event(kind: $0.kind, value: value) }
    }

    private static let eventKinds: [(number: Int32, kind: Event.Kind)] = [
        (ZMQ_EVENT_ACCEPTED, .accepted),
        (ZMQ_EVENT_CONNECTED, .connected),
        (ZMQ_EVENT_CONNECT_RETRIED, .connectRetried),
        (ZMQ_EVENT_HANDSHAKE_SUCCEEDED, .handshakeSucceeded),
        (ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL, .handshakeFailed),
        (ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL, .handshakeInvalid),
        (ZMQ_EVENT_HANDSHAKE_FAILED_AUTH, .handshakeRefused),
        (ZMQ_EVENT_DISCONNECTED, .disconnected),
        (ZMQ_EVENT_CLOSED, .closed),
        (ZMQ_EVENT_ACCEPT_FAILED, .acceptFailed),
    ]

    private static let eventMask = eventKinds.reduce(0) { $0 | $1.number }
}
