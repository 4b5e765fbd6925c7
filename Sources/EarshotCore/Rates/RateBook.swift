internal import EarshotWire

/// Shares of running attempts in the rate limits of the bus, of origins and of handlers.
///
/// The limits of all groups hold together, and the shares are max-min fair (`WaterFilling`). A member that used less
/// than half of its share demands only twice its rate, so that faster ones can have the rest. If they cannot use it
/// either, it stays with the slow ones.
struct RateBook {
    /// Attempts with a common limit.
    enum Group: Hashable {
        /// All attempts.
        case bus
        /// Attempts at the origin with this number.
        case origin(Handle<OriginEntry>)
        /// Attempts for the handler with this number.
        case handler(Handle<HandlerEntry>)
    }

    /// A group and its limit in bytes per second, at least 1.
    struct Limit: Equatable {
        let group: Group
        let rate: Int
    }

    /// A running attempt, and the limits that apply to it; none for an attempt without a limit.
    struct Member {
        let attempt: AttemptID
        let worker: WorkerID
        /// At most one for each group.
        let limits: [Limit]
        /// Bytes received since its start.
        let receivedBytes: Int
    }

    /// A changed share; nil lifts the limit.
    struct Change: Equatable {
        let worker: WorkerID
        let attempt: AttemptID
        let rate: Int?
    }

    /// An attempt with a share.
    private struct Record {
        /// Limits of its start or of the latest division, at least one. `recordCounts` includes them.
        var limits: [Limit]
        var rate: Int
        /// Bytes received at the latest sample, or at its start.
        var receivedBytes: Int
        var sampledAt: Tick
        /// Bytes per second that the member can use; nil for any number.
        var demand: Int?

        /// Measures the demand, if the latest sample is old enough. A younger member has any demand.
        mutating func sample(_ receivedBytes: Int, now: Tick) {
            let elapsed = now.milliseconds(since: sampledAt)
            guard elapsed >= RateBook.sampleMilliseconds else { return }
            // A worker may report any number.
            let received = min(max(0, receivedBytes - self.receivedBytes), 1 << 50)
            let used = received * 1_000 / elapsed
            demand = used >= rate / 2 ? nil : 2 * used + RateBook.leastDemand
            self.receivedBytes = receivedBytes
            sampledAt = now
        }
    }

    /// Time from a start or an end to the division: many changes are divided at once.
    static let divisionDelayMilliseconds = 50
    /// Time between two divisions without a change.
    static let divisionMilliseconds = 500
    /// Time over which the rate of a member is measured: several of its PROGRESS messages.
    private static let sampleMilliseconds = 1_000
    /// Additional demand of a slow member in bytes per second, so that it can grow again from 0.
    private static let leastDemand = 16 << 10

    private var records: [AttemptID: Record] = [:]
    /// Number of records under each limit. A start needs no other knowledge of the running attempts.
    private var recordCounts: [Group: Int] = [:]
    /// Time of the next division; nil while no attempt is limited.
    private(set) var nextDivision: Tick?

    /// Whether no attempt is limited.
    var isEmpty: Bool { records.isEmpty }

    // MARK: Events

    /// Adds an attempt. Returns its share until the next division, in bytes per second. O(its limits).
    ///
    /// - Parameter limits: limits that apply to it, at least one.
    mutating func started(_ attempt: AttemptID, _ limits: [Limit], now: Tick) -> Int {
        let shares = limits.map { $0.rate / (1 + recordCounts[$0.group, default: 0]) }
        let rate = max(1, shares.min() ?? 1)
        ended(attempt, now: now)
        records[attempt] = Record(limits: limits, rate: rate, receivedBytes: 0, sampledAt: now, demand: nil)
        for limit in limits { recordCounts[limit.group, default: 0] += 1 }
        scheduleDivision(now: now)
        return rate
    }

    /// Removes an attempt, if it is limited. O(its limits).
    mutating func ended(_ attempt: AttemptID, now: Tick) {
        guard let record = records.removeValue(forKey: attempt) else { return }
        for limit in record.limits {
            let count = recordCounts[limit.group, default: 0] - 1
            recordCounts[limit.group] = count > 0 ? count : nil
        }
        scheduleDivision(now: now)
    }

    /// Brings the next division forward, after a start, an end or a changed limit.
    mutating func scheduleDivision(now: Tick) {
        let soon = now.advanced(byMilliseconds: Self.divisionDelayMilliseconds)
        nextDivision = min(nextDivision ?? soon, soon)
    }

    // MARK: Handlers

    /// The handler's limit of an attempt at its start or at the latest division; nil without one.
    func handlerLimit(of attempt: AttemptID) -> Limit? {
        records[attempt]?.limits.first { if case .handler = $0.group { true } else { false } }
    }

    /// Whether a handler's limit may apply to a running attempt: only if it started with one and has had one since.
    func mayFollowHandler(_ attempt: AttemptID) -> Bool { handlerLimit(of: attempt) != nil }

    // MARK: Division

    /// Divides the limits among all running attempts. O(attempts × log(attempts)).
    ///
    /// - Returns: the shares that differ from the previous ones.
    mutating func divide(among members: [Member], now: Tick) -> [Change] {
        var kept: [AttemptID: Record] = [:]
        var limited: [Member] = []
        var changes: [Change] = []
        for member in members {
            let known = records[member.attempt]
            guard !member.limits.isEmpty else {
                if known != nil {
                    changes.append(Change(worker: member.worker, attempt: member.attempt, rate: nil))
                }
                continue
            }
            // A rate of 0 differs from any share.
            var record =
                known
                ?? Record(limits: [], rate: 0, receivedBytes: member.receivedBytes, sampledAt: now, demand: nil)
            record.limits = member.limits
            record.sample(member.receivedBytes, now: now)
            kept[member.attempt] = record
            limited.append(member)
        }
        records = kept
        recordCounts = [:]
        for record in kept.values { for limit in record.limits { recordCounts[limit.group, default: 0] += 1 } }
        let shares = Self.shares(of: limited.map { ($0.limits, kept[$0.attempt]?.demand) })
        for (member, rate) in zip(limited, shares) where records[member.attempt]?.rate != rate {
            records[member.attempt]?.rate = rate
            changes.append(Change(worker: member.worker, attempt: member.attempt, rate: rate))
        }
        nextDivision = limited.isEmpty ? nil : now.advanced(byMilliseconds: Self.divisionMilliseconds)
        return changes
    }

    /// Returns max-min fair shares, each at least 1, in the order of the members. Members with a demand get more only
    /// of limits that the others leave.
    static func shares(of members: [(limits: [Limit], demand: Int?)]) -> [Int] {
        var numbers: [Group: Int] = [:]
        var rates: [Int] = []
        let numbered = members.map { member in
            let groups = member.limits.map { limit in
                if let number = numbers[limit.group] {
                    // Two requests of a handler may differ. The larger limit applies.
                    rates[number] = max(rates[number], limit.rate)
                    return number
                }
                numbers[limit.group] = rates.count
                rates.append(limit.rate)
                return rates.count - 1
            }
            return WaterFilling.Member(groups: groups, demand: member.demand)
        }
        var filling = WaterFilling(limits: rates)
        var shares = filling.divide(among: numbered)
        let slow = members.indices.filter { members[$0].demand == shares[$0] }
        let more = filling.divide(among: slow.map { .init(groups: numbered[$0].groups, demand: nil) })
        for (index, share) in zip(slow, more) { shares[index] += share }
        return shares.map { max(1, $0) }
    }

    // MARK: Checks

    /// A sentence for each violation, which begins with the number of the invariant in ARCHITECTURE.md. O(records).
    func checkInvariants() -> [String] {
        var faults: [String] = []
        var counted: [Group: Int] = [:]
        for (attempt, record) in records {
            if record.limits.isEmpty { faults.append("12: \(attempt) has a share of no limit") }
            if record.rate < 1 { faults.append("12: \(attempt) has a share of \(record.rate)") }
            for limit in record.limits {
                if limit.rate < 1 { faults.append("12: \(attempt) has a limit of \(limit.rate)") }
                counted[limit.group, default: 0] += 1
            }
        }
        if counted != recordCounts {
            faults.append("10: the counts of rate limits are \(recordCounts), not \(counted)")
        }
        if nextDivision == nil, !records.isEmpty { faults.append("12: no division of rates is due") }
        return faults
    }
}
