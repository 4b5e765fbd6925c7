internal import CLinux
internal import Glibc
internal import Synchronization

/// Queue that carries values from other threads to a loop's thread.
///
/// A loop has two ways to take values. It may call ``takeAll()`` in the handler of ``descriptor``, and is woken for the
/// first value after that. Or it calls ``takeAll(into:)`` in each pass and ``prepareToSleep()`` before it sleeps, which
/// saves the system call that wakes a loop already awake.
public final class Mailbox<Value: Sendable>: Sendable {
    /// Result of putting a value in.
    public enum PutResult: Equatable, Sendable {
        /// The mailbox is closed: the value was not accepted.
        case refused
        /// Accepted; the loop is awake.
        case acceptedAwake
        /// Accepted; the caller must call ``wake()``.
        case acceptedNeedsWake
    }

    /// Maximum capacity kept between calls, in values.
    private static var maximumKeptCapacity: Int { 1_024 }

    private struct State {
        var values: [Value] = []
        var isClosed = false
        /// Whether the loop sleeps, or may fall asleep without checking the mailbox.
        var isLoopAsleep = true
    }

    private let state = Mutex(State())
    private let wakeCounter: EventCounter

    /// - Throws: `SystemError` if no descriptor is available.
    public init() throws(SystemError) {
        wakeCounter = try EventCounter()
    }

    /// Readable after the loop was woken.
    public var descriptor: Int32 { wakeCounter.descriptor }

    /// Adds `value` and wakes the loop. Callable from any thread. The mailbox is unbounded: its user bounds the
    /// number of values.
    ///
    /// - Returns: false if the mailbox is closed; the value is discarded.
    @discardableResult
    public func put(_ value: Value) -> Bool {
        let placement = putWithoutWaking(value)
        if placement == .acceptedNeedsWake { wake() }
        return placement != .refused
    }

    /// Equivalent of ``put(_:)`` that leaves waking the loop to the caller. For a caller that holds a lock which the
    /// loop also takes: the woken thread may preempt the waker.
    public func putWithoutWaking(_ value: Value) -> PutResult {
        state.withLock(of: self) { state in
            guard !state.isClosed else { return .refused }
            state.values.append(value)
            defer { state.isLoopAsleep = false }
            return state.isLoopAsleep ? .acceptedNeedsWake : .acceptedAwake
        }
    }

    /// Wakes the loop.
    public func wake() { wakeCounter.signal() }

    /// Takes all values in the order of their arrival.
    public func takeAll() -> [Value] {
        // The signal is taken first: a later one belongs to values not yet taken, and wakes the loop again.
        wakeCounter.reset()
        return takeAll { $0.isLoopAsleep = true }
    }

    /// Equivalent of ``takeAll()`` for a loop that calls ``prepareToSleep()`` before it sleeps.
    ///
    /// - Parameter values: Receives the values. Its previous elements are removed, and its memory is reused for new
    ///   values.
    public func takeAll(into values: inout [Value]) {
        values.removeAll(keepingCapacity: values.capacity <= Self.maximumKeptCapacity)
        state.withLock(of: self) { state in
            state.isLoopAsleep = false
            swap(&state.values, &values)
        }
    }

    /// Returns whether the mailbox is empty. If so, the next value wakes the loop.
    public func prepareToSleep() -> Bool {
        state.withLock(of: self) { state in
            state.isLoopAsleep = state.values.isEmpty
            return state.isLoopAsleep
        }
    }

    /// Makes the descriptor unreadable after a wake-up.
    public func clearWakeSignal() { wakeCounter.reset() }

    /// Closes the mailbox to new values.
    ///
    /// - Returns: Values not yet taken.
    public func close() -> [Value] { takeAll { $0.isClosed = true } }

    private func takeAll(changing change: (inout State) -> Void) -> [Value] {
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
    /// Readable from ``signal()`` until ``reset()``.
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
    public func reset() -> UInt64 {
        var count: UInt64 = 0
        while unsafe read(descriptor, &count, 8) < 0 && errno == EINTR {}
        return count
    }
}

/// Thread that runs one function. It communicates with a loop only through a `Mailbox`.
public enum BackgroundThread {
    /// Box that carries the function to the thread.
    private final class FunctionBox: Sendable {
        let body: @Sendable () -> Void

        init(_ body: @escaping @Sendable () -> Void) {
            self.body = body
        }
    }

    /// Runs `body` on a new thread with the caller's signal mask.
    ///
    /// - Throws: `SystemError` if the thread cannot be created; then `body` does not run.
    public static func run(_ body: @escaping @Sendable () -> Void) throws(SystemError) {
        var thread = pthread_t()
        let work = unsafe Unmanaged.passRetained(FunctionBox(body))
        let code = unsafe pthread_create(
            &thread, nil,
            { context in
                guard let context = unsafe context else { return nil }
                unsafe Unmanaged<FunctionBox>.fromOpaque(context).takeRetainedValue().body()
                return nil
            }, work.toOpaque())
        guard code == 0 else {
            unsafe work.release()
            throw SystemError("pthread_create", number: code)
        }
        pthread_detach(thread)
    }
}
