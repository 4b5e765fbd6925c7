internal import HeapModule

/// A timer that was set, for cancelling it.
public struct TimerID: Hashable, Sendable {
    /// Counts the timers that were ever set, from 1.
    fileprivate let number: UInt64
    /// Where its handler is, as long as it is set.
    fileprivate let slot: Int
}

/// Timers in the order of their deadlines; equal deadlines in the order they were set.
///
/// Setting is O(log n). Cancelling is O(1): the deadline stays behind until it is due or more than half of what is
/// kept is of that kind, and is then skipped. Nothing is looked up in a table: most timers are cancelled, one or two
/// for each piece of work.
struct TimerQueue {
    private struct Entry: Comparable {
        let deadline: LoopTime
        let timer: TimerID

        static func < (left: Entry, right: Entry) -> Bool {
            (left.deadline, left.timer.number) < (right.deadline, right.timer.number)
        }
    }

    private struct Slot {
        /// The timer's, or 0 while the slot is free.
        var number: UInt64 = 0
        var handler: (() -> Void)?
    }

    private var heap = Heap<Entry>()
    private var slots: [Slot] = []
    private var freeSlots: [Int] = []
    /// The number of the timer that was set last.
    private(set) var newest: UInt64 = 0

    /// Timers that are set.
    var count: Int { slots.count - freeSlots.count }

    mutating func set(_ deadline: LoopTime, _ handler: @escaping () -> Void) -> TimerID {
        newest += 1
        let slot = freeSlots.popLast() ?? slots.count
        if slot == slots.count { slots.append(Slot()) }
        slots[slot] = Slot(number: newest, handler: handler)
        let timer = TimerID(number: newest, slot: slot)
        heap.insert(Entry(deadline: deadline, timer: timer))
        return timer
    }

    /// Nothing happens if the timer has fired or was cancelled.
    mutating func cancel(_ timer: TimerID) {
        guard isSet(timer) else { return }
        vacate(timer.slot)
        guard heap.count > 64, heap.count > 2 * count else { return }
        heap = Heap(heap.unordered.filter { isSet($0.timer) })
    }

    /// The deadline of the first timer that is set.
    mutating func next() -> LoopTime? {
        while let first = heap.min {
            if isSet(first.timer) { return first.deadline }
            heap.removeMin()
        }
        return nil
    }

    /// Takes out the first timer that is due at `now` and whose number is at most `last`.
    mutating func takeDue(_ now: LoopTime, through last: UInt64) -> (() -> Void)? {
        guard let deadline = next(), deadline <= now, let timer = heap.min?.timer, timer.number <= last else {
            return nil
        }
        heap.removeMin()
        defer { vacate(timer.slot) }
        return slots[timer.slot].handler
    }

    private func isSet(_ timer: TimerID) -> Bool { slots[timer.slot].number == timer.number }

    private mutating func vacate(_ slot: Int) {
        slots[slot] = Slot()
        freeSlots.append(slot)
    }
}
