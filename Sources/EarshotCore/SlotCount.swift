/// The slots of all workers that take work.
struct SlotCount {
    private(set) var total = 0
    private(set) var free = 0

    /// How many of them are kept for class `high`: a quarter, rounded down.
    var forHigh: Int { total / 4 }

    /// Whether those that are free are the ones kept for `high`.
    var areForHigh: Bool { free <= forHigh }

    mutating func add(_ worker: WorkerSession) {
        guard worker.phase == .ready else { return }
        total += worker.slots
        free += max(0, worker.freeSlots)
    }
}
