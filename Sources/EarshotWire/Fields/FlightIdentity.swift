/// Identity of the content that a flight fetches, stable across restarts of the broker.
///
/// 128 bits of a digest over everything that decides which requests may share the flight, 32 lower-case hexadecimal
/// digits on the wire. The input cannot be recovered from it.
public struct FlightIdentity: Hashable, Sendable, CustomStringConvertible {
    /// First 64 bits.
    public let high: UInt64
    /// Last 64 bits.
    public let low: UInt64

    public init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }

    /// Nil if `text` is not 32 lower-case hexadecimal digits.
    public init?(_ text: String) { self.init(Array(text.utf8)[...]) }

    init?(_ bytes: ArraySlice<UInt8>) {
        guard bytes.count == 32, let high = Hexadecimal.number(bytes.prefix(16)),
            let low = Hexadecimal.number(bytes.suffix(16))
        else { return nil }
        self.init(high: high, low: low)
    }

    public var description: String { Hexadecimal.text(high) + Hexadecimal.text(low) }
}

extension HeadReader {
    static func flight(_ text: HeadText) throws(WireError) -> FlightIdentity {
        guard let identity = FlightIdentity(text.bytes) else {
            throw WireError(.badMessage, "flight must be 32 lower-case hexadecimal digits")
        }
        return identity
    }
}
