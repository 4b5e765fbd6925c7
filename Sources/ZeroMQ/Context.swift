internal import CLibZMQ
internal import Glibc

/// The I/O threads and the sockets of one part of a program.
///
/// The context is terminated when this value and the last of its sockets are gone, in whatever order that happens.
public struct Context: ~Copyable {
    let handle: ContextHandle

    /// Makes a context.
    ///
    /// - Parameters:
    ///   - ioThreads: threads that move bytes; one is good for about 1 GB/s.
    ///   - maximumSockets: sockets that may be open at once in this context (a connection is not a socket).
    public static func make(ioThreads: Int32 = 1, maximumSockets: Int32 = 1023) throws(ZeroMQError) -> Context {
        guard let context = unsafe zmq_ctx_new() else { throw ZeroMQError("zmq_ctx_new") }
        let handle = unsafe ContextHandle(context)
        // Blocky: whether sockets linger for ever by default. Ours set LINGER themselves, this is the backstop.
        for (option, value) in [(ZMQ_IO_THREADS, ioThreads), (ZMQ_MAX_SOCKETS, maximumSockets), (ZMQ_BLOCKY, 0)] {
            guard unsafe zmq_ctx_set(context, option, value) == 0 else { throw ZeroMQError("zmq_ctx_set") }
        }
        // Else a message below 8 KiB is a part of the buffer it was read into, and whoever keeps it keeps 18 KiB. A
        // library that does not know this works all the same.
        unsafe zmq_ctx_set(context, ZMQ_ZERO_COPY_RECV, 0)
        return Context(handle: handle)
    }

    /// Makes a socket of this context with every option set that matters.
    public func socket(_ kind: Socket.Kind, _ options: SocketOptions = SocketOptions()) throws(ZeroMQError) -> Socket {
        try Socket.make(kind, in: handle, options)
    }
}

/// Keeps a context alive as long as one of its sockets is: `zmq_ctx_term` waits for the last socket, and on one
/// thread it would wait for ever.
@safe final class ContextHandle {
    let pointer: UnsafeMutableRawPointer

    init(_ pointer: UnsafeMutableRawPointer) {
        unsafe self.pointer = pointer
    }

    deinit {
        while unsafe zmq_ctx_term(pointer) != 0 && zmq_errno() == EINTR {}
    }
}
