internal import EarshotWire

/// Name of a flight or of an origin in the engine: 128 bits, 32 lower-case hexadecimal digits.
///
/// For a shared flight and for each origin it is a code with the cluster's secret, from which nothing can be recovered.
/// For a flight that stays on its node it is a random number of the broker and the flight's number.
public struct ClusterKey: Hashable, Sendable, CustomStringConvertible {
    private let high: UInt64
    private let low: UInt64

    public init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }

    /// Key of a flight that stays on its node. It outlives the node's ID.
    public init(broker: UInt64, flight: UInt64) {
        self.init(high: broker, low: flight)
    }

    /// Whether it is the key of a flight that stays on the node with this broker.
    func stays(on broker: UInt64) -> Bool { high == broker }

    /// Nil if `text` is not 32 lower-case hexadecimal digits.
    public init?(_ text: some StringProtocol) {
        guard let pair = Hexadecimal.pair(text) else { return nil }
        self.init(high: pair.high, low: pair.low)
    }

    public var description: String { Hexadecimal.text(high) + Hexadecimal.text(low) }
}
