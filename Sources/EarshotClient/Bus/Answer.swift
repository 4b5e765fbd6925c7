/// What the loop tells a task that waits for something else than a response, once; or that the task no longer waits,
/// whichever came first.
final class Answer<Value: Sendable>: Sendable {
    private enum State {
        case open
        case told(Result<Value, BusError>)
        case givenUp
    }

    private let state = Observed(State.open)

    /// Tells it. What is told later is not heard.
    func tell(_ result: Result<Value, BusError>) { end(.told(result)) }

    /// Waits no longer. Nothing happens if it was told before.
    func giveUp() { end(.givenUp) }

    /// Whether the task went before it was told.
    var wasGivenUp: Bool { if case .givenUp = state.current.value { true } else { false } }

    /// Waits for it.
    ///
    /// - Throws: what was told, ``BusError``; `CancellationError` when the task is cancelled before, and then it was
    ///   given up.
    nonisolated(nonsending) func value() async throws -> Value {
        while true {
            let (state, version) = state.current
            switch state {
            case .told(let result): return try result.get()
            case .givenUp: throw CancellationError()
            case .open: if Task.isCancelled { giveUp() } else { await self.state.changed(since: version) }
            }
        }
    }

    private func end(_ ending: State) {
        state.change { state in
            if case .open = state { state = ending }
        }
    }
}
