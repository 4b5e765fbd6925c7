/// Message of one or two frames.
public struct Message: Equatable, Sendable {
    /// The first frame.
    public var head: [UInt8]
    /// The second frame.
    public var body: [UInt8]?
    /// Whether an empty delimiter frame precedes it. A REQ socket sends one and expects one in the reply.
    public var hasEnvelope = false
    /// Whether the message had more frames, which were discarded.
    public var isLonger = false

    public init(head: [UInt8], body: [UInt8]? = nil, hasEnvelope: Bool = false) {
        self.head = head
        self.body = body
        self.hasEnvelope = hasEnvelope
    }
}
