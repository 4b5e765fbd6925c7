internal import EarshotLoop

/// Message of one or two frames, as `MessageStream` receives and sends it.
public struct Message: Equatable, Sendable {
    /// The first frame.
    public var head: [UInt8]
    /// The second frame.
    public var body: [UInt8]?
    /// Whether the message had more frames, which were discarded.
    public var isLonger = false

    public init(head: [UInt8], body: [UInt8]? = nil) {
        self.head = head
        self.body = body
    }
}

/// Part of an open file that is sent as the second frame of a message. The kernel sends it without a copy in this
/// process, so the file must not change.
public final class FilePart {
    /// Length in bytes.
    public let count: Int
    private let descriptor: Int32
    private let offset: Int

    /// Takes ownership of `descriptor`.
    public init(_ descriptor: Int32, offset: Int, count: Int) {
        self.descriptor = descriptor
        self.offset = offset
        self.count = count
    }

    deinit { UnixSocket.close(descriptor) }

    /// Sends the bytes after the first `sent` ones, as far as the kernel accepts them.
    func send(to socket: Int32, after sent: Int) -> UnixSocket.Transfer {
        UnixSocket.send(socket, file: descriptor, from: offset + sent, count: count - sent)
    }
}
