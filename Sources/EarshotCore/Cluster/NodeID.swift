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

    /// Traps unless `handle` is from 1 to `greatest`.
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

/// Number of members of the cluster, and the number of nodes among which a node without the engine divides limits.
///
/// While an engine flaps, nodes join one after the other, and each learns of few members. Such a number would give each
/// node too large a part, so only a number that lasted for a lease counts.
package struct MemberCount {
    /// Number in the settings.
    private let configuredCount: Int
    /// Number of members, or the last known one.
    package private(set) var presentCount: Int
    /// Time since which the engine has told the present number; nil without a membership.
    private var presentCountSince: MonotonicTime?
    /// Latest number that lasted for a lease.
    private var stableCount: Int?

    init(configured: Int) {
        self.configuredCount = Self.clampedMemberCount(configured)
        presentCount = self.configuredCount
    }

    /// Nodes among which limits are divided without the engine.
    package var limitDivisor: Int { max(configuredCount, stableCount ?? presentCount) }

    /// The engine has told the number of members.
    mutating func memberCountReported(_ count: Int, now: MonotonicTime) {
        let count = Self.clampedMemberCount(count)
        guard presentCountSince == nil || count != presentCount else { return }
        updateStableCount(now: now)
        presentCount = count
        presentCountSince = now
    }

    /// The membership ended.
    mutating func membershipEnded(now: MonotonicTime) {
        updateStableCount(now: now)
        presentCountSince = nil
    }

    private mutating func updateStableCount(now: MonotonicTime) {
        guard let presentCountSince, now.milliseconds(since: presentCountSince) >= EngineLimits.leaseMilliseconds else {
            return
        }
        stableCount = presentCount
    }

    /// More members than any cluster has, so that a product with it cannot overflow.
    private static let maximumMembers = 4_096

    private static func clampedMemberCount(_ count: Int) -> Int { min(max(1, count), maximumMembers) }
}
