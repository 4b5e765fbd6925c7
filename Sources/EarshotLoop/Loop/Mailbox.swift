internal import CLinux
internal import Glibc
internal import Synchronization

/// Queue that carries values from other threads to a loop's thread.
///
/// A loop has two ways to take values. It may call ``takeAll()`` in the handler of ``descriptor``, and is woken for the
/// first value after that. Or it calls ``takeSome(into:)`` in each pass and ``mayRest()`` before it sleeps, which saves
/// the system call that wakes a loop already awake.
public final class Mailbox<Value: Sendable>: Sendable {
    /// Result of putting a value in.
    public enum Placement: Equatable, Sendable {
        /// The box is closed: the value was not accepted.
        case refused
        /// Accepted; the loop is awake.
        case taken
        /// Accepted; the caller must call ``wake()``.
        case takenAsleep
    }

    /// Maximum capacity kept between calls, in values.
    private static var keptValues: Int { 1_024 }

    private struct State {
        var values: [Value] = []
        var isClosed = false
        /// Whether the loop sleeps, or may fall asleep without checking the box.
        var isAsleep = true
    }

    private let state = Mutex(State())
    private let counter: EventCounter

    /// - Throws: `SystemError` if no descriptor is available.
    public init() throws(SystemError) {
        counter = try EventCounter()
    }

    /// Readable after the loop was woken.
    public var descriptor: Int32 { counter.descriptor }

    /// Adds `value` and wakes the loop. Callable from any thread. The box is unbounded: its user bounds the number of
    /// values.
    ///
    /// - Returns: false if the box is closed; the value is discarded.
    @discardableResult
    public func put(_ value: Value) -> Bool {
        let placement = place(value)
        if placement == .takenAsleep { wake() }
        return placement != .refused
    }

    /// Equivalent of ``put(_:)`` that leaves waking the loop to the caller. For a caller that holds a lock which the
    /// loop also takes: the woken thread may preempt the waker.
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

    /// Takes all values in the order of their arrival.
    public func takeAll() -> [Value] {
        // The signal is taken first: a later one belongs to values not yet taken, and wakes the loop again.
        counter.take()
        return take { $0.isAsleep = true }
    }

    /// Equivalent of ``takeAll()`` for a loop that calls ``mayRest()`` before it sleeps.
    ///
    /// - Parameter values: Receives the values. Its previous elements are removed, and its memory is reused for new
    ///   values.
    public func takeSome(into values: inout [Value]) {
        values.removeAll(keepingCapacity: values.capacity <= Self.keptValues)
        state.withLock(of: self) { state in
            state.isAsleep = false
            swap(&state.values, &values)
        }
    }

    /// Returns whether the box is empty. If so, the next value wakes the loop.
    public func mayRest() -> Bool {
        state.withLock(of: self) { state in
            state.isAsleep = state.values.isEmpty
            return state.isAsleep
        }
    }

    /// Makes the descriptor unreadable after a wake-up.
    public func resetWake() { counter.take() }

    /// Closes the box to new values.
    ///
    /// - Returns: Values not yet taken.
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

/// Descriptor that any thread can make readable: eventfd(2).
public final class EventCounter: Sendable {
    /// Readable from ``signal()`` until ``take()``.
    public let descriptor: Int32

    /// - Throws: `SystemError` if no descriptor is available.
    public init() throws(SystemError) {
        descriptor = eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK))
        guard descriptor >= 0 else { throw SystemError("eventfd") }
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Makes the descriptor readable.
    public func signal() {
        var one: UInt64 = 1
        // EAGAIN: the counter is full, so the descriptor is readable already.
        while unsafe write(descriptor, &one, 8) < 0 && errno == EINTR {}
    }

    /// Makes the descriptor unreadable. Returns the number of signals since the last call.
    @discardableResult
    public func take() -> UInt64 {
        var count: UInt64 = 0
        while unsafe read(descriptor, &count, 8) < 0 && errno == EINTR {}
        return count
    }
}
