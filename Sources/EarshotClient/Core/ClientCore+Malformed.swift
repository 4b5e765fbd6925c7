internal import DequeModule
internal import EarshotWire

/// Messages that violate the grammar. The broker has counted them, so the core counts their legible parts.
extension ClientCore {
    /// Handles a malformed message. A reply is the answer to the first open question of its kind. A terminal counts as
    /// received and ends its request.
    mutating func received(malformed fragment: BrokerFragment, _ error: WireError) -> [ClientAction] {
        var report = ErrorReply(error)
        guard phase == .ready else { return [.report(.refused(report))] }
        if fragment.isReply { replies += 1 }
        var actions: [ClientAction] = []
        switch fragment.verb {
        case "REMOVED":
            actions = settleFirstRemoval()
        case "ANSWER":
            if settleFirstQuery() { report.verb = "QUERY" }
        case "CHANGED":
            if settleSetting() { report.verb = "SET" }
        case "TAKEN":
            actions = takeUnanswered()
        case "ACCEPTED":
            name(settleFirstDurable(), in: &report)
        case "RESULT", "FAILED":
            let key = fragment.handler.flatMap { handler in fragment.request.map { RequestKey(handler, $0) } }
            if let sequence = fragment.sequence {
                guard ledger.receive(sequence, of: key) else { return [] }
                ledger.finish(sequence)
            }
            if let key, !isStale(key), endRequest(key) { name(key, in: &report) }
        default: break
        }
        return actions + sayHeld() + [.report(.refused(report))]
    }

    /// Makes a report the end of a request.
    private func name(_ key: RequestKey?, in report: inout ErrorReply) {
        guard let key else { return }
        (report.code, report.verb, report.handler, report.request) = ("internal", "FETCH", key.handler, key.request)
    }

    private mutating func settleFirstRemoval() -> [ClientAction] {
        guard let what = awaited.first(where: \.what.isRemoval)?.what else { return [] }
        _ = settle(what)
        return switch what {
        case .cancel(let key): [.report(.cancelled(key, wasOpen: false))]
        case .remove(let pattern): [.report(.removed(pattern, count: 0))]
        case .replacement, .retry, .query, .take, .barrier, .setting, .submission: []
        }
    }

    /// Delivers the terminal whose TAKE was pending for the longest time. Its file may have another name.
    private mutating func takeUnanswered() -> [ClientAction] {
        for case .take(let sequence) in awaited.lazy.map(\.what) { return taken(sequence, nil) }
        return []
    }

    /// - Returns: the durable submission or repetition that was pending for the longest time.
    private mutating func settleFirstDurable() -> RequestKey? {
        for question in awaited {
            if case .submission(let fetch) = question.what, !fetch.options.isDurable { continue }
            guard let key = question.what.submitted else { continue }
            settleSubmission(key)
            return key
        }
        return nil
    }

    /// - Returns: whether the request or submission was open.
    private mutating func endRequest(_ key: RequestKey) -> Bool {
        let isOpen = requests.removeValue(forKey: key) != nil || isSubmitted(key)
        settleSubmission(key)
        waiting.remove(key)
        pulls.ended(key)
        return isOpen
    }
}
