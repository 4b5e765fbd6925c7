internal import DequeModule
internal import EarshotWire

/// Tasks that wait for the broker's answer to a removal, a submission or a repetition.
struct OpenAnswers {
    private struct Removal {
        let pattern: HandlerPattern
        /// Nil if no task waits, as after the end of a handler.
        let answer: Answer<Int>?
    }

    /// In the order of sending, which is the order of the answers. While disconnected,
    /// `ClientCore.maximumUnsentRemovals` bounds them.
    private var removals = Deque<Removal>()
    private var submissions: [RequestKey: Answer<Void>] = [:]
    private var retries: [RequestKey: Answer<Void>] = [:]

    /// Records a sent removal.
    mutating func addRemoval(_ pattern: HandlerPattern, _ answer: Answer<Int>?) {
        removals.append(Removal(pattern: pattern, answer: answer))
    }

    mutating func handlersRemoved(_ pattern: HandlerPattern, count: Int) {
        guard let index = removals.firstIndex(where: { $0.pattern == pattern }) else { return }
        removals.remove(at: index).answer?.complete(.success(count))
    }

    /// - Returns: false if a submission with this key is pending; then nothing is recorded.
    mutating func addSubmission(_ key: RequestKey, _ answer: Answer<Void>) -> Bool {
        guard submissions[key] == nil else { return false }
        submissions[key] = answer
        return true
    }

    /// - Returns: false if a repetition with this key is pending; then nothing is recorded.
    mutating func addRetry(_ key: RequestKey, _ answer: Answer<Void>) -> Bool {
        guard retries[key] == nil else { return false }
        retries[key] = answer
        return true
    }

    /// - Returns: whether a submission or a repetition with this key was pending.
    @discardableResult
    mutating func messageRefused(_ key: RequestKey, _ error: BusError) -> Bool {
        if let answer = retries.removeValue(forKey: key) {
            answer.complete(.failure(error))
            return true
        }
        guard let answer = submissions.removeValue(forKey: key) else { return false }
        answer.complete(.failure(error))
        return true
    }

    /// Completes a submission or a repetition that the broker has stored.
    ///
    /// - Returns: whether it must be cancelled, because its task was cancelled first.
    mutating func requestAccepted(_ key: RequestKey) -> Bool {
        retries.removeValue(forKey: key)?.complete(.success(()))
        guard let answer = submissions.removeValue(forKey: key) else { return false }
        answer.complete(.success(()))
        return answer.wasAbandoned
    }

    /// Forgets a submission whose task was cancelled.
    ///
    /// - Returns: false if the answer arrived first.
    mutating func withdrawSubmission(_ key: RequestKey, answer: Answer<Void>) -> Bool {
        guard submissions[key] === answer else { return false }
        submissions[key] = nil
        return true
    }

    /// Fails submissions and repetitions under a removed name: the broker sends no answer to them.
    mutating func failSubmissions(under pattern: HandlerPattern) {
        for key in retries.keys.filter({ pattern.matches($0.handler) }) { messageRefused(key, .handlerRemoved) }
        for key in submissions.keys.filter({ pattern.matches($0.handler) }) { messageRefused(key, .handlerRemoved) }
    }

    /// Fails all waiting tasks.
    ///
    /// - Returns: keys of the pending submissions.
    mutating func fail(_ error: BusError) -> [RequestKey] {
        // The removals stay in the table so that late answers match; a second completion has no effect.
        for removal in removals { removal.answer?.complete(.failure(error)) }
        for answer in retries.values { answer.complete(.failure(error)) }
        retries = [:]
        for answer in submissions.values { answer.complete(.failure(error)) }
        defer { submissions = [:] }
        return Array(submissions.keys)
    }
}

/// One-shot result that the loop thread delivers to a waiting task.
///
/// State machine: `pending -> completed` when the loop delivers the result, `pending -> abandoned` when the task stops
/// waiting. Both end states are final.
final class Answer<Value: Sendable>: Sendable {
    private enum State {
        case pending
        case completed(Result<Value, BusError>)
        case abandoned
    }

    private let state = Observed(State.pending)

    /// Delivers the result. Has no effect in an end state.
    func complete(_ result: Result<Value, BusError>) { transition(to: .completed(result)) }

    /// Records that the task no longer waits. Has no effect in an end state.
    func abandon() { transition(to: .abandoned) }

    /// Whether the task stopped waiting before the result arrived.
    var wasAbandoned: Bool { if case .abandoned = state.versionedValue.value { true } else { false } }

    /// Waits for the result.
    ///
    /// - Throws: the delivered ``BusError``; `CancellationError` when the task is cancelled first, which also ends the
    ///   wait for good.
    nonisolated(nonsending) func value() async throws -> Value {
        while true {
            let (state, version) = state.versionedValue
            switch state {
            case .completed(let result): return try result.get()
            case .abandoned: throw CancellationError()
            case .pending: if Task.isCancelled { abandon() } else { await self.state.changed(since: version) }
            }
        }
    }

    private func transition(to ending: State) {
        state.change { state in
            if case .pending = state { state = ending }
        }
    }
}
