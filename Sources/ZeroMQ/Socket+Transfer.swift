internal import CLibZMQ
internal import Glibc

extension Socket {
    /// Receives one frame; nil if no message is available. Does not block.
    public func receive() throws(ZeroMQError) -> MessageFrame? {
        let message = MessageFrame()
        guard try unsafe receive(message.pointer) else { return nil }
        return message
    }

    /// Receives one complete message into `parts`, replacing its contents; false if none is available. Does not block.
    ///
    /// Frames beyond the capacity of `parts` are discarded and counted in ``Multipart/surplus``. libzmq delivers a
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
