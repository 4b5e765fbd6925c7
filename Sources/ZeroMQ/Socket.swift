internal import CLibZMQ
internal import Glibc

/// ZeroMQ socket. It is used by one thread at a time, and closed with this value. It lingers only if its options say
/// so.
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

    static func make(
        _ kind: Kind, in context: ContextHandle, _ options: SocketOptions
    ) throws(ZeroMQError) -> Socket {
        let type =
            switch kind {
            case .router: ZMQ_ROUTER
            case .dealer: ZMQ_DEALER
            case .request: ZMQ_REQ
            case .pair: ZMQ_PAIR
            }
        guard let pointer = unsafe zmq_socket(context.pointer, type) else { throw ZeroMQError("zmq_socket") }
        let handle = unsafe SocketHandle(pointer, in: context)
        try handle.apply(options, to: kind)
        return Socket(handle: handle, descriptor: try handle.option(ZMQ_FD))
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
    public func linger(milliseconds: Int32) throws(ZeroMQError) { try handle.set(ZMQ_LINGER, milliseconds) }

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
        Readiness(rawValue: try handle.option(ZMQ_EVENTS))
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
        guard try unsafe receive(message.pointer) else { return nil }
        return message
    }

    /// Receives one complete message into `parts`, replacing its contents; false if none is available. Does not block.
    ///
    /// Frames beyond the capacity of `parts` are discarded and counted in ``Multipart/surplusFrames``. libzmq delivers a
    /// message only after all of its frames arrived, so they were all in memory: only a limit of this process bounds
    /// them.
    public func receive(into parts: inout Multipart) throws(ZeroMQError) -> Bool {
        parts.removeAll()
        var more = true
        while more {
            let slot = unsafe parts.nextSlot
            guard try unsafe receive(slot) else { return parts.count > 0 }
            more = unsafe zmq_msg_more(slot) != 0
            parts.slotWasFilled()
        }
        return true
    }

    /// Sends `message` as a frame without blocking. It is empty after `.sent`, and unchanged otherwise.
    ///
    /// libzmq accepts or refuses a message at its first frame: after `.sent`, send the remaining frames in any case. A
    /// send processes changes of its peers only about once per millisecond, so its result may be outdated: call
    /// ``readiness()`` first where that matters.
    public func send(_ message: inout MessageFrame, more: Bool = false) throws(ZeroMQError) -> SendOutcome {
        try outcome { unsafe zmq_msg_send(message.pointer, handle.pointer, flags(more)) }
    }

    /// Sends a copy of `bytes` as a frame without blocking. See ``send(_:more:)-(MessageFrame,_)``.
    public func send(_ bytes: [UInt8], more: Bool = false) throws(ZeroMQError) -> SendOutcome {
        try outcome {
            unsafe bytes.withUnsafeBytes { buffer in
                unsafe zmq_send(handle.pointer, buffer.baseAddress, buffer.count, flags(more))
            }
        }
    }

    private func receive(_ target: UnsafeMutablePointer<zmq_msg_t>) throws(ZeroMQError) -> Bool {
        while true {
            if unsafe zmq_msg_recv(target, handle.pointer, ZMQ_DONTWAIT) >= 0 { return true }
            let error = ZeroMQError("zmq_msg_recv")
            switch error.number {
            case EAGAIN: return false
            case EINTR: continue
            default: throw error
            }
        }
    }

    private func outcome(_ call: () -> Int32) throws(ZeroMQError) -> SendOutcome {
        while true {
            if call() >= 0 { return .sent }
            let error = ZeroMQError("zmq_send")
            switch error.number {
            case EAGAIN: return .wouldBlock
            case EHOSTUNREACH: return .unreachable
            case EINTR: continue
            default: throw error
            }
        }
    }

    private func flags(_ more: Bool) -> Int32 { more ? ZMQ_DONTWAIT | ZMQ_SNDMORE : ZMQ_DONTWAIT }
}
