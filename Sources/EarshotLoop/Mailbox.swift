internal import Synchronization

/// The one door by which another thread reaches a loop: it puts values in, the loop's thread takes them out.
public final class Mailbox<Value: Sendable>: Sendable {
    private struct State {
        var values: [Value] = []
        var isClosed = false
    }

    private let state = Mutex(State())
    private let counter: EventCounter

    /// - Throws: `SystemError` when there is no descriptor to be had.
    public init() throws(SystemError) {
        counter = try EventCounter()
    }

    /// Readable when values wait. Register it with the loop, and ``takeAll()`` in the handler.
    public var descriptor: Int32 { counter.descriptor }

    /// Puts `value` in and wakes the loop. From any thread. The box has no bound: its user has.
    ///
    /// - Returns: false when the box was closed: then nobody will take it out.
    @discardableResult
    public func put(_ value: Value) -> Bool {
        let (isTaken, wasEmpty) = state.withLock(of: self) { state in
            guard !state.isClosed else { return (false, false) }
            state.values.append(value)
            return (true, state.values.count == 1)
        }
        if wasEmpty { counter.signal() }
        return isTaken
    }

    /// Takes out all that waits, in the order it was put in.
    public func takeAll() -> [Value] {
        // The signal first: one that comes after it belongs to values not yet taken, and wakes the loop again.
        counter.take()
        return state.withLock(of: self) { state in
            let taken = state.values
            state.values = []
            return taken
        }
    }

    /// Lets nothing in any more.
    ///
    /// - Returns: what waited.
    public func close() -> [Value] {
        state.withLock(of: self) { state in
            let taken = state.values
            state = State(isClosed: true)
            return taken
        }
    }
}
