internal import EarshotWire

/// Shares of running attempts in the rate limits of the bus, of origins and of handlers.
///
/// The limits of all groups hold together, and the shares are max-min fair (`MaxMinDivision`). A member that used less
/// than half of its share demands only twice its rate, so that faster ones can have the rest. If they cannot use it
/// either, it stays with the slow ones.
struct RateShares {
    /// Attempts with a common limit.
    enum LimitGroup: Hashable {
        /// All attempts.
        case allAttempts
        /// Attempts at the origin with this number.
        case attemptsAtOrigin(Handle<OriginEntry>)
        /// Attempts for the handler with this number.
        case attemptsForHandler(Handle<HandlerEntry>)
    }

    /// A group and its limit in bytes per second, at least 1.
    struct GroupLimit: Equatable {
        let group: LimitGroup
        let bytesPerSecond: Int
    }

    /// A running attempt, and the limits that apply to it; none for an attempt without a limit.
    struct LimitedAttempt {
        let attempt: AttemptID
        let worker: WorkerID
        /// At most one for each group.
        let limits: [GroupLimit]
        /// Bytes received since its start.
        let receivedBytes: Int
    }

    /// A changed share; nil lifts the limit.
    struct ShareChange: Equatable {
        let worker: WorkerID
        let attempt: AttemptID
        let bytesPerSecond: Int?
    }

    /// An attempt with a share.
    private struct AttemptShare {
        /// Limits of its start or of the latest division, at least one. `attemptCountsByGroup` includes them.
        var limits: [GroupLimit]
        var shareBytesPerSecond: Int
        /// Bytes received at the latest sample, or at its start.
        var receivedBytes: Int
        var sampledAt: MonotonicTime
        /// Bytes per second that the member can use; nil for any number.
        var demandBytesPerSecond: Int?

        /// Measures the demand, if the latest sample is old enough. Until its first sample, a member has an unlimited
        /// demand.
        mutating func updateDemand(_ receivedBytes: Int, now: MonotonicTime) {
            let elapsed = now.milliseconds(since: sampledAt)
            guard elapsed >= RateShares.sampleIntervalMilliseconds else { return }
            // A worker may report any number.
            let received = min(max(0, receivedBytes - self.receivedBytes), 1 << 50)
            let used = received * 1_000 / elapsed
            demandBytesPerSecond =
                used >= shareBytesPerSecond / 2 ? nil : 2 * used + RateShares.additionalDemandBytesPerSecond
            self.receivedBytes = receivedBytes
            sampledAt = now
        }
    }

    /// Time from a start or an end to the division, so that one division serves many changes.
    static let delayedDivisionMilliseconds = 50
    /// Time between two divisions without a change.
    static let divisionIntervalMilliseconds = 500
    /// Time over which the rate of a member is measured: several of its PROGRESS messages.
    private static let sampleIntervalMilliseconds = 1_000
    /// Additional demand of a slow member in bytes per second, so that it can grow again from 0.
    private static let additionalDemandBytesPerSecond = 16 << 10

    private var sharesByAttempt: [AttemptID: AttemptShare] = [:]
    /// Number of records under each limit. A start needs no other knowledge of the running attempts.
    private var attemptCountsByGroup: [LimitGroup: Int] = [:]
    /// Time of the next division; nil while no attempt is limited.
    private(set) var nextDivisionAt: MonotonicTime?

    /// Whether no attempt is limited.
    var isEmpty: Bool { sharesByAttempt.isEmpty }

    // MARK: Events

    /// Adds an attempt. Returns its share until the next division, in bytes per second. O(its limits).
    ///
    /// - Parameter limits: limits that apply to it, at least one.
    mutating func addAttempt(_ attempt: AttemptID, _ limits: [GroupLimit], now: MonotonicTime) -> Int {
        let shares = limits.map { $0.bytesPerSecond / (1 + attemptCountsByGroup[$0.group, default: 0]) }
        let rate = max(1, shares.min() ?? 1)
        removeAttempt(attempt, now: now)
        sharesByAttempt[attempt] = AttemptShare(
            limits: limits, shareBytesPerSecond: rate, receivedBytes: 0, sampledAt: now, demandBytesPerSecond: nil)
        for limit in limits { attemptCountsByGroup[limit.group, default: 0] += 1 }
        scheduleDivision(now: now)
        return rate
    }

    /// Removes an attempt, if it is limited. O(its limits).
    mutating func removeAttempt(_ attempt: AttemptID, now: MonotonicTime) {
        guard let record = sharesByAttempt.removeValue(forKey: attempt) else { return }
        for limit in record.limits {
            let count = attemptCountsByGroup[limit.group, default: 0] - 1
            attemptCountsByGroup[limit.group] = count > 0 ? count : nil
        }
        scheduleDivision(now: now)
    }

    /// Brings the next division forward, after a start, an end or a changed limit.
    mutating func scheduleDivision(now: MonotonicTime) {
        let soon = now.advanced(byMilliseconds: Self.delayedDivisionMilliseconds)
        nextDivisionAt = min(nextDivisionAt ?? soon, soon)
    }

    // MARK: Handlers

    /// The handler's limit of an attempt at its start or at the latest division; nil without one.
    func handlerLimit(of attempt: AttemptID) -> GroupLimit? {
        sharesByAttempt[attempt]?.limits.first { if case .attemptsForHandler = $0.group { true } else { false } }
    }

    /// Whether a handler's limit may apply to a running attempt: only if it started with one and has had one since.
    func hasHandlerLimit(_ attempt: AttemptID) -> Bool { handlerLimit(of: attempt) != nil }

    // MARK: Division

    /// Divides the limits among all running attempts. O(attempts × log(attempts)).
    ///
    /// - Returns: the shares that differ from the previous ones.
    mutating func divideLimits(among members: [LimitedAttempt], now: MonotonicTime) -> [ShareChange] {
        var kept: [AttemptID: AttemptShare] = [:]
        var limited: [LimitedAttempt] = []
        var changes: [ShareChange] = []
        for member in members {
            let known = sharesByAttempt[member.attempt]
            guard !member.limits.isEmpty else {
                if known != nil {
                    changes.append(ShareChange(worker: member.worker, attempt: member.attempt, bytesPerSecond: nil))
                }
                continue
            }
            // A rate of 0 differs from any share.
            var record =
                known
                ?? AttemptShare(
                    limits: [], shareBytesPerSecond: 0, receivedBytes: member.receivedBytes, sampledAt: now,
                    demandBytesPerSecond: nil)
            record.limits = member.limits
            record.updateDemand(member.receivedBytes, now: now)
            kept[member.attempt] = record
            limited.append(member)
        }
        sharesByAttempt = kept
        attemptCountsByGroup = [:]
        for record in kept.values { for limit in record.limits { attemptCountsByGroup[limit.group, default: 0] += 1 } }
        let shares = Self.maxMinShares(of: limited.map { ($0.limits, kept[$0.attempt]?.demandBytesPerSecond) })
        for (member, rate) in zip(limited, shares) where sharesByAttempt[member.attempt]?.shareBytesPerSecond != rate {
            sharesByAttempt[member.attempt]?.shareBytesPerSecond = rate
            changes.append(ShareChange(worker: member.worker, attempt: member.attempt, bytesPerSecond: rate))
        }
        nextDivisionAt = limited.isEmpty ? nil : now.advanced(byMilliseconds: Self.divisionIntervalMilliseconds)
        return changes
    }

    /// Returns max-min fair shares, each at least 1, in the order of the members. A member gets more than its demand
    /// only if the others cannot use the rest of its limits.
    static func maxMinShares(of members: [(limits: [GroupLimit], demand: Int?)]) -> [Int] {
        var numbers: [LimitGroup: Int] = [:]
        var rates: [Int] = []
        let numbered = members.map { member in
            let groups = member.limits.map { limit in
                if let number = numbers[limit.group] {
                    // Two requests of a handler may differ. The larger limit applies.
                    rates[number] = max(rates[number], limit.bytesPerSecond)
                    return number
                }
                numbers[limit.group] = rates.count
                rates.append(limit.bytesPerSecond)
                return rates.count - 1
            }
            return MaxMinDivision.ShareMember(groupNumbers: groups, maximumUsefulShare: member.demand)
        }
        var filling = MaxMinDivision(groupLimits: rates)
        var shares = filling.divideRemainder(among: numbered)
        let slow = members.indices.filter { members[$0].demand == shares[$0] }
        let more = filling.divideRemainder(
            among: slow.map { .init(groupNumbers: numbered[$0].groupNumbers, maximumUsefulShare: nil) })
        for (index, share) in zip(slow, more) { shares[index] += share }
        return shares.map { max(1, $0) }
    }

    // MARK: Checks

    /// Returns a sentence for each violation, which begins with the number of the invariant in ARCHITECTURE.md.
    /// O(records).
    func checkInvariants() -> [String] {
        var faults: [String] = []
        var counted: [LimitGroup: Int] = [:]
        for (attempt, record) in sharesByAttempt {
            if record.limits.isEmpty { faults.append("12: \(attempt) has a share of no limit") }
            if record.shareBytesPerSecond < 1 {
                faults.append("12: \(attempt) has a share of \(record.shareBytesPerSecond)")
            }
            for limit in record.limits {
                if limit.bytesPerSecond < 1 { faults.append("12: \(attempt) has a limit of \(limit.bytesPerSecond)") }
                counted[limit.group, default: 0] += 1
            }
        }
        if counted != attemptCountsByGroup {
            faults.append("10: the counts of rate limits are \(attemptCountsByGroup), not \(counted)")
        }
        if nextDivisionAt == nil, !sharesByAttempt.isEmpty { faults.append("12: no division of rates is due") }
        return faults
    }
}
