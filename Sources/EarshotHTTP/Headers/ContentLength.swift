/// Length of a response's body according to `Content-Length`: RFC 9112, section 6.3.
public enum ContentLength: Hashable, Sendable {
    /// No such field, or `Transfer-Encoding` overrides it: RFC 9112, section 6.3, number 3.
    case absent
    /// Length in bytes, 0 or more.
    case bytes(Int)
    /// Not a number, too large, or several different numbers. The end of the response is unknown then: number 5 defines
    /// this as an unrecoverable error.
    case invalid

    /// Parses the fields of a response that can have a body. Repetitions of one number count once.
    public init(_ fields: HeaderFields) {
        guard let lines = fields.values(bytes: "content-length", unless: "transfer-encoding"), !lines.isEmpty else {
            self = .absent
            return
        }
        // Fast path: nearly always there is one line with one number.
        let line = lines[0]
        if lines.count == 1, let length = decimal(line.span, line.span.indices, maximum: .max) {
            self = .bytes(length)
            return
        }
        let numbers = FieldList.members(lines).map { decimal(Array($0).span, 0..<$0.count, maximum: .max) }
        if let first = numbers.first, let length = first, numbers.allSatisfy({ $0 == length }) {
            self = .bytes(length)
        } else {
            self = .invalid
        }
    }
}
