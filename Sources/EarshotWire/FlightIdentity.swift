/// Tells what a flight fetches from what all others do, over brokers' lives: 128 bits of a digest over all that decides who
/// may share it, 32 lower-case hexadecimal digits on the wire. Nothing of what went in can be read from it.
public struct FlightIdentity: Hashable, Sendable, CustomStringConvertible {
    /// The first 64 bits.
    public let high: UInt64
    /// The rest.
    public let low: UInt64

    public init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }

    /// Nil if `text` is not 32 lower-case hexadecimal digits.
    public init?(_ text: String) {
        guard text.utf8.count == 32, let high = Self.word(text.utf8.prefix(16)),
            let low = Self.word(text.utf8.suffix(16))
        else { return nil }
        self.init(high: high, low: low)
    }

    public var description: String { Self.text(high) + Self.text(low) }

    private static func word(_ digits: Substring.UTF8View) -> UInt64? {
        var value: UInt64 = 0
        for byte in digits {
            guard let digit = Ascii.hexadecimalDigit(byte) else { return nil }
            value = value << 4 | UInt64(digit)
        }
        return value
    }

    private static func text(_ word: UInt64) -> String {
        let digits = String(word, radix: 16)
        return String(repeating: "0", count: 16 - digits.utf8.count) + digits
    }
}

extension HeadReader {
    static func flight(_ text: String) throws(WireError) -> FlightIdentity {
        guard let identity = FlightIdentity(text) else {
            throw WireError(.badMessage, "flight is 32 lower-case hexadecimal digits")
        }
        return identity
    }
}
