internal import EarshotWire

/// Messages that violate the grammar: their legible parts count.
extension ClientCore {
    /// Handles a malformed message. An answer ends the question that it names. A terminal counts as received and ends
    /// its request.
    mutating func received(malformed fragment: BrokerFragment, _ error: WireError) -> [ClientAction] {
        var report = RefusedMessage(.other, ErrorReply(error))
        guard phase == .ready else { return [.report(.refused(report))] }
        var actions: [ClientAction] = []
        switch fragment.to.flatMap({ resolveAwaited($0) }) {
        case .cancel(let key)?: actions = [.report(.cancelled(key, wasOpen: false))]
        case .remove(let pattern)?: actions = [.report(.removed(pattern, count: 0))]
        case .query?: report.subject = .query
        // The file of the terminal may have another name.
        case .take(let sequence)?: actions = taken(sequence, nil)
        case .submission(let fetch)?: name(RequestKey(fetch), in: &report)
        case .retry(let key)?: name(key, in: &report)
        case .setting?, .replacement?, nil: break
        }
        if fragment.verb == "RESULT" || fragment.verb == "FAILED" {
            let key = fragment.handler.flatMap { handler in fragment.request.map { RequestKey(handler, $0) } }
            if let sequence = fragment.sequence {
                guard ledger.receive(sequence, of: key) else { return [] }
                ledger.finish(sequence)
            }
            if let key, !isStale(key), endRequest(key) { name(key, in: &report) }
        }
        return actions + sendHeld() + [.report(.refused(report))]
    }

    /// Makes a report the end of a request.
    private func name(_ key: RequestKey, in report: inout RefusedMessage) {
        (report.code, report.subject) = ("internal", .fetch(key))
    }

    /// - Returns: whether the request or submission was open.
    private mutating func endRequest(_ key: RequestKey) -> Bool {
        let isOpen = requests.removeValue(forKey: key) != nil || isSubmitted(key)
        endSubmission(key)
        waiting.remove(key)
        pulls.ended(key)
        return isOpen
    }
}
