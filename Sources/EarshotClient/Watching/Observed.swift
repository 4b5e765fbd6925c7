internal import EarshotLoop
internal import Synchronization

/// Value that one side changes and others await. Slow observers see only the latest value.
final class Observed<Value: Sendable>: Sendable {
    private struct State {
        var value: Value
        /// Number of changes.
        var version: UInt64 = 0
        var waiters: [UInt64: CheckedContinuation<Void, Never>] = [:]
        var lastWaiter: UInt64 = 0
    }

    private let state: Mutex<State>

    init(_ value: Value) {
        state = Mutex(State(value: value))
    }

    /// The value and its version for ``changed(since:)``.
    var current: (value: Value, version: UInt64) { state.withLock(of: self) { ($0.value, $0.version) } }

    /// Changes the value and resumes all waiting tasks.
    func change<Answer: Sendable>(_ body: (inout Value) -> Answer) -> Answer {
        let (answer, waiters) = state.withLock(of: self) { state in
            let answer = body(&state.value)
            state.version += 1
            let waiters = state.waiters.values.map { $0 }
            state.waiters = [:]
            return (answer, waiters)
        }
        for waiter in waiters { waiter.resume() }
        return answer
    }

    /// Changes the value without resuming tasks, for changes that none awaits.
    func changeQuietly<Answer: Sendable>(_ body: (inout Value) -> Answer) -> Answer {
        state.withLock(of: self) { body(&$0.value) }
    }

    /// Waits until the version differs from `version` or the task is cancelled.
    func changed(since version: UInt64, isolation actor: isolated (any Actor)? = #isolation) async {
        let number = state.withLock(of: self) { state in
            state.lastWaiter += 1
            return state.lastWaiter
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
