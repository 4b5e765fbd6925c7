internal import CLibZMQ
internal import Glibc

extension Socket {
    /// Receives one frame, or nil when no message waits. Never waits.
    public func receive() throws(ZeroMQError) -> Message? {
        let message = Message()
        guard try unsafe receive(message.pointer) else { return nil }
        return message
    }

    /// Receives one whole message in place of the one `parts` held; false when none waits. Never waits.
    ///
    /// Frames beyond the capacity of `parts` are drained and counted in ``Multipart/surplus``. libzmq hands a message
    /// out only when all of it has come, so its parts were in memory before: a limit on this process is the last bound.
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

    /// Sends `message` as a frame, without waiting. It is empty after `.sent`, and as it was after anything else.
    ///
    /// A message is taken or refused at its first frame: once that was `.sent`, send the others whatever comes. A
    /// send takes in news of its peers about once a millisecond only, so an answer may be as old: ask
    /// ``readiness()`` before where that matters.
    public func send(_ message: inout Message, more: Bool = false) throws(ZeroMQError) -> SendOutcome {
        try outcome { unsafe zmq_msg_send(message.pointer, handle.pointer, flags(more)) }
    }

    /// Sends a copy of `bytes` as a frame, without waiting. See ``send(_:more:)-(Message,_)``.
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
