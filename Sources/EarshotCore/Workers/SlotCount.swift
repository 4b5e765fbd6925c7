/// Sums of the slots of ready workers, which `WorkerFleet` keeps: whether all classes may start, or only `high`.
package struct SlotCount {
    package private(set) var total = 0
    package private(set) var free = 0
    /// Slots taken by classes below `high`.
    private(set) var slotsBelowHigh = 0

    /// Slots reserved for class `high`: a quarter, rounded down.
    package var forHigh: Int { total / 4 }

    /// Whether only class `high` may start. Lower classes are limited by the slots that they occupy, not by the free
    /// ones. Otherwise `high`, which takes each freed slot first, would starve them.
    package var areForHigh: Bool { slotsBelowHigh >= total - forHigh }

    /// Adds the slots of a ready worker.
    mutating func add(slots: Int, free: Int, belowHigh: Int) {
        total += slots
        self.free += free
        slotsBelowHigh += belowHigh
    }
}
