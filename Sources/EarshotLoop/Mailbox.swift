internal import Synchronization

/// The one door by which another thread reaches a loop: it puts values in, the loop's thread takes them out.
public final class Mailbox<Value: Sendable>: Sendable {
    private let values = Mutex<[Value]>([])
    private let counter: EventCounter

    /// - Throws: `SystemError` when there is no descriptor to be had.
    public init() throws(SystemError) {
        counter = try EventCounter()
    }

    /// Readable when values wait. Register it with the loop, and ``takeAll()`` in the handler.
    public var descriptor: Int32 { counter.descriptor }

    /// Puts `value` in and wakes the loop. From any thread. The box has no bound: its user has.
    public func put(_ value: Value) {
        let wasEmpty = values.withLock { values in
            values.append(value)
            return values.count == 1
        }
        if wasEmpty { counter.signal() }
    }

    /// Takes out all that waits, in the order it was put in.
    public func takeAll() -> [Value] {
        // The signal first: one that comes after it belongs to values not yet taken, and wakes the loop again.
        counter.take()
        return values.withLock { values in
            let taken = values
            values = []
            return taken
        }
    }
}
