/// The slots of all workers that take work.
struct SlotCount {
    private(set) var total = 0
    private(set) var free = 0
    /// How many lower classes than `high` have.
    private(set) var lower = 0

    /// How many of them are kept for class `high`: a quarter, rounded down.
    var forHigh: Int { total / 4 }

    /// Whether what is left is kept for `high`. Lower classes are bounded by what they have, not by what is free: else
    /// `high`, which takes each slot that comes free, would leave them none.
    var areForHigh: Bool { lower >= total - forHigh }

    mutating func add(_ worker: WorkerSession) {
        guard worker.phase == .ready else { return }
        total += worker.slots
        free += max(0, worker.freeSlots)
        lower += worker.lower
    }
}
