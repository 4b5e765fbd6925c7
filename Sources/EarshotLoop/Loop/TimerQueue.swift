internal import HeapModule

/// Timers ordered by deadline; equal deadlines in the order of insertion.
///
/// Setting takes O(log n), cancelling O(1) amortized. A cancelled entry stays in the heap and is skipped when it is
/// due. The heap is rebuilt when more than half of its entries are cancelled. There is no hash table lookup, because
/// most timers are cancelled, one or two per piece of work.
struct TimerQueue {
    private struct Entry: Comparable {
        let deadline: LoopTime
        let timer: TimerID

        static func < (left: Entry, right: Entry) -> Bool {
            (left.deadline, left.timer.sequenceNumber) < (right.deadline, right.timer.sequenceNumber)
        }
    }

    private struct Slot {
        /// Sequence number of its timer; 0 while the slot is free.
        var sequenceNumber: UInt64 = 0
        var handler: (() -> Void)?
    }

    private var heap = Heap<Entry>()
    private var slots: [Slot] = []
    private var freeSlots: [Int] = []
    /// Sequence number of the newest timer.
    private(set) var newestSequence: UInt64 = 0

    /// Number of timers that are set.
    var count: Int { slots.count - freeSlots.count }

    mutating func insert(deadline: LoopTime, handler: @escaping () -> Void) -> TimerID {
        newestSequence += 1
        let slot = freeSlots.popLast() ?? slots.count
        if slot == slots.count { slots.append(Slot()) }
        slots[slot] = Slot(sequenceNumber: newestSequence, handler: handler)
        let timer = TimerID(sequenceNumber: newestSequence, slotIndex: slot)
        heap.insert(Entry(deadline: deadline, timer: timer))
        return timer
    }

    /// Cancels a timer. No effect if it has fired or was cancelled.
    mutating func cancel(_ timer: TimerID) {
        guard isSet(timer) else { return }
        freeSlot(timer.slotIndex)
        guard heap.count > 64, heap.count > 2 * count else { return }
        heap = Heap(heap.unordered.filter { isSet($0.timer) })
    }

    /// Deadline of the earliest timer.
    mutating func nextDeadline() -> LoopTime? {
        while let first = heap.min {
            if isSet(first.timer) { return first.deadline }
            heap.removeMin()
        }
        return nil
    }

    /// Removes the earliest timer that is due at `now` and has a number of at most `last`. Returns its handler.
    mutating func takeDueHandler(now: LoopTime, throughSequence last: UInt64) -> (() -> Void)? {
        guard let deadline = nextDeadline(), deadline <= now, let timer = heap.min?.timer, timer.sequenceNumber <= last
        else { return nil }
        heap.removeMin()
        defer { freeSlot(timer.slotIndex) }
        return slots[timer.slotIndex].handler
    }

    private func isSet(_ timer: TimerID) -> Bool { slots[timer.slotIndex].sequenceNumber == timer.sequenceNumber }

    private mutating func freeSlot(_ slot: Int) {
        slots[slot] = Slot()
        freeSlots.append(slot)
    }
}

/// Handle of a timer, for cancelling it.
public struct TimerID: Hashable, Sendable {
    /// Sequence number of the timer, from 1.
    fileprivate let sequenceNumber: UInt64
    /// Index of its handler while it is set.
    fileprivate let slotIndex: Int
}
