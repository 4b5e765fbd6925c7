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

    /// Nil if `text` is not 16 lower-case hexadecimal digits.
    public init?(_ text: some StringProtocol) {
        guard let number = Hexadecimal.parse(text) else { return nil }
        self.number = number
    }

    public var description: String { Hexadecimal.text(number) }
}

/// Number of one attempt of a shared flight. A later attempt of the same flight has a larger one.
public struct FencingToken: Hashable, Comparable, Sendable, CustomStringConvertible {
    /// Greatest number. The engine's scripts have exact integers to 2^53 - 1 only, and reserve 16 digits.
    public static let greatest: UInt64 = 9_007_199_254_740_991
    /// Numbers for attempts that began without the engine, chosen at random. They are below the engine's own tokens,
    /// which are its time in microseconds, so that no attempt of the engine has one of them.
    public static let uncoordinated: ClosedRange<UInt64> = 1...999_999_999_999_999

    let number: UInt64

    /// Traps unless `number` is from 1 to `greatest`.
    public init(_ number: UInt64) {
        precondition((1...Self.greatest).contains(number), "\(number) is no fencing token")
        self.number = number
    }

    /// Nil if `text` is not a decimal number from 1 to `greatest`.
    public init?(_ text: some StringProtocol) {
        guard let number = UInt64(text), (1...Self.greatest).contains(number) else { return nil }
        self.number = number
    }

    public var description: String { String(number) }

    public static func < (left: FencingToken, right: FencingToken) -> Bool { left.number < right.number }
}
