internal import HeapModule

/// A timer that was set, for cancelling it.
public struct TimerID: Hashable, Sendable {
    fileprivate let number: UInt64
}

/// Timers in the order of their deadlines; equal deadlines in the order they were set.
///
/// Setting is O(log n). Cancelling is O(1): the deadline stays behind until it is due or more than half of what is
/// kept is of that kind, and is then skipped.
struct TimerQueue {
    private struct Entry: Comparable {
        let deadline: LoopTime
        let number: UInt64

        static func < (left: Entry, right: Entry) -> Bool {
            (left.deadline, left.number) < (right.deadline, right.number)
        }
    }

    private var heap = Heap<Entry>()
    private var handlers: [UInt64: () -> Void] = [:]
    private var lastNumber: UInt64 = 0

    /// Timers that are set.
    var count: Int { handlers.count }

    mutating func set(_ deadline: LoopTime, _ handler: @escaping () -> Void) -> TimerID {
        lastNumber += 1
        heap.insert(Entry(deadline: deadline, number: lastNumber))
        handlers[lastNumber] = handler
        return TimerID(number: lastNumber)
    }

    /// Nothing happens if the timer has fired or was cancelled.
    mutating func cancel(_ timer: TimerID) {
        handlers[timer.number] = nil
        guard heap.count > 64, heap.count > 2 * handlers.count else { return }
        heap = Heap(heap.unordered.filter { handlers[$0.number] != nil })
    }

    /// The deadline of the first timer that is set.
    mutating func next() -> LoopTime? {
        while let first = heap.min {
            if handlers[first.number] != nil { return first.deadline }
            heap.removeMin()
        }
        return nil
    }

    /// Takes out the first timer that is due at `now` and was set no later than `last`.
    mutating func takeDue(_ now: LoopTime, through last: TimerID) -> (() -> Void)? {
        guard let deadline = next(), deadline <= now, let first = heap.min, first.number <= last.number else {
            return nil
        }
        heap.removeMin()
        return handlers.removeValue(forKey: first.number)
    }

    /// The timer set last.
    var newest: TimerID { TimerID(number: lastNumber) }
}
