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
