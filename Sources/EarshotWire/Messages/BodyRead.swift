/// READ: asks for bytes of a body, in a session with pulled bodies.
public struct BodyRead: Equatable, Sendable {
    public var body: BodyReference
    /// Offset of the first byte.
    public var offset: Int
    /// Maximum number of bytes, 1 to `WireLimits.dataBytes`.
    public var length: Int
    /// Generation of the bytes that the client has; nil for any. Only for the body of an open request.
    public var generation: Generation?

    public init(_ body: BodyReference, offset: Int, length: Int, generation: Generation? = nil) {
        self.body = body
        self.offset = offset
        self.length = length
        self.generation = generation
    }

    init(_ reader: HeadReader) throws(WireError) {
        body = try BodyReference(reader, others: 2)
        offset = try HeadReader.count(try reader.operand(body.operandCount, "offset"), "offset")
        let limit = 1...WireLimits.dataBytes
        length = try HeadReader.integer(try reader.operand(body.operandCount + 1, "length"), in: limit, "length")
        if let value = reader.fields["generation"] { generation = try HeadReader.generation(value) }
    }

    func encoded() -> [UInt8] {
        var writer = HeadWriter("READ")
        body.write(to: &writer)
        writer.operand(offset)
        writer.operand(length)
        writer.field("generation", generation?.description)
        return writer.finished()
    }
}
