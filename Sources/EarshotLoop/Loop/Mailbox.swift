internal import Synchronization

/// The one door by which another thread reaches a loop: it puts values in, the loop's thread takes them out.
///
/// A loop takes them in the handler of ``descriptor``, by ``takeAll()``, and is woken for the first value after that.
/// Or it takes them in each pass, by ``takeSome(into:)``, and asks ``mayRest()`` before it sleeps: then nobody spends a
/// system call on waking a loop that is awake.
public final class Mailbox<Value: Sendable>: Sendable {
    /// What became of a value that was put in.
    public enum Placement: Equatable, Sendable {
        /// The box is closed: nobody will take it out.
        case refused
        /// It will be taken out.
        case taken
        /// It will be taken out once ``wake()`` was called.
        case takenAsleep
    }

    /// Values for which there is room all the time.
    private static var keptValues: Int { 1_024 }

    private struct State {
        var values: [Value] = []
        var isClosed = false
        /// Whether the loop is asleep, or may go to sleep without looking.
        var isAsleep = true
    }

    private let state = Mutex(State())
    private let counter: EventCounter

    /// - Throws: `SystemError` when there is no descriptor to be had.
    public init() throws(SystemError) {
        counter = try EventCounter()
    }

    /// Readable when the loop was woken.
    public var descriptor: Int32 { counter.descriptor }

    /// Puts `value` in and wakes the loop. From any thread. The box has no bound: its user has.
    ///
    /// - Returns: false when the box was closed: then nobody will take it out.
    @discardableResult
    public func put(_ value: Value) -> Bool {
        let placement = place(value)
        if placement == .takenAsleep { wake() }
        return placement != .refused
    }

    /// As ``put(_:)``, but leaves it to the caller to wake the loop, for one who holds a lock that the loop takes, too:
    /// who is woken may run at once, in the place of who woke him.
    public func place(_ value: Value) -> Placement {
        state.withLock(of: self) { state in
            guard !state.isClosed else { return .refused }
            state.values.append(value)
            defer { state.isAsleep = false }
            return state.isAsleep ? .takenAsleep : .taken
        }
    }

    /// Wakes the loop.
    public func wake() { counter.signal() }

    /// Takes out all that waits, in the order it was put in.
    public func takeAll() -> [Value] {
        // The signal first: one that comes after it belongs to values not yet taken, and wakes the loop again.
        counter.take()
        return take { $0.isAsleep = true }
    }

    /// As ``takeAll()``, by a loop that asks ``mayRest()`` before it sleeps.
    ///
    /// - Parameter values: what was in it goes; its memory is there for what is put in next.
    public func takeSome(into values: inout [Value]) {
        values.removeAll(keepingCapacity: values.capacity <= Self.keptValues)
        state.withLock(of: self) { state in
            state.isAsleep = false
            swap(&state.values, &values)
        }
    }

    /// Whether nothing waits: from then on what is put in wakes the loop.
    public func mayRest() -> Bool {
        state.withLock(of: self) { state in
            state.isAsleep = state.values.isEmpty
            return state.isAsleep
        }
    }

    /// Makes the descriptor unreadable, after the loop was woken.
    public func heardWake() { counter.take() }

    /// Lets nothing in any more.
    ///
    /// - Returns: what waited.
    public func close() -> [Value] { take { $0.isClosed = true } }

    private func take(_ change: (inout State) -> Void) -> [Value] {
        state.withLock(of: self) { state in
            change(&state)
            let taken = state.values
            state.values = []
            return taken
        }
    }
}
