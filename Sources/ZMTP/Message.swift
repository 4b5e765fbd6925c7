/// Message of one or two frames.
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
