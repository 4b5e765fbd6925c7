internal import DequeModule
internal import EarshotWire

/// Who waits for the broker's word on a removal or a submission.
struct OpenAnswers {
    private struct Removal {
        let pattern: HandlerPattern
        /// Nil for that of a handler that is gone.
        let answer: Answer<Int>?
    }

    /// In the order in which they were said, which is that of their answers.
    private var removals = Deque<Removal>()
    private var submissions: [RequestKey: Answer<Void>] = [:]

    /// A removal was said; nobody may wait for it.
    mutating func removing(_ pattern: HandlerPattern, _ answer: Answer<Int>?) {
        removals.append(Removal(pattern: pattern, answer: answer))
    }

    mutating func removed(_ pattern: HandlerPattern, count: Int) {
        guard let index = removals.firstIndex(where: { $0.pattern == pattern }) else { return }
        removals.remove(at: index).answer?.tell(.success(count))
    }

    /// - Returns: false if the same one is on its way: then nothing is noted.
    mutating func submitting(_ key: RequestKey, _ answer: Answer<Void>) -> Bool {
        guard submissions[key] == nil else { return false }
        submissions[key] = answer
        return true
    }

    /// - Returns: whether it was one that is on its way.
    @discardableResult
    mutating func refused(_ key: RequestKey, _ error: BusError) -> Bool {
        guard let answer = submissions.removeValue(forKey: key) else { return false }
        answer.tell(.failure(error))
        return true
    }

    /// It is on the disk.
    ///
    /// - Returns: whether it is to be withdrawn, since its task went before it was told.
    mutating func accepted(_ key: RequestKey) -> Bool {
        guard let answer = submissions.removeValue(forKey: key) else { return false }
        answer.tell(.success(()))
        return answer.wasGivenUp
    }

    /// Its task waits no longer.
    ///
    /// - Returns: false if it was answered before.
    mutating func withdraw(_ key: RequestKey, _ answer: Answer<Void>) -> Bool {
        guard submissions[key] === answer else { return false }
        submissions[key] = nil
        return true
    }

    /// Ends submissions under what is removed: no answer comes to them.
    mutating func purge(_ pattern: HandlerPattern) {
        for key in submissions.keys.filter({ pattern.matches($0.handler) }) { refused(key, .removed) }
    }

    /// Ends all.
    ///
    /// - Returns: the submissions that were on their way.
    mutating func fail(_ error: BusError) -> [RequestKey] {
        // The answers may come all the same, and tell nobody.
        for removal in removals { removal.answer?.tell(.failure(error)) }
        for answer in submissions.values { answer.tell(.failure(error)) }
        defer { submissions = [:] }
        return Array(submissions.keys)
    }
}
