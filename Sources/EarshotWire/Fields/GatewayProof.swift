/// Secret with which the gateway states the principal of a session: 256 random bits, 64 lower-case hexadecimal digits on
/// the wire.
public struct GatewayProof: Equatable, Sendable, CustomStringConvertible {
    private let words: (UInt64, UInt64, UInt64, UInt64)

    /// Nil if `text` is not 64 lower-case hexadecimal digits.
    public init?(_ text: String) {
        let digits = Array(text.utf8)
        guard digits.count == 64, let first = Hexadecimal.number(digits[..<16]),
            let second = Hexadecimal.number(digits[16..<32]), let third = Hexadecimal.number(digits[32..<48]),
            let last = Hexadecimal.number(digits[48...])
        else { return nil }
        words = (first, second, third, last)
    }

    /// Compares two secrets in constant time, so that the duration does not reveal the first difference.
    public static func == (_ left: GatewayProof, _ right: GatewayProof) -> Bool {
        let (one, other) = (left.words, right.words)
        return (one.0 ^ other.0) | (one.1 ^ other.1) | (one.2 ^ other.2) | (one.3 ^ other.3) == 0
    }

    public var description: String {
        [words.0, words.1, words.2, words.3].map(Hexadecimal.text).joined()
    }
}
