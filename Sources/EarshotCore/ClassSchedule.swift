internal import EarshotWire

/// Whose turn it is among the classes: each gets turns in proportion to its weight, so that none starves.
///
/// Stride scheduling (Waldspurger and Weihl, 1995): a turn costs a class 64 / weight; the class that spent least is next.
struct ClassSchedule {
    /// What one turn costs: the inverse of the weights 64 (high), 16, 4 and 1 (background).
    private static func stride(_ priority: PriorityClass) -> UInt64 {
        switch priority {
        case .background: 64
        case .low: 16
        case .normal: 4
        case .high: 1
        }
    }

    private var spent = [UInt64](repeating: 0, count: PriorityClass.allCases.count)
    /// What the class whose turn was last had spent: where one that comes back from idleness starts.
    private var present: UInt64 = 0

    /// The one of `candidates` that is next; nil if there are none.
    func next(of candidates: [PriorityClass]) -> PriorityClass? {
        candidates.max { left, right in
            (spent[Int(right.rawValue)], left.rawValue) < (spent[Int(left.rawValue)], right.rawValue)
        }
    }

    mutating func tookTurn(_ priority: PriorityClass) {
        present = max(present, spent[Int(priority.rawValue)])
        spent[Int(priority.rawValue)] += Self.stride(priority)
    }

    /// A class has work again: it does not get back the turns it had no use for, and pays for its first.
    mutating func becameBusy(_ priority: PriorityClass) {
        spent[Int(priority.rawValue)] = max(spent[Int(priority.rawValue)], present + Self.stride(priority))
    }
}
