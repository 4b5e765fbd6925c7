internal import EarshotWire

/// Identity of one node for as long as it is a member of the cluster, 16 lower-case hexadecimal digits.
///
/// A broker takes another one each time that it joins, so that nothing of the earlier membership is mistaken for its
/// own.
public struct NodeID: Hashable, Sendable, CustomStringConvertible {
    let number: UInt64

    public init(_ number: UInt64) {
        self.number = number
    }

    public var description: String {
        // The second half of an identity's text.
        String(FlightIdentity(high: 0, low: number).description.suffix(16))
    }
}

/// Number of one attempt of a shared flight. A later attempt of the same flight has a larger one.
public struct FencingToken: Hashable, Comparable, Sendable, CustomStringConvertible {
    let number: UInt64

    public init(_ number: UInt64) {
        self.number = number
    }

    /// Nil if `text` is not a decimal number above 0.
    public init?(_ text: some StringProtocol) {
        guard let number = UInt64(text), number > 0 else { return nil }
        self.number = number
    }

    public var description: String { String(number) }

    public static func < (left: FencingToken, right: FencingToken) -> Bool { left.number < right.number }
}
