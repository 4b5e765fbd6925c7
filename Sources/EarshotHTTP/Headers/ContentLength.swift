/// What an answer's `Content-Length` says of the length of its body: RFC 9112, section 6.3.
public enum ContentLength: Hashable, Sendable {
    /// There is none, or `Transfer-Encoding` overrides it: RFC 9112, section 6.3, number 3.
    case absent
    /// So many bytes follow, 0 or more.
    case bytes(Int)
    /// It is no number, one beyond what can be counted, or several that differ. Then nobody knows where the answer
    /// ends: number 5 makes it an error that cannot be recovered from.
    case invalid

    /// Reads the fields of an answer that can have a body. One number that stands there several times is one number.
    public init(_ fields: HeaderFields) {
        guard let lines = fields.values(bytes: "content-length", unless: "transfer-encoding"), !lines.isEmpty else {
            self = .absent
            return
        }
        // Nearly always there is one line, and one number in it.
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
