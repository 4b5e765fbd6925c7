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

/// The body that READ asks for and DATA carries.
public enum BodyReference: Hashable, Sendable {
    /// Body of the terminal with this sequence number.
    case terminal(UInt64)
    /// Growing body of an open request.
    case request(HandlerID, RequestID)

    /// - Parameter others: number of operands after the reference.
    init(_ reader: HeadReader, others: Int) throws(WireError) {
        guard reader.operandCount > others + 1 else {
            self = .terminal(try reader.number(0, "sequence number"))
            return
        }
        try reader.expectOperands(others + 2)
        self = .request(try reader.handler(0), try reader.request(1))
    }

    /// Number of operands.
    var operandCount: Int {
        switch self {
        case .terminal: 1
        case .request: 2
        }
    }

    func write(to writer: inout HeadWriter) {
        switch self {
        case .terminal(let sequence): writer.operand(String(sequence))
        case .request(let handler, let request):
            writer.operand(handler.description)
            writer.operand(request.description)
        }
    }
}

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
