internal import EarshotWire

/// `Content-Range` in bytes, which `ResumeRule` compares with a kept part: RFC 9110, section 14.4.
public struct ContentRange: Hashable, Sendable {
    /// Offsets of the body within the representation; never empty. Nil for an unsatisfied range (`bytes */1234`).
    public let byteRange: Range<Int64>?

    /// Length of the whole representation in bytes; nil if unknown to the server (`bytes 0-9/*`).
    public let totalBytes: Int64?

    /// Parses the value of the field; nil for other text, another unit, and a range that exceeds the total.
    public init?(_ text: String) {
        self.init(fieldValue: Array(text.utf8)[...])
    }

    /// Implements `init(_:)` for bytes.
    init?(fieldValue text: ArraySlice<UInt8>) {
        let unit = text.prefix(while: \.isTokenByte)
        let rest = text[unit.endIndex...]
        guard unit.map(\.lowercased).elementsEqual("bytes".utf8), rest.first == UInt8(ascii: " "),
            let slash = rest.firstIndex(of: UInt8(ascii: "/"))
        else { return nil }
        let range = rest[(rest.startIndex + 1)..<slash]
        let total = rest[(slash + 1)...]
        let isUnknown = total.elementsEqual("*".utf8)
        totalBytes = Self.parseNumber(total)
        guard isUnknown || totalBytes != nil else { return nil }
        if range.elementsEqual("*".utf8) {
            guard !isUnknown else { return nil }
            byteRange = nil
            return
        }
        guard let hyphen = range.firstIndex(of: UInt8(ascii: "-")), let first = Self.parseNumber(range[..<hyphen]),
            let last = Self.parseNumber(range[(hyphen + 1)...]), first <= last, last < totalBytes ?? .max
        else { return nil }
        byteRange = first..<last + 1
    }

    private static func parseNumber(_ digits: ArraySlice<UInt8>) -> Int64? {
        let span = digits.span
        return parseDecimal(span, in: span.indices, maximum: .max).map { Int64($0) }
    }
}

/// Single range of bytes in the field `Range` of a request: RFC 9110, section 14.1.2.
public enum RequestedRange: Hashable, Sendable {
    /// From an offset to another one, both inclusive; to the end without the second one.
    case from(Int64, through: Int64?)
    /// The last bytes, a number of them.
    case lastBytes(Int64)

    /// Parses the value of the field; nil for another unit, several ranges, and malformed text.
    public init?(fieldValue text: some Collection<UInt8>) {
        let text = Array(text)
        guard text.prefix(6).map(\.lowercased).elementsEqual("bytes=".utf8),
            let hyphen = text.firstIndex(of: UInt8(ascii: "-")), hyphen >= 6
        else { return nil }
        let span = text.span
        let last = parseDecimal(span, in: (hyphen + 1)..<text.count, maximum: .max).map { Int64($0) }
        if hyphen == 6 {
            guard let last else { return nil }
            self = .lastBytes(last)
        } else {
            guard let first = parseDecimal(span, in: 6..<hyphen, maximum: .max).map({ Int64($0) }),
                last != nil || hyphen == text.count - 1, first <= last ?? .max
            else { return nil }
            self = .from(first, through: last)
        }
    }

    /// Returns the offsets in a representation of this length; nil if the range is not satisfiable.
    public func offsets(in length: Int) -> Range<Int>? {
        let length = Int64(length)
        let (first, end): (Int64, Int64) =
            switch self {
            case .from(let first, let last): (first, min(last ?? .max, length - 1) + 1)
            case .lastBytes(let count): (max(length - count, 0), length)
            }
        return first < end ? Int(first)..<Int(end) : nil
    }
}

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
        guard let lines = fields.valueBytes(named: "content-length", unlessPresent: "transfer-encoding"), !lines.isEmpty
        else {
            self = .absent
            return
        }
        // Fast path: nearly always there is one line with one number.
        let line = lines[0]
        if lines.count == 1, let length = parseDecimal(line.span, in: line.span.indices, maximum: .max) {
            self = .bytes(length)
            return
        }
        let numbers = FieldList.members(lines).map { parseDecimal(Array($0).span, in: 0..<$0.count, maximum: .max) }
        if let first = numbers.first, let length = first, numbers.allSatisfy({ $0 == length }) {
            self = .bytes(length)
        } else {
            self = .invalid
        }
    }
}
