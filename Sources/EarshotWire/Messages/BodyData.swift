/// DATA: the answer to READ. The second frame contains the bytes, from the offset on; it is absent if there are none, and
/// if the READ is refused.
public struct BodyData: Equatable, Sendable {
    /// Body that the READ names.
    public var body: BodyReference
    /// Offset of the first byte, as in the READ.
    public var offset: Int
    /// Generation of the bytes. Only for the body of an open request.
    public var generation: Generation?
    /// Code of the refusal, of the table in `protocols/8-codes.md`, section "Errors"; nil if the READ is not refused.
    public var error: String?
    /// Sentence about the refusal.
    public var detail: String?

    public init(_ body: BodyReference, offset: Int, generation: Generation? = nil) {
        self.body = body
        self.offset = offset
        self.generation = generation
    }

    init(_ reader: HeadReader) throws(WireError) {
        body = try BodyReference(reader, others: 1)
        offset = try HeadReader.count(try reader.operand(body.operandCount, "offset"), "offset")
        if let value = reader.fields["generation"] { generation = try HeadReader.generation(value) }
        if let value = reader.fields["error"] { error = try HeadReader.identifier(value, "error") }
        detail = reader.fields["detail"]?.string
    }

    func encoded() -> [UInt8] {
        var writer = HeadWriter("DATA")
        body.write(to: &writer)
        writer.operand(offset)
        writer.field("generation", generation?.description)
        writer.field("error", error)
        writer.field("detail", detail)
        return writer.finished()
    }
}
