/// DATA: the answer to READ. The second frame contains the bytes, from the offset on; it is absent if there are none.
public struct BodyData: Equatable, Sendable {
    /// Body that the READ names.
    public var body: BodyReference
    /// Offset of the first byte, as in the READ.
    public var offset: Int
    /// Generation of the bytes. Only for the body of an open request.
    public var generation: Generation?

    public init(_ body: BodyReference, offset: Int, generation: Generation? = nil) {
        self.body = body
        self.offset = offset
        self.generation = generation
    }

    init(_ reader: HeadReader) throws(WireError) {
        body = try BodyReference(reader, others: 1)
        offset = try HeadReader.count(try reader.operand(body.operandCount, "offset"), "offset")
        if let value = reader.fields["generation"] { generation = try HeadReader.generation(value) }
    }

    func encoded() -> [UInt8] {
        var writer = HeadWriter("DATA")
        body.write(to: &writer)
        writer.operand(offset)
        writer.field("generation", generation?.description)
        return writer.finished()
    }
}
