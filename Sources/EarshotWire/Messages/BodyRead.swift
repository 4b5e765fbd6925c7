/// READ: requests bytes of a body, in a session with pulled bodies.
public struct BodyRead: Equatable, Sendable {
    public var body: BodyReference
    /// Offset of the first byte.
    public var offset: Int
    /// Maximum number of bytes, 1 to `WireLimits.dataBytes`.
    public var maximumBytes: Int
    /// Generation of the bytes that the client has; nil for any. Only for the body of an open request.
    public var generation: Generation?

    public init(_ body: BodyReference, offset: Int, maximumBytes: Int, generation: Generation? = nil) {
        self.body = body
        self.offset = offset
        self.maximumBytes = maximumBytes
        self.generation = generation
    }

    init(_ reader: HeadReader) throws(WireError) {
        body = try BodyReference(reader, otherOperandCount: 2)
        offset = try HeadReader.parseCount(try reader.operand(at: body.operandCount, named: "offset"), named: "offset")
        let limit = 1...WireLimits.dataBytes
        maximumBytes = try HeadReader.parseInteger(
            try reader.operand(at: body.operandCount + 1, named: "length"), in: limit, named: "length")
        if let value = reader.fields["generation"] { generation = try HeadReader.parseGeneration(value) }
    }

    func encoded() -> [UInt8] {
        var writer = HeadWriter("READ")
        body.write(to: &writer)
        writer.writeOperand(offset)
        writer.writeOperand(maximumBytes)
        writer.writeField("generation", generation?.description)
        return writer.finished()
    }
}

/// The body that READ requests and DATA carries.
public enum BodyReference: Hashable, Sendable {
    /// Body of the terminal with this sequence number.
    case terminal(UInt64)
    /// Growing body of an open request.
    case request(HandlerID, RequestID)

    /// - Parameter otherOperandCount: Number of operands after the reference.
    init(_ reader: HeadReader, otherOperandCount: Int) throws(WireError) {
        guard reader.operandCount > otherOperandCount + 1 else {
            self = .terminal(try reader.number(at: 0, named: "sequence number"))
            return
        }
        try reader.expectOperands(otherOperandCount + 2)
        self = .request(try reader.handler(at: 0), try reader.request(at: 1))
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
        case .terminal(let sequence): writer.writeOperand(String(sequence))
        case .request(let handler, let request):
            writer.writeOperand(handler.description)
            writer.writeOperand(request.description)
        }
    }
}

/// DATA: the answer to READ. The second frame contains the bytes, from the offset on; it is absent if there are none,
/// and if the READ is refused.
public struct BodyData: Equatable, Sendable {
    /// Body that the READ names.
    public var body: BodyReference
    /// Offset of the first byte, as in the READ.
    public var offset: Int
    /// Generation of the bytes. Only for the body of an open request.
    public var generation: Generation?
    /// Code of the refusal, of the table in `protocols/8-codes.md`, section "Errors"; nil if the READ is not refused.
    public var errorCode: String?
    /// Sentence about the refusal.
    public var detail: String?

    public init(_ body: BodyReference, offset: Int, generation: Generation? = nil) {
        self.body = body
        self.offset = offset
        self.generation = generation
    }

    init(_ reader: HeadReader) throws(WireError) {
        body = try BodyReference(reader, otherOperandCount: 1)
        offset = try HeadReader.parseCount(try reader.operand(at: body.operandCount, named: "offset"), named: "offset")
        if let value = reader.fields["generation"] { generation = try HeadReader.parseGeneration(value) }
        if let value = reader.fields["error"] { errorCode = try HeadReader.parseIdentifier(value, named: "error") }
        detail = reader.fields["detail"]?.string
    }

    func encoded() -> [UInt8] {
        var writer = HeadWriter("DATA")
        body.write(to: &writer)
        writer.writeOperand(offset)
        writer.writeField("generation", generation?.description)
        writer.writeField("error", errorCode)
        writer.writeField("detail", detail)
        return writer.finished()
    }
}
