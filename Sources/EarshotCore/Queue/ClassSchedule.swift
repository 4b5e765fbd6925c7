internal import EarshotWire

/// Weighted scheduling of the classes: each gets turns in proportion to its weight, so that none starves.
///
/// Stride scheduling (Waldspurger and Weihl, 1995): a turn costs a class 64 / weight, and the class with the lowest
/// cost so far is next.
struct ClassSchedule {
    /// Cost of a turn: the inverse of the weights 64 (high), 16, 4 and 1 (background).
    private static func turnCost(of priority: PriorityClass) -> UInt64 {
        switch priority {
        case .background: 64
        case .low: 16
        case .normal: 4
        case .high: 1
        }
    }

    /// Computed once, because each start iterates over it.
    static let classes = PriorityClass.allCases

    private var spentCosts = PriorityClassTable<UInt64>(repeating: 0)
    /// Highest cost, before its turn, of a class that took one. A class that becomes busy starts there.
    private var costOfNewlyBusyClass: UInt64 = 0

    /// Returns the class with the lowest cost among those with work, the higher class if two are equal; nil if none has
    /// work.
    func nextClass(where hasWork: (PriorityClass) -> Bool) -> PriorityClass? {
        var next: PriorityClass?
        for candidate in Self.classes where hasWork(candidate) {
            if let best = next, spentCosts[best] < spentCosts[candidate] { continue }
            next = candidate
        }
        return next
    }

    mutating func chargeTurn(to priority: PriorityClass) {
        costOfNewlyBusyClass = max(costOfNewlyBusyClass, spentCosts[priority])
        spentCosts[priority] += Self.turnCost(of: priority)
    }

    /// Handles new work of an idle class. It cannot make up for turns in idle time, and pays for its first turn.
    mutating func classBecameBusy(_ priority: PriorityClass) {
        spentCosts[priority] = max(spentCosts[priority], costOfNewlyBusyClass + Self.turnCost(of: priority))
    }

    /// Handles the end of an obstacle to a class that had work all the time. It cannot make up for missed turns, but
    /// pays nothing: an origin that is always full blocks the class at each turn, and the payments would starve it.
    mutating func classBecameUnblocked(_ priority: PriorityClass) {
        spentCosts[priority] = max(spentCosts[priority], costOfNewlyBusyClass)
    }
}

/// One value for each class, without an allocation.
struct PriorityClassTable<Element> {
    private var values: InlineArray<4, Element>

    init(repeating value: Element) { values = InlineArray(repeating: value) }

    subscript(priority: PriorityClass) -> Element {
        _read { yield values[Int(priority.rawValue)] }
        _modify { yield &values[Int(priority.rawValue)] }
    }

    func allSatisfy(_ isMatch: (Element) -> Bool) -> Bool { values.indices.allSatisfy { isMatch(values[$0]) } }
}

extension PriorityClassTable: Equatable where Element: Equatable {
    static func == (left: Self, right: Self) -> Bool {
        left.values.indices.allSatisfy { left.values[$0] == right.values[$0] }
    }
}
