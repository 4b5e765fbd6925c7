internal import CLibZMQ
internal import Glibc

/// libzmq context: I/O threads and sockets of one part of a program.
///
/// The context is terminated after this value and the last of its sockets are released, in any order.
public struct Context: ~Copyable {
    let handle: ContextHandle

    /// Creates a context.
    ///
    /// - Parameters:
    ///   - ioThreads: Number of I/O threads; one transfers about 1 GB/s.
    ///   - maximumSockets: Maximum number of open sockets in this context. A connection is not a socket.
    /// - Throws: `ZeroMQError`, also if libzmq is not installed.
    public static func make(ioThreads: Int32 = 1, maximumSockets: Int32 = 1023) throws(ZeroMQError) -> Context {
        try ZeroMQLibrary.load()
        guard let context = unsafe zmq_ctx_new() else { throw ZeroMQError("zmq_ctx_new") }
        let handle = unsafe ContextHandle(context)
        // ZMQ_BLOCKY 0: sockets do not linger by default. Each socket sets LINGER itself; this is a safeguard.
        for (option, value) in [(ZMQ_IO_THREADS, ioThreads), (ZMQ_MAX_SOCKETS, maximumSockets), (ZMQ_BLOCKY, 0)] {
            guard unsafe zmq_ctx_set(context, option, value) == 0 else { throw ZeroMQError("zmq_ctx_set") }
        }
        // Otherwise a message below 8 KiB shares the buffer it was read into and keeps 18 KiB alive. A library without
        // this option works as well.
        unsafe zmq_ctx_set(context, ZMQ_ZERO_COPY_RECV, 0)
        return Context(handle: handle)
    }

    /// Creates a socket of this context and sets all relevant options.
    public func socket(_ kind: Socket.Kind, _ options: SocketOptions = SocketOptions()) throws(ZeroMQError) -> Socket {
        try Socket.make(kind, in: handle, options)
    }
}

/// Keeps a context alive while one of its sockets exists. `zmq_ctx_term` waits for the last socket, and on a single
/// thread would block forever.
@safe final class ContextHandle {
    let pointer: UnsafeMutableRawPointer

    init(_ pointer: UnsafeMutableRawPointer) {
        unsafe self.pointer = pointer
    }

    deinit {
        while unsafe zmq_ctx_term(pointer) != 0 && zmq_errno() == EINTR {}
    }
}

/// The shared library libzmq, loaded on first use. A program that makes neither a context nor a key never loads it.
enum ZeroMQLibrary {
    /// Message of the dynamic linker if the library cannot be used; nil once it is loaded. The initializer of a static
    /// runs once, however many threads call.
    private static let loadFailure: String? = unsafe zmqshim_load().map { unsafe String(cString: $0) }

    /// Loads the library, unless it is loaded.
    ///
    /// - Throws: `ZeroMQError` if it is not installed, or lacks a function.
    static func load() throws(ZeroMQError) {
        if let loadFailure { throw ZeroMQError(notLoaded: loadFailure) }
    }
}

/// Failed libzmq call, with its error number.
///
/// Errors of normal operation (`EAGAIN`, `EHOSTUNREACH`, `EINTR`) are never thrown: see ``Socket/receive()`` and
/// ``SendOutcome``.
public struct ZeroMQError: Error, Equatable, CustomStringConvertible {
    /// Name of the `zmq_…` function that failed.
    public let functionName: String
    /// Its `errno` value in libzmq's numbering. libzmq's own codes start at 156384712.
    public let errorNumber: Int32

    /// Captures the error of the preceding call. No other call may come between.
    init(_ function: StaticString) {
        errorNumber = zmq_errno()
        self.functionName = function.description
        loadFailure = nil
    }

    /// Message of the dynamic linker if libzmq itself is missing; nil otherwise.
    public let loadFailure: String?

    init(notLoaded message: String) {
        functionName = "dlopen"
        errorNumber = ENOENT
        loadFailure = message
    }

    public var description: String {
        if let loadFailure { return "cannot load libzmq (\(loadFailure)); install the package libzmq5" }
        return unsafe "\(functionName): \(String(cString: zmq_strerror(errorNumber)))"
    }
}
