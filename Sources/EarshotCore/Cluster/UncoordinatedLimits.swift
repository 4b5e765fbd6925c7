internal import EarshotWire

/// How each origin's limit is divided among the nodes while some of them fetch without the engine.
extension ClusterBook {
    /// The limit that this node applies to an origin itself. A member leaves the cluster's limit to the engine.
    func localLimit(of limit: Int) -> Int { isUncoordinated ? max(1, limit / memberCount.limitDivisor) : limit }

    /// The limit of an origin that this node sends to the engine. For a lease after an absence, it leaves out the parts
    /// of nodes that are not back: they may still fetch without the engine.
    func engineLimit(of limit: Int, now: MonotonicTime) -> Int {
        guard case .member(let since, let awaySince) = membership, memberCount.presentCount < memberCount.limitDivisor,
            since.milliseconds(since: awaySince) >= limits.engineLossToleranceMilliseconds,
            now.milliseconds(since: since) < EngineLimits.leaseMilliseconds
        else { return limit }
        return max(1, limit * memberCount.presentCount / memberCount.limitDivisor)
    }
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
    /// Time since which the engine has reported the present number; nil without a membership.
    private var presentCountSince: MonotonicTime?
    /// Latest number that lasted for a lease.
    private var stableCount: Int?

    init(configured: Int) {
        self.configuredCount = Self.clampedMemberCount(configured)
        presentCount = self.configuredCount
    }

    /// Nodes among which limits are divided without the engine.
    package var limitDivisor: Int { max(configuredCount, stableCount ?? presentCount) }

    /// Handles a report of the number of members.
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
