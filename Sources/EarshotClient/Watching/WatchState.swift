internal import DequeModule
internal import EarshotLoop
internal import EarshotWire
internal import Synchronization

/// Buffer of results between the loop and the reader of a watch.
final class WatchState: Sendable {
    /// Maximum unread results. Each body that is a file holds a descriptor.
    static let maximumUnreadResults = 64

    private struct Buffer {
        var unreadResults = Deque<WatchedRequest>()
        /// Whether the connection is paused until the buffer has room.
        var isPaused = false
        var failure: (any Error)?
    }

    let pattern: HandlerPattern
    /// Whether the reader acknowledges results.
    let isClaim: Bool
    private let buffer = Observed(Buffer())

    init(_ pattern: HandlerPattern, isClaim: Bool = false) {
        self.pattern = pattern
        self.isClaim = isClaim
    }

    /// Error that ended the watch; nil while it runs.
    var failure: (any Error)? { buffer.versionedValue.value.failure }

    /// Number of unread results.
    var unreadCount: Int { buffer.versionedValue.value.unreadResults.count }

    /// Adds a result.
    ///
    /// - Returns: whether the buffer is full, so that the connection must pause. It still accepts results in flight.
    func addResult(_ result: WatchedRequest) -> Bool {
        buffer.change { buffer in
            buffer.unreadResults.append(result)
            // Stays set until `next` makes room.
            buffer.isPaused = buffer.isPaused || buffer.unreadResults.count >= Self.maximumUnreadResults
            return buffer.isPaused
        }
    }

    /// Ends the watch with an error, after the buffered results.
    func fail(_ error: any Error) { buffer.change { $0.failure = $0.failure ?? error } }

    /// Waits for the next result. Calls `resume` when the buffer has room again.
    func next(isolation actor: isolated (any Actor)?, resume: () -> Void) async throws -> WatchedRequest {
        while true {
            try Task.checkCancellation()
            let version = buffer.versionedValue.version
            let (result, failure, hasRoom) = buffer.changeQuietly { buffer in
                let result = buffer.unreadResults.popFirst()
                let hasRoom = buffer.isPaused && buffer.unreadResults.count <= Self.maximumUnreadResults / 2
                if hasRoom { buffer.isPaused = false }
                return (result, buffer.failure, hasRoom)
            }
            if hasRoom { resume() }
            if let result { return result }
            if let failure { throw failure }
            await buffer.changed(since: version)
        }
    }
}

/// Value that one side changes and others await. Slow observers see only the latest value.
final class Observed<Value: Sendable>: Sendable {
    private struct State {
        var value: Value
        /// Number of changes.
        var version: UInt64 = 0
        var waiters: [UInt64: CheckedContinuation<Void, Never>] = [:]
        var lastWaiterID: UInt64 = 0
    }

    private let state: Mutex<State>

    init(_ value: Value) {
        state = Mutex(State(value: value))
    }

    /// The value and its version for ``changed(since:isolation:)``.
    var versionedValue: (value: Value, version: UInt64) { state.withLock(of: self) { ($0.value, $0.version) } }

    /// Changes the value and resumes all waiting tasks.
    func change<Outcome: Sendable>(_ body: (inout Value) -> Outcome) -> Outcome {
        let (outcome, waiters) = state.withLock(of: self) { state in
            let outcome = body(&state.value)
            state.version += 1
            let waiters = state.waiters.values.map { $0 }
            state.waiters = [:]
            return (outcome, waiters)
        }
        for waiter in waiters { waiter.resume() }
        return outcome
    }

    /// Changes the value without resuming tasks, for changes that none awaits.
    func changeQuietly<Outcome: Sendable>(_ body: (inout Value) -> Outcome) -> Outcome {
        state.withLock(of: self) { body(&$0.value) }
    }

    /// Waits until the version differs from `version` or the task is cancelled.
    func changed(since version: UInt64, isolation actor: isolated (any Actor)? = #isolation) async {
        let number = state.withLock(of: self) { state in
            state.lastWaiterID += 1
            return state.lastWaiterID
        }
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let isOver = state.withLock(of: self) { state in
                    // Cancellation sets the flag first and then calls the handler, which finds this entry.
                    if state.version != version || Task.isCancelled { return true }
                    state.waiters[number] = continuation
                    return false
                }
                if isOver { continuation.resume() }
            }
        } onCancel: {
            state.withLock(of: self) { $0.waiters.removeValue(forKey: number) }?.resume()
        }
    }
}
