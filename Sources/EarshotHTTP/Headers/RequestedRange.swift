internal import EarshotWire

/// Single range of bytes in the field `Range` of a request: RFC 9110, section 14.1.2.
public enum RequestedRange: Hashable, Sendable {
    /// From an offset to another one, both inclusive; to the end without the second one.
    case from(Int64, through: Int64?)
    /// The last bytes, a number of them.
    case last(Int64)

    /// Parses the value of the field; nil for another unit, several ranges, and malformed text.
    public init?(bytes text: some Collection<UInt8>) {
        let text = Array(text)
        guard text.prefix(6).map(\.lowercased).elementsEqual("bytes=".utf8),
            let hyphen = text.firstIndex(of: UInt8(ascii: "-")), hyphen >= 6
        else { return nil }
        let span = text.span
        let last = decimal(span, (hyphen + 1)..<text.count, maximum: .max).map { Int64($0) }
        if hyphen == 6 {
            guard let last else { return nil }
            self = .last(last)
        } else {
            guard let first = decimal(span, 6..<hyphen, maximum: .max).map({ Int64($0) }),
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
            case .last(let count): (max(length - count, 0), length)
            }
        return first < end ? Int(first)..<Int(end) : nil
    }
}
