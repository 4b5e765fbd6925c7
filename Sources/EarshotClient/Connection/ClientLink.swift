internal import ZMTP

/// Connection to a bus of this machine or of a network.
///
/// An enumeration costs a local connection a comparison for each call, and no dynamic dispatch.
enum ClientLink {
    case local(MessageStream)
    case remote(CurveLink)

    /// Whether messages can be sent.
    var isOpen: Bool {
        switch self {
        case .local(let stream): stream.isOpen
        case .remote(let link): link.isOpen
        }
    }

    /// Whether all messages were handed to the kernel. libzmq does not report this.
    var isIdle: Bool {
        switch self {
        case .local(let stream): stream.isIdle
        case .remote: false
        }
    }

    /// Whether the connection has ended and all messages are read.
    var isEnded: Bool {
        switch self {
        case .local(let stream): stream.isEnded
        case .remote(let link): link.ending != nil && !link.needsPass(hasUnsent: false)
        }
    }

    /// Whether the peer has closed the connection. Its last messages may still be unread.
    var isHungUp: Bool {
        switch self {
        case .local(let stream): stream.isHungUp
        case .remote(let link): link.ending != nil
        }
    }

    /// Whether work is pending that no descriptor reports.
    ///
    /// - Parameter hasUnsent: whether the owner has messages that `send` refused.
    func needsPass(hasUnsent: Bool) -> Bool {
        switch self {
        case .local: false
        case .remote(let link): link.needsPass(hasUnsent: hasUnsent)
        }
    }

    /// Reason why a connection over a network ended.
    var ending: LinkEnding? {
        switch self {
        case .local: nil
        case .remote(let link): link.ending
        }
    }

    func setReading(_ isReading: Bool) {
        switch self {
        case .local(let stream): stream.isReading = isReading
        case .remote(let link): link.isReading = isReading
        }
    }

    /// Returns the next message; nil if none is complete.
    func nextMessage() -> Message? {
        switch self {
        case .local(let stream): stream.next()
        case .remote(let link): link.nextMessage()
        }
    }

    /// Queues a message. Returns false if the queue is full or the connection is not open.
    func send(_ message: Message) -> Bool {
        switch self {
        case .local(let stream): stream.send(message)
        case .remote(let link): link.send(message)
        }
    }

    func flush() {
        switch self {
        case .local(let stream): stream.flush()
        case .remote: break
        }
    }

    /// Sends queued messages for at most `milliseconds`.
    func linger(milliseconds: Int32) {
        switch self {
        case .local(let stream): stream.linger(milliseconds: milliseconds)
        case .remote(let link): link.linger(milliseconds: milliseconds)
        }
    }
}
