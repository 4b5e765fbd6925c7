internal import CLibZMQ
internal import Glibc

/// What became of a frame given to a send.
public enum SendOutcome: Equatable, Sendable {
    /// The socket took it. It has not arrived anywhere yet.
    case sent
    /// The peer's queue (or every peer's, on a dealer) is full, or no connection stands. Nothing was
    /// taken.
    case wouldBlock
    /// A mandatory router has no such peer (any more). Nothing was taken.
    case unreachable
}

/// One ZeroMQ socket. It belongs to one thread at a time and is closed when this value goes, without lingering unless
/// its options say so.
public struct Socket: ~Copyable {
    /// The patterns Earshot and its tests speak.
    public enum Kind: Equatable, Sendable {
        case router
        case dealer
        case request
        case pair
    }

    /// What can be done without waiting.
    public struct Readiness: OptionSet, Sendable {
        public let rawValue: Int32
        public init(rawValue: Int32) { self.rawValue = rawValue }

        /// A whole message can be received.
        public static let readable = Readiness(rawValue: ZMQ_POLLIN)
        /// At least one peer has room. On a router that says nothing about the peer in question.
        public static let writable = Readiness(rawValue: ZMQ_POLLOUT)
    }

    let handle: SocketHandle

    /// The descriptor to put into epoll, level-triggered and for reading only. It must be neither read, written nor
    /// closed. Readable means no more than "ask ``readiness()``", and *any* call on the socket may eat the wake: ask
    /// once more before going to sleep.
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
    /// On ipc a second bind takes a living socket's path over without an error: guard the folder with a lock file,
    /// and set the umask first, since the file's mode follows it.
    public func bind(_ endpoint: String) throws(ZeroMQError) {
        guard unsafe zmq_bind(handle.pointer, endpoint) == 0 else { throw ZeroMQError("zmq_bind") }
    }

    /// Connects to `endpoint`, now or as soon as somebody listens there, and again whenever the connection breaks.
    public func connect(_ endpoint: String) throws(ZeroMQError) {
        guard unsafe zmq_connect(handle.pointer, endpoint) == 0 else { throw ZeroMQError("zmq_connect") }
    }

    /// Stops listening at `endpoint`; connections that stand stay.
    public func unbind(_ endpoint: String) throws(ZeroMQError) {
        guard unsafe zmq_unbind(handle.pointer, endpoint) == 0 else { throw ZeroMQError("zmq_unbind") }
    }

    /// Lets what was sent leave for so many milliseconds after the socket is closed, within the life of the context.
    public func linger(milliseconds: Int32) throws(ZeroMQError) { try handle.set(ZMQ_LINGER, milliseconds) }

    /// The endpoint of the last bind or connect, with the port the system chose.
    public func lastEndpoint() throws(ZeroMQError) -> String {
        var bytes = [UInt8](repeating: 0, count: 1024)
        var count = bytes.count
        let code = unsafe bytes.withUnsafeMutableBytes { buffer in
            unsafe zmq_getsockopt(handle.pointer, ZMQ_LAST_ENDPOINT, buffer.baseAddress, &count)
        }
        guard code == 0 else { throw ZeroMQError("zmq_getsockopt") }
        return String(decoding: bytes.prefix(max(0, count - 1)), as: UTF8.self)
    }

    /// What can be done now. Takes in news of peers that came and went, so ask before deciding that one is still
    /// there. About 0.4 µs.
    public func readiness() throws(ZeroMQError) -> Readiness {
        Readiness(rawValue: try handle.option(ZMQ_EVENTS))
    }
}
