/// What the loop tells a task that waits for something else than a response, once.
final class Answer<Value: Sendable>: Sendable {
    private let result = Observed<Result<Value, BusError>?>(nil)

    /// Tells it. What is told later is not heard.
    func tell(_ result: Result<Value, BusError>) { self.result.change { $0 = $0 ?? result } }

    /// Waits for it.
    ///
    /// - Throws: what was told, ``BusError``; `CancellationError` when the task is cancelled before.
    nonisolated(nonsending) func value() async throws -> Value {
        while true {
            let (result, version) = result.current
            if let result { return try result.get() }
            try Task.checkCancellation()
            await self.result.changed(since: version)
        }
    }
}
