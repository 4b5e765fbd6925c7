internal import EarshotWire

/// Number of members of the cluster, and the number of nodes among which a node without the engine divides limits.
///
/// While an engine flaps, nodes join one after the other, and each learns of few members. Such a number would give each
/// node too large a part, so only a number that lasted for a lease counts.
package struct MemberCount {
    /// Number in the settings.
    private let configured: Int
    /// Number of members, or the last known one.
    package private(set) var presentCount: Int
    /// Time since which the engine has told the present number; nil without a membership.
    private var since: Tick?
    /// Latest number that lasted for a lease.
    private var stableCount: Int?

    init(configured: Int) {
        self.configured = Self.bounded(configured)
        presentCount = self.configured
    }

    /// Nodes among which limits are divided without the engine.
    package var divisor: Int { max(configured, stableCount ?? presentCount) }

    /// The engine has told the number of members.
    mutating func reported(_ count: Int, now: Tick) {
        let count = Self.bounded(count)
        guard since == nil || count != presentCount else { return }
        updateStable(now: now)
        presentCount = count
        since = now
    }

    /// The membership ended.
    mutating func membershipEnded(now: Tick) {
        updateStable(now: now)
        since = nil
    }

    private mutating func updateStable(now: Tick) {
        guard let since, now.milliseconds(since: since) >= EngineLimits.leaseMilliseconds else { return }
        stableCount = presentCount
    }

    /// More members than any cluster has, so that a product with it cannot overflow.
    private static let mostMembers = 4_096

    private static func bounded(_ count: Int) -> Int { min(max(1, count), mostMembers) }
}
