/// Tells what a flight fetches from what all others do, over brokers' lives: 128 bits of a digest over all that decides
/// who may share it, 32 lower-case hexadecimal digits on the wire. Nothing of what went in can be read from it.
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
            throw WireError(.badMessage, "flight is 32 lower-case hexadecimal digits")
        }
        return identity
    }
}
