internal import CLibZMQ
internal import Glibc

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

    func apply(_ options: SocketOptions, to kind: Socket.Kind) throws(ZeroMQError) {
        try set(ZMQ_LINGER, options.lingerMilliseconds)
        try set(ZMQ_SNDHWM, options.sendHighWaterMark)
        try set(ZMQ_RCVHWM, options.receiveHighWaterMark)
        try set(ZMQ_MAXMSGSIZE, options.maximumFrameBytes)
        try set(ZMQ_IMMEDIATE, options.isImmediate ? 1 : 0 as Int32)
        try set(ZMQ_RECONNECT_IVL, options.reconnectMilliseconds.lowerBound)
        try set(ZMQ_RECONNECT_IVL_MAX, options.reconnectMilliseconds.upperBound)
        try set(ZMQ_HANDSHAKE_IVL, options.handshakeMilliseconds)
        try set(ZMQ_BACKLOG, options.backlog)
        try set(ZMQ_HEARTBEAT_IVL, options.heartbeat?.intervalMilliseconds ?? 0)
        if let heartbeat = options.heartbeat {
            try set(ZMQ_HEARTBEAT_TIMEOUT, heartbeat.timeoutMilliseconds)
        }
        switch kind {
        case .router:
            try set(ZMQ_ROUTER_MANDATORY, options.isMandatory ? 1 : 0 as Int32)
            // A peer that chooses a routing ID must not take over another peer's connection.
            try set(ZMQ_ROUTER_HANDOVER, 0 as Int32)
        case .dealer, .request, .pair:
            break
        }
    }

    func option(_ name: Int32) throws(ZeroMQError) -> Int32 {
        var value: Int32 = 0
        var size = MemoryLayout<Int32>.size
        while unsafe zmq_getsockopt(pointer, name, &value, &size) != 0 {
            let error = ZeroMQError("zmq_getsockopt")
            guard error.number == EINTR else { throw error }
        }
        return value
    }

    func set<Value: FixedWidthInteger>(_ name: Int32, _ value: Value) throws(ZeroMQError) {
        var value = value
        guard unsafe zmq_setsockopt(pointer, name, &value, MemoryLayout<Value>.size) == 0 else {
            throw ZeroMQError("zmq_setsockopt")
        }
    }
}
