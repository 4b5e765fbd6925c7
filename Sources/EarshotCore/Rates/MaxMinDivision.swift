internal import HeapModule

/// Max-min fair division of several limits among members that are under one or more of them (progressive filling).
///
/// The shares of all open members rise together. A member closes at its demand, or at the level of its first exhausted
/// group. The level of a group is the share of its open members if it were exhausted now. Closing a member at the
/// lowest level or demand lowers no level, so each event is final. O(members × log(members + groups)).
struct MaxMinDivision {
    /// A member of at least one group.
    struct ShareMember {
        /// Numbers of its groups, each once.
        let groupNumbers: [Int]
        /// Largest share that the member can use; nil if it can use any share.
        let maximumUsefulShare: Int?
    }

    private struct FillLevel: Comparable {
        /// Never above the present level of the group.
        let share: Int
        let groupNumber: Int

        static func < (left: FillLevel, right: FillLevel) -> Bool {
            (left.share, left.groupNumber) < (right.share, right.groupNumber)
        }
    }

    /// Undivided rest of the limit of each group.
    private(set) var undividedRateByGroup: [Int]
    /// Number of examined levels and members.
    private(set) var examinedStepCount = 0

    init(groupLimits: [Int]) { undividedRateByGroup = groupLimits }

    /// Divides the rest among these members, and removes their shares from it.
    ///
    /// - Returns: the shares in the order of the members.
    mutating func divideRemainder(among members: [ShareMember]) -> [Int] {
        var shares = [Int](repeating: 0, count: members.count)
        var isOpen = [Bool](repeating: true, count: members.count)
        var open = [Int](repeating: 0, count: undividedRateByGroup.count)
        var membersOfGroups = [[Int]](repeating: [], count: undividedRateByGroup.count)
        for (member, record) in members.enumerated() {
            for group in record.groupNumbers {
                open[group] += 1
                membersOfGroups[group].append(member)
            }
        }
        func close(_ member: Int, at share: Int, _ rest: inout [Int]) {
            shares[member] = share
            isOpen[member] = false
            for group in members[member].groupNumbers {
                rest[group] -= share
                open[group] -= 1
            }
        }
        var demands = members.indices.compactMap { member in
            members[member].maximumUsefulShare.map { (share: $0, member: member) }
        }
        // The lowest demand is last.
        demands.sort { ($0.share, $0.member) > ($1.share, $1.member) }
        var levels = Heap(
            undividedRateByGroup.indices.filter { open[$0] > 0 }.map {
                FillLevel(share: undividedRateByGroup[$0] / open[$0], groupNumber: $0)
            })
        while let lowest = levels.min {
            examinedStepCount += 1
            if let demand = demands.last, !isOpen[demand.member] || demand.share <= lowest.share {
                demands.removeLast()
                if isOpen[demand.member] { close(demand.member, at: demand.share, &undividedRateByGroup) }
                continue
            }
            levels.removeMin()
            guard open[lowest.groupNumber] > 0 else { continue }
            let share = undividedRateByGroup[lowest.groupNumber] / open[lowest.groupNumber]
            guard share == lowest.share else {
                // Members have closed since, so the level has risen.
                levels.insert(FillLevel(share: share, groupNumber: lowest.groupNumber))
                continue
            }
            for member in membersOfGroups[lowest.groupNumber] where isOpen[member] {
                examinedStepCount += 1
                close(member, at: share, &undividedRateByGroup)
            }
        }
        return shares
    }
}
