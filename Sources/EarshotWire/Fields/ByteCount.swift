/// Numbers of bytes in text form: `65536`, `64K`, `10M`, `2G` or `1T`. The suffixes are powers of 1024.
public enum ByteCount {
    /// The suffixes, as errors and help texts name them.
    public static let suffixList = "K, M, G or T"

    /// Parses a number of bytes with an optional suffix in any case.
    ///
    /// - Returns: nil for other text, and for a number that exceeds `Int.max`.
    public static func parse(_ text: String) -> Int? {
        var digits = text.utf8[...]
        var shift = 0
        if let last = digits.last, let suffix = "kmgt".utf8.enumerated().first(where: { $0.element == last | 0x20 }) {
            digits.removeLast()
            shift = 10 * (suffix.offset + 1)
        }
        guard let number = Decimal.parseUnsigned(digits), number <= UInt64(Int.max) >> UInt64(shift) else { return nil }
        return Int(number) << shift
    }
}
