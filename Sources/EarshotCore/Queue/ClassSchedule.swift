internal import EarshotWire

/// Whose turn it is among the classes: each gets turns in proportion to its weight, so that none starves.
///
/// Stride scheduling (Waldspurger and Weihl, 1995): a turn costs a class 64 / weight; the class that spent least is
/// next.
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

    /// Made once: it is gone through for each start.
    static let classes = PriorityClass.allCases

    private var spent = [UInt64](repeating: 0, count: classes.count)
    /// What the class whose turn was last had spent: where one that comes back from idleness starts.
    private var present: UInt64 = 0

    /// The one of the classes with work that is next: the higher one of two that spent the same; nil if none has work.
    func next(where hasWork: (PriorityClass) -> Bool) -> PriorityClass? {
        var next: PriorityClass?
        for candidate in Self.classes where hasWork(candidate) {
            if let best = next, spent[Int(best.rawValue)] < spent[Int(candidate.rawValue)] { continue }
            next = candidate
        }
        return next
    }

    mutating func tookTurn(_ priority: PriorityClass) {
        present = max(present, spent[Int(priority.rawValue)])
        spent[Int(priority.rawValue)] += Self.stride(priority)
    }

    /// A class has work again: it does not get back the turns it had no use for, and pays for its first.
    mutating func becameBusy(_ priority: PriorityClass) {
        spent[Int(priority.rawValue)] = max(spent[Int(priority.rawValue)], present + Self.stride(priority))
    }

    /// A class had work all the time, none of which might start: it gets no missed turns back, but keeps its place.
    /// Where an origin is always full that happens at each turn, and paying each time it would never be next.
    mutating func becameFree(_ priority: PriorityClass) {
        spent[Int(priority.rawValue)] = max(spent[Int(priority.rawValue)], present)
    }
}
