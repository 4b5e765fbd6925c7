internal import EarshotWire

/// Shares of running attempts in the rate limits of the bus, of origins and of handlers.
///
/// The limits of all groups hold together: `divide` raises the shares of all members at the same speed. A share stops at
/// the limit of its first exhausted group, or at the member's demand (max-min fairness). A member that used less than
/// half of its share demands only twice its rate, so that faster ones can have the rest.
struct RateBook {
    /// Attempts with a common limit.
    enum Group: Hashable {
        /// All attempts.
        case bus
        /// Attempts at the origin with this number.
        case origin(Int32)
        /// Attempts for the handler with this number.
        case handler(Int32)
    }

    /// A group and its limit in bytes per second, at least 1.
    struct Limit: Equatable {
        let group: Group
        let rate: Int
    }

    /// A running attempt, and the limits that apply to it; none for an attempt that is no longer limited.
    struct Member {
        let attempt: AttemptID
        let worker: WorkerID
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

    private struct Record {
        var rate: Int
        /// Bytes received at the latest sample.
        var receivedBytes: Int
        /// Bytes per second that the member can use; nil for any number.
        var demand: Int?
    }

    /// Time from a start or an end to the division: many changes are divided at once.
    static let settlingMilliseconds = 50
    /// Time between two divisions without a change.
    static let divisionMilliseconds = 500
    /// Time over which the rate of a member is measured: several of its PROGRESS messages.
    private static let sampleMilliseconds = 1_000
    /// Additional demand of a slow member in bytes per second, so that it can grow again from 0.
    private static let leastDemand = 16 << 10

    private var records: [AttemptID: Record] = [:]
    private var sampledAt: Tick?
    /// Time of the next division; nil while no attempt is limited.
    private(set) var due: Tick?

    /// Whether no attempt is limited.
    var isEmpty: Bool { records.isEmpty }

    /// Adds an attempt. Returns its share until the next division, in bytes per second.
    ///
    /// - Parameters:
    ///   - limits: limits that apply to it, at least one.
    ///   - counts: number of other attempts under each of them.
    mutating func started(_ attempt: AttemptID, _ limits: [Limit], counts: [Int], now: Tick) -> Int {
        let shares = zip(limits, counts).map { $0.rate / (1 + $1) }
        let rate = max(1, shares.min() ?? 1)
        records[attempt] = Record(rate: rate, receivedBytes: 0, demand: nil)
        changed(now: now)
        return rate
    }

    /// Brings the next division forward, after a start, an end or a changed limit.
    mutating func changed(now: Tick) {
        let soon = now.advanced(byMilliseconds: Self.settlingMilliseconds)
        due = min(due ?? soon, soon)
    }

    /// Divides the limits among all running attempts: O(attempts) for each round of `shares`, usually two or three.
    ///
    /// - Returns: the shares that differ from the previous ones.
    mutating func divide(among members: [Member], now: Tick) -> [Change] {
        let sampled = sample(now: now)
        var kept: [AttemptID: Record] = [:]
        var limited: [Member] = []
        var changes: [Change] = []
        for member in members {
            let known = records[member.attempt]
            guard !member.limits.isEmpty else {
                if known != nil { changes.append(Change(worker: member.worker, attempt: member.attempt, rate: nil)) }
                continue
            }
            // A rate of 0 differs from any share.
            var record = known ?? Record(rate: 0, receivedBytes: member.receivedBytes, demand: nil)
            if let sampled, known != nil {
                record.demand = Self.demand(record, member.receivedBytes, milliseconds: sampled)
                record.receivedBytes = member.receivedBytes
            }
            kept[member.attempt] = record
            limited.append(member)
        }
        records = kept
        let shares = Self.shares(of: limited.map { ($0.limits, kept[$0.attempt]?.demand) })
        for (member, rate) in zip(limited, shares) where records[member.attempt]?.rate != rate {
            records[member.attempt]?.rate = rate
            changes.append(Change(worker: member.worker, attempt: member.attempt, rate: rate))
        }
        due = limited.isEmpty ? nil : now.advanced(byMilliseconds: Self.divisionMilliseconds)
        if limited.isEmpty { sampledAt = nil }
        return changes
    }

    /// Returns the milliseconds since the latest sample if another one is due.
    private mutating func sample(now: Tick) -> Int? {
        guard let last = sampledAt else {
            sampledAt = now
            return nil
        }
        let elapsed = now.milliseconds(since: last)
        guard elapsed >= Self.sampleMilliseconds else { return nil }
        sampledAt = now
        return elapsed
    }

    /// Returns the demand of a member that has received this many bytes in all.
    private static func demand(_ record: Record, _ receivedBytes: Int, milliseconds: Int) -> Int? {
        // A worker may report any number.
        let received = min(max(0, receivedBytes - record.receivedBytes), 1 << 50)
        let rate = received * 1_000 / milliseconds
        return rate >= record.rate / 2 ? nil : 2 * rate + leastDemand
    }

    /// Returns max-min fair shares, each at least 1. The order is that of the members.
    static func shares(of members: [(limits: [Limit], demand: Int?)]) -> [Int] {
        var rest: [Group: (rate: Int, open: Int)] = [:]
        for member in members {
            for limit in member.limits {
                let known = rest[limit.group]
                // Two requests of a handler may differ. The larger limit applies.
                rest[limit.group] = (max(known?.rate ?? 0, limit.rate), (known?.open ?? 0) + 1)
            }
        }
        var shares = [Int](repeating: 0, count: members.count)
        var open = Array(members.indices)
        while !open.isEmpty {
            // The level of a group is the share of each open member if it closed now; that of a member is its lowest
            // group's. Levels never fall, so a member whose demand is below its level can close. So can a group if all
            // of its open members are at its level and demand more.
            let levels = rest.mapValues { $0.rate / max(1, $0.open) }
            var votes: [Group: Int] = [:]
            for index in open {
                let level = Self.level(members[index].limits, levels)
                guard members[index].demand ?? .max > level else { continue }
                for limit in members[index].limits where levels[limit.group] == level {
                    votes[limit.group, default: 0] += 1
                }
            }
            var left: [Int] = []
            var closing: [Int] = []
            for index in open {
                let level = Self.level(members[index].limits, levels)
                let isSatisfied = members[index].demand ?? .max <= level
                let isExhausted = members[index].limits.contains {
                    levels[$0.group] == level && votes[$0.group] == rest[$0.group]?.open
                }
                guard isExhausted || isSatisfied else {
                    left.append(index)
                    continue
                }
                shares[index] = min(members[index].demand ?? level, level)
                closing.append(index)
            }
            for index in closing {
                for limit in members[index].limits {
                    rest[limit.group]?.rate -= shares[index]
                    rest[limit.group]?.open -= 1
                }
            }
            open = left
        }
        return shares.map { max(1, $0) }
    }

    private static func level(_ limits: [Limit], _ levels: [Group: Int]) -> Int {
        limits.map { levels[$0.group] ?? .max }.min() ?? .max
    }
}
