/// A message of one or two frames.
public struct Message: Equatable, Sendable {
    /// The first frame.
    public var head: [UInt8]
    /// The second frame.
    public var body: [UInt8]?
    /// Whether an empty frame came first, as a REQ sends it and wants it back.
    public var hasEnvelope = false
    /// Whether there were more frames, which were passed over.
    public var isLonger = false

    public init(head: [UInt8], body: [UInt8]? = nil, hasEnvelope: Bool = false) {
        self.head = head
        self.body = body
        self.hasEnvelope = hasEnvelope
    }
}
