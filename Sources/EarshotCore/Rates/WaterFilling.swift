internal import HeapModule

/// Max-min fair division of several limits among members that are under one or more of them (progressive filling).
///
/// The shares of all open members rise together. A member closes at its demand, or at the level of its first exhausted
/// group. The level of a group is the share of its open members if it were exhausted now. Closing a member at the
/// lowest level or demand lowers no level, so each event is final. O(members × log(members + groups)).
struct WaterFilling {
    /// A member of at least one group.
    struct Member {
        /// Numbers of its groups, each once.
        let groups: [Int]
        /// Largest useful share; nil for any.
        let demand: Int?
    }

    private struct Level: Comparable {
        /// Never above the present level of the group.
        let share: Int
        let group: Int

        static func < (left: Level, right: Level) -> Bool {
            (left.share, left.group) < (right.share, right.group)
        }
    }

    /// Undivided rest of the limit of each group.
    private(set) var undividedRates: [Int]
    /// Number of examined levels and members.
    private(set) var steps = 0

    init(limits: [Int]) { undividedRates = limits }

    /// Divides the rest among these members, and removes their shares from it.
    ///
    /// - Returns: the shares in the order of the members.
    mutating func divide(among members: [Member]) -> [Int] {
        var shares = [Int](repeating: 0, count: members.count)
        var isOpen = [Bool](repeating: true, count: members.count)
        var open = [Int](repeating: 0, count: undividedRates.count)
        var membersOfGroups = [[Int]](repeating: [], count: undividedRates.count)
        for (member, record) in members.enumerated() {
            for group in record.groups {
                open[group] += 1
                membersOfGroups[group].append(member)
            }
        }
        func close(_ member: Int, at share: Int, _ rest: inout [Int]) {
            shares[member] = share
            isOpen[member] = false
            for group in members[member].groups {
                rest[group] -= share
                open[group] -= 1
            }
        }
        var demands = members.indices.compactMap { member in
            members[member].demand.map { (share: $0, member: member) }
        }
        // The lowest demand is last.
        demands.sort { ($0.share, $0.member) > ($1.share, $1.member) }
        var levels = Heap(
            undividedRates.indices.filter { open[$0] > 0 }.map {
                Level(share: undividedRates[$0] / open[$0], group: $0)
            })
        while let lowest = levels.min {
            steps += 1
            if let demand = demands.last, !isOpen[demand.member] || demand.share <= lowest.share {
                demands.removeLast()
                if isOpen[demand.member] { close(demand.member, at: demand.share, &undividedRates) }
                continue
            }
            levels.removeMin()
            guard open[lowest.group] > 0 else { continue }
            let share = undividedRates[lowest.group] / open[lowest.group]
            guard share == lowest.share else {
                // Members have closed since, so the level has risen.
                levels.insert(Level(share: share, group: lowest.group))
                continue
            }
            for member in membersOfGroups[lowest.group] where isOpen[member] {
                steps += 1
                close(member, at: share, &undividedRates)
            }
        }
        return shares
    }
}
