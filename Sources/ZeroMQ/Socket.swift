internal import CLibZMQ
internal import Glibc

/// ZeroMQ socket. It is used by one thread at a time, and closed with this value. It lingers only if its options
/// permit it.
public struct Socket: ~Copyable {
    /// Socket types that Earshot and its tests use.
    public enum Kind: Equatable, Sendable {
        case router
        case dealer
        case request
        case pair
    }

    /// Operations that are possible without blocking.
    public struct Readiness: OptionSet, Sendable {
        public let rawValue: Int32
        public init(rawValue: Int32) { self.rawValue = rawValue }

        /// A complete message can be received.
        public static let readable = Readiness(rawValue: ZMQ_POLLIN)
        /// At least one peer has room in its queue. For a router this does not describe any particular peer.
        public static let writable = Readiness(rawValue: ZMQ_POLLOUT)
    }

    let handle: SocketHandle

    /// Descriptor for epoll, level-triggered and for reading only. It must not be read, written or closed. Readable
    /// only means that ``readiness()`` may have changed, and *any* call on the socket may clear it: call
    /// ``readiness()`` once more before sleeping.
    public let descriptor: Int32

    static func make(_ kind: Kind, in context: ContextHandle, _ options: SocketOptions) throws(ZeroMQError) -> Socket {
        let type =
            switch kind {
            case .router: ZMQ_ROUTER
            case .dealer: ZMQ_DEALER
            case .request: ZMQ_REQ
            case .pair: ZMQ_PAIR
            }
        guard let pointer = unsafe zmq_socket(context.pointer, type) else { throw ZeroMQError("zmq_socket") }
        let handle = unsafe SocketHandle(pointer, in: context)
        try handle.applyOptions(options, to: kind)
        return Socket(handle: handle, descriptor: try handle.integerOption(ZMQ_FD))
    }

    deinit { handle.close() }

    /// Listens at `endpoint`.
    ///
    /// On ipc a second bind replaces a live socket's path without an error: protect the folder with a lock file. Set
    /// the umask first, since it determines the file's mode.
    public func bind(_ endpoint: String) throws(ZeroMQError) {
        guard unsafe zmq_bind(handle.pointer, endpoint) == 0 else { throw ZeroMQError("zmq_bind") }
    }

    /// Connects to `endpoint`, now or as soon as a peer listens there. Reconnects whenever the connection breaks.
    public func connect(_ endpoint: String) throws(ZeroMQError) {
        guard unsafe zmq_connect(handle.pointer, endpoint) == 0 else { throw ZeroMQError("zmq_connect") }
    }

    /// Sets how long queued messages may be sent after the socket is closed, in milliseconds, while the context exists.
    public func setLinger(milliseconds: Int32) throws(ZeroMQError) { try handle.setOption(ZMQ_LINGER, milliseconds) }

    /// Returns the endpoint of the last bind or connect, with the port chosen by the system.
    public func lastEndpoint() throws(ZeroMQError) -> String {
        var bytes = [UInt8](repeating: 0, count: 1024)
        var count = bytes.count
        let code = unsafe bytes.withUnsafeMutableBytes { buffer in
            unsafe zmq_getsockopt(handle.pointer, ZMQ_LAST_ENDPOINT, buffer.baseAddress, &count)
        }
        guard code == 0 else { throw ZeroMQError("zmq_getsockopt") }
        return String(decoding: bytes.prefix(max(0, count - 1)), as: UTF8.self)
    }

    /// Returns the operations that are possible now. Processes changes of peers, so call it before relying on a peer's
    /// presence. Takes about 0.4 µs.
    public func readiness() throws(ZeroMQError) -> Readiness {
        Readiness(rawValue: try handle.integerOption(ZMQ_EVENTS))
    }
}

/// Result of sending a frame.
public enum SendOutcome: Equatable, Sendable {
    /// The socket accepted it. It may not have reached a peer yet.
    case sent
    /// The queue of the peer (of every peer, for a dealer) is full, or there is no connection. Nothing was accepted.
    case wouldBlock
    /// A mandatory router has no such peer, or no longer. Nothing was accepted.
    case unreachable
}

extension Socket {
    /// Receives one frame; nil if no message is available. Does not block.
    public func receive() throws(ZeroMQError) -> MessageFrame? {
        let message = MessageFrame()
        guard try unsafe receiveFrame(into: message.pointer) else { return nil }
        return message
    }

    /// Receives one complete message into `parts`, replacing its contents; false if none is available. Does not block.
    ///
    /// Frames beyond the capacity of `parts` are discarded and counted in ``Multipart/surplusFrames``. libzmq delivers
    /// a message only after all of its frames arrived, so they were all in memory: only a limit of this process bounds
    /// them.
    public func receive(into parts: inout Multipart) throws(ZeroMQError) -> Bool {
        parts.removeAll()
        var more = true
        while more {
            let slot = unsafe parts.nextFrameStorage
            guard try unsafe receiveFrame(into: slot) else { return parts.count > 0 }
            more = unsafe zmq_msg_more(slot) != 0
            parts.nextFrameWasFilled()
        }
        return true
    }

    /// Sends `message` as a frame without blocking. It is empty after `.sent`, and unchanged otherwise.
    ///
    /// libzmq accepts or refuses a message at its first frame: after `.sent`, send the remaining frames in any case. A
    /// send processes changes of its peers only about once per millisecond, so its result may be outdated: call
    /// ``readiness()`` first where that matters.
    public func send(_ message: inout MessageFrame, more: Bool = false) throws(ZeroMQError) -> SendOutcome {
        try sendOutcome { unsafe zmq_msg_send(message.pointer, handle.pointer, sendFlags(more)) }
    }

    /// Sends a copy of `bytes` as a frame without blocking. See ``send(_:more:)-(MessageFrame,_)``.
    public func send(_ bytes: [UInt8], more: Bool = false) throws(ZeroMQError) -> SendOutcome {
        try sendOutcome {
            unsafe bytes.withUnsafeBytes { buffer in
                unsafe zmq_send(handle.pointer, buffer.baseAddress, buffer.count, sendFlags(more))
            }
        }
    }

    private func receiveFrame(into target: UnsafeMutablePointer<zmq_msg_t>) throws(ZeroMQError) -> Bool {
        while true {
            if unsafe zmq_msg_recv(target, handle.pointer, ZMQ_DONTWAIT) >= 0 { return true }
            let error = ZeroMQError("zmq_msg_recv")
            switch error.errorNumber {
            case EAGAIN: return false
            case EINTR: continue
            default: throw error
            }
        }
    }

    private func sendOutcome(of call: () -> Int32) throws(ZeroMQError) -> SendOutcome {
        while true {
            if call() >= 0 { return .sent }
            let error = ZeroMQError("zmq_send")
            switch error.errorNumber {
            case EAGAIN: return .wouldBlock
            case EHOSTUNREACH: return .unreachable
            case EINTR: continue
            default: throw error
            }
        }
    }

    private func sendFlags(_ more: Bool) -> Int32 { more ? ZMQ_DONTWAIT | ZMQ_SNDMORE : ZMQ_DONTWAIT }
}

/// Options set before a socket is bound or connected, instead of libzmq's defaults.
public struct SocketOptions: Equatable, Sendable {
    /// ZMTP heartbeats, for connections whose loss the kernel does not report.
    public struct Heartbeat: Equatable, Sendable {
        /// Milliseconds between two pings.
        public var intervalMilliseconds: Int32
        /// Milliseconds without a reply to a PING after which the connection is dropped.
        public var timeoutMilliseconds: Int32

        public init(intervalMilliseconds: Int32, timeoutMilliseconds: Int32) {
            self.intervalMilliseconds = intervalMilliseconds
            self.timeoutMilliseconds = timeoutMilliseconds
        }
    }

    /// Maximum number of messages queued for one peer; 0 for no limit.
    public var sendHighWaterMark: Int32 = 1000
    /// Maximum number of messages queued from one peer before reading stops; 0 for no limit.
    public var receiveHighWaterMark: Int32 = 1000
    /// Maximum length of a received frame in bytes. A larger one closes its connection, and messages queued behind it
    /// are lost. It limits a frame, not a message.
    public var maximumFrameBytes: Int64 = 64 << 20
    /// Whether messages are queued only for established connections. Without one, a send returns `.wouldBlock`.
    public var isImmediate = true
    /// First and maximum reconnection interval in milliseconds, with exponential back-off. Peers that start together
    /// may need a millisecond or two to bind.
    public var reconnectIntervalMilliseconds: ClosedRange<Int32> = 1...100
    /// Heartbeats; nil on ipc, where the kernel reports a peer's end and a stopped peer is not dead.
    public var heartbeat: Heartbeat?
    /// Timeout of the ZMTP handshake in milliseconds.
    public var handshakeTimeoutMilliseconds: Int32 = 10_000
    /// Milliseconds for sending queued messages after a close, while the context exists; 0 drops them.
    public var lingerMilliseconds: Int32 = 0
    /// Maximum number of connections waiting for accept.
    public var backlog: Int32 = 1024
    /// Whether a router reports missing or full peers instead of dropping messages to them. Routers only.
    public var isRouterMandatory = true

    public init() {}
}

/// C socket, shared by the ``Socket`` that owns it and a ``Monitor`` that must be stopped before the socket is closed.
@safe final class SocketHandle {
    let pointer: UnsafeMutableRawPointer
    let context: ContextHandle
    private(set) var isClosed = false

    init(_ pointer: UnsafeMutableRawPointer, in context: ContextHandle) {
        unsafe self.pointer = pointer
        self.context = context
    }

    deinit { close() }

    /// Closes the socket once. Connections end and queued messages are dropped after the LINGER period.
    func close() {
        guard !isClosed else { return }
        isClosed = true
        // An unread monitor would block the I/O thread.
        unsafe zmq_socket_monitor(pointer, nil, 0)
        unsafe zmq_close(pointer)
    }

    func applyOptions(_ options: SocketOptions, to kind: Socket.Kind) throws(ZeroMQError) {
        try setOption(ZMQ_LINGER, options.lingerMilliseconds)
        try setOption(ZMQ_SNDHWM, options.sendHighWaterMark)
        try setOption(ZMQ_RCVHWM, options.receiveHighWaterMark)
        try setOption(ZMQ_MAXMSGSIZE, options.maximumFrameBytes)
        try setOption(ZMQ_IMMEDIATE, options.isImmediate ? 1 : 0 as Int32)
        try setOption(ZMQ_RECONNECT_IVL, options.reconnectIntervalMilliseconds.lowerBound)
        try setOption(ZMQ_RECONNECT_IVL_MAX, options.reconnectIntervalMilliseconds.upperBound)
        try setOption(ZMQ_HANDSHAKE_IVL, options.handshakeTimeoutMilliseconds)
        try setOption(ZMQ_BACKLOG, options.backlog)
        try setOption(ZMQ_HEARTBEAT_IVL, options.heartbeat?.intervalMilliseconds ?? 0)
        if let heartbeat = options.heartbeat {
            try setOption(ZMQ_HEARTBEAT_TIMEOUT, heartbeat.timeoutMilliseconds)
        }
        switch kind {
        case .router:
            try setOption(ZMQ_ROUTER_MANDATORY, options.isRouterMandatory ? 1 : 0 as Int32)
            // A peer that chooses a routing ID must not take over another peer's connection.
            try setOption(ZMQ_ROUTER_HANDOVER, 0 as Int32)
        case .dealer, .request, .pair:
            break
        }
    }

    func integerOption(_ name: Int32) throws(ZeroMQError) -> Int32 {
        var value: Int32 = 0
        var size = MemoryLayout<Int32>.size
        while unsafe zmq_getsockopt(pointer, name, &value, &size) != 0 {
            let error = ZeroMQError("zmq_getsockopt")
            guard error.errorNumber == EINTR else { throw error }
        }
        return value
    }

    func setOption<Value: FixedWidthInteger>(_ name: Int32, _ value: Value) throws(ZeroMQError) {
        var value = value
        guard unsafe zmq_setsockopt(pointer, name, &value, MemoryLayout<Value>.size) == 0 else {
            throw ZeroMQError("zmq_setsockopt")
        }
    }
}
