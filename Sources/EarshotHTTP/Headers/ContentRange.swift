internal import EarshotWire

/// `Content-Range` in bytes, which `ResumeRule` compares with a kept part: RFC 9110, section 14.4.
public struct ContentRange: Hashable, Sendable {
    /// Offsets of the body within the representation; never empty. Nil for an unsatisfied range (`bytes */1234`).
    public let bytes: Range<Int64>?

    /// Length of the whole representation in bytes; nil if unknown to the server (`bytes 0-9/*`).
    public let totalBytes: Int64?

    /// Parses the value of the field; nil for other text, another unit, and a range that exceeds the total.
    public init?(_ text: String) {
        self.init(bytes: Array(text.utf8)[...])
    }

    /// Implements `init(_:)` for bytes.
    init?(bytes text: ArraySlice<UInt8>) {
        let unit = text.prefix(while: \.isToken)
        let rest = text[unit.endIndex...]
        guard unit.map(\.lowercased).elementsEqual("bytes".utf8), rest.first == UInt8(ascii: " "),
            let slash = rest.firstIndex(of: UInt8(ascii: "/"))
        else { return nil }
        let range = rest[(rest.startIndex + 1)..<slash]
        let total = rest[(slash + 1)...]
        let isUnknown = total.elementsEqual("*".utf8)
        totalBytes = Self.number(total)
        guard isUnknown || totalBytes != nil else { return nil }
        if range.elementsEqual("*".utf8) {
            guard !isUnknown else { return nil }
            bytes = nil
            return
        }
        guard let hyphen = range.firstIndex(of: UInt8(ascii: "-")), let first = Self.number(range[..<hyphen]),
            let last = Self.number(range[(hyphen + 1)...]), first <= last, last < totalBytes ?? .max
        else { return nil }
        bytes = first..<last + 1
    }

    private static func number(_ digits: ArraySlice<UInt8>) -> Int64? {
        let span = digits.span
        return decimal(span, span.indices, maximum: .max).map { Int64($0) }
    }
}
