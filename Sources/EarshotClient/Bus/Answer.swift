/// One-shot result that the loop thread delivers to a waiting task.
///
/// State machine: `open -> completed` when the loop delivers the result, `open -> abandoned` when the task stops waiting. Both
/// end states are final.
final class Answer<Value: Sendable>: Sendable {
    private enum State {
        case open
        case completed(Result<Value, BusError>)
        case abandoned
    }

    private let state = Observed(State.open)

    /// Delivers the result. Has no effect in an end state.
    func complete(_ result: Result<Value, BusError>) { end(.completed(result)) }

    /// Records that the task no longer waits. Has no effect in an end state.
    func abandon() { end(.abandoned) }

    /// Whether the task stopped waiting before the result arrived.
    var wasAbandoned: Bool { if case .abandoned = state.current.value { true } else { false } }

    /// Waits for the result.
    ///
    /// - Throws: the delivered ``BusError``; `CancellationError` when the task is cancelled first, which also ends the
    ///   wait for good.
    nonisolated(nonsending) func value() async throws -> Value {
        while true {
            let (state, version) = state.current
            switch state {
            case .completed(let result): return try result.get()
            case .abandoned: throw CancellationError()
            case .open: if Task.isCancelled { abandon() } else { await self.state.changed(since: version) }
            }
        }
    }

    private func end(_ ending: State) {
        state.change { state in
            if case .open = state { state = ending }
        }
    }
}
