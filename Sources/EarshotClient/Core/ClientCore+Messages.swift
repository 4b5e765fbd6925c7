internal import DequeModule
internal import EarshotWire

/// Handling of broker messages, malformed ones included, and of lost connections. `ClientConnection` calls it.
extension ClientCore {
    mutating func welcomed(by welcome: Welcome) -> [ClientAction] {
        refusals = 0
        if let lastReceived = welcome.lastReceived {
            // Too many notices since HELLO: the resumed session does not know them.
            guard token != nil else { return [.reconnect] }
            return resumed(lastReceived, welcome)
        }
        let lost = endSession()
        phase = .ready
        token = welcome.token
        spool = welcome.spool
        isPulling = welcome.isPulling
        broker = welcome.broker
        var actions: [ClientAction] = [.report(.state(.connected(welcome.broker)))] + lost
        let questions = unansweredMessages
        unansweredMessages = []
        // After a subscription or a request a removal would end it.
        for question in questions where question.what.isRemoval { actions += resend(question) }
        for pattern in subscriptions { actions += notify(.subscribe(pattern)) }
        // The same broker has the cookies in its jars, with later values of the servers.
        for index in cookies.indices where cookies[index].broker != welcome.broker {
            cookies[index].broker = welcome.broker
            actions += notify(cookies[index].message)
        }
        actions += lostSubmissions.map { .report(.refused(Self.connectionLost($0))) }
        lostSubmissions = []
        actions += sendFetches(questions.filter(\.what.isSubmission))
        for question in questions where !question.what.isRemoval && !question.what.isSubmission {
            actions += resend(question)
        }
        return actions
    }

    /// Repeats the open requests and `submissions` in the order of their creation.
    private mutating func sendFetches(_ submissions: Deque<PendingMessage>) -> [ClientAction] {
        var submissions = submissions
        var actions: [ClientAction] = []
        for (key, request) in requests.sorted(by: { $0.value.order < $1.value.order }) {
            while let first = submissions.first, first.order < request.order {
                submissions.removeFirst()
                actions += resend(first)
            }
            if request.isLost {
                requests[key] = nil
                actions.append(.report(.refused(Self.connectionLost(key))))
            } else {
                actions += sendRequest(key)
            }
        }
        for submission in submissions { actions += resend(submission) }
        return actions
    }

    /// Returns the report that ends a request which must not be repeated.
    static func connectionLost(
        _ key: RequestKey,
        _ detail: String =
            "the connection was lost during a request that is not idempotent: the server may have processed it"
    ) -> RefusedMessage {
        RefusedMessage(.fetch(key), code: "connection-lost", detail: detail)
    }

    /// Ends the session: the next connection starts a new one and repeats all open requests.
    ///
    /// - Returns: the terminals whose bodies are lost with the session.
    mutating func endSession() -> [ClientAction] {
        let lost = carryOut(pulls.endSession()) + stopTaking()
        link += 1
        token = nil
        numbers = SentNumbers()
        fetches = SentFetches()
        replaced = [:]
        unansweredMessages.removeAll { question in
            switch question.what {
            case .replacement, .take: true
            case .cancel, .retry, .remove, .query, .setting, .submission: false
            }
        }
        notices = NoticeLog()
        for key in requests.keys { requests[key]?.sessionLost() }
        loseSubmissions()
        ledger = DeliveryLedger()
        isDraining = false
        for key in waiting { requests[key]?.waitsFor = nil }
        waiting.removeAll()
        return lost
    }

    /// Moves sent submissions that are not idempotent to `lostSubmissions`.
    private mutating func loseSubmissions() {
        unansweredMessages.removeAll { question in
            guard case .submission(let fetch) = question.what, question.wasSent, !fetch.options.isRepeatable else {
                return false
            }
            lostSubmissions.append(RequestKey(fetch))
            return true
        }
    }

    /// - Parameter number: number of the message that it answers; nil unless it is a refusal without a sequence number.
    mutating func terminalReceived(_ terminal: consuming Terminal, answering number: UInt64?) -> [ClientAction] {
        let key = RequestKey(terminal.handler, terminal.request)
        if terminal.sequence == 0 {
            guard let number else { return [] }
            numbers.answered(number)
            lastReceived(number)
            // The ID may be that of a later request.
            let isOpen = requests[key]?.number == number
            guard isOpen || unansweredMessages.contains(where: { $0.number == number }) else { return [] }
        } else if !ledger.receive(terminal.sequence, of: key) {
            return []
        }
        // One lookup: hashing names of up to 200 bytes costs time.
        let place = requests.index(forKey: key)
        if let place {
            lastReceived(requests.values[place].number)
            // The terminal may be the only answer, to a repetition of a durable request that was refused to others.
            if requests.values[place].fetch.value.options.isDurable { numbers.close(requests.values[place].number) }
        }
        let id = DeliveredTerminal.ID(link: link, sequence: terminal.sequence)
        let isRefusedByDraining =
            switch terminal.outcome {
            case .failed(let failure): failure.code == "stopping" && (place != nil || isSubmitted(key))
            case .result: false
            }
        // A draining broker refuses requests with `stopping`. The next broker answers them.
        if isStale(key) || isRefusedByDraining {
            ledger.finish(terminal.sequence)
            if isRefusedByDraining {
                requests[key]?.wasSent = false
                requests[key]?.number = .max
                if let index = unansweredMessages.firstIndex(where: { $0.what.submitted == key }) {
                    unansweredMessages[index].isRefused = true
                    unansweredMessages[index].wasSent = false
                }
                defer { isRefusing = true }
                return isDraining || isRefusing ? [] : [.report(.state(.draining))]
            }
            return []
        }
        endSubmission(key)
        let request = place.map { requests.remove(at: $0).value }
        return deliver(DeliveredTerminal(id: id, terminal, of: request))
    }

    /// Returns whether a message about `key` refers to a request that was cancelled or removed: the answer to that is
    /// pending.
    func isStale(_ key: RequestKey) -> Bool {
        unansweredMessages.contains { question in
            switch question.what {
            case .cancel(let cancelled), .replacement(let cancelled): cancelled == key
            case .remove(let pattern): pattern.matches(key.handler)
            case .retry, .query, .take, .setting, .submission: false
            }
        }
    }

    /// Ends the wait for the answer to a submission or a repetition.
    mutating func endSubmission(_ key: RequestKey) {
        if unansweredMessages.isEmpty { return }
        unansweredMessages.removeAll { $0.what.submitted == key }
    }

    func isSubmitted(_ key: RequestKey) -> Bool { unansweredMessages.contains { $0.what.submitted == key } }

    /// - Parameters:
    ///   - number: number of the refused message; nil for one without, and before WELCOME.
    ///   - requested: the question that the error answers; nil for another message.
    mutating func messageRefused(_ reply: ErrorReply, answering number: UInt64?, _ requested: Awaited?)
        -> [ClientAction]
    {
        switch reply.code {
        case "hello-required":
            // One ERROR comes for each message in flight. Only the first one has an effect.
            guard phase == .ready else { return [] }
            return endSession() + linkOpened()
        case "session-in-use":
            // The broker has not noticed the end of the old connection.
            refusals += 1
            if refusals >= Self.mostRefusals { token = nil }
            return [.reconnect]
        case "version":
            return [.report(.state(.incompatible)), .report(.refused(RefusedMessage(.hello, reply)))]
        default: break
        }
        guard phase == .ready else { return [.report(.refused(RefusedMessage(.hello, reply)))] }
        var subject = RefusedMessage.Subject.other
        switch requested {
        case .take(let sequence)?: return fileTaken(sequence, nil)
        case .retry(let key)?:
            if isStale(key) { return [] }
            subject = .retry(key)
        case .submission(let fetch)?:
            if isStale(RequestKey(fetch)) { return [] }
            subject = .fetch(RequestKey(fetch))
        case .query?: subject = .query
        case nil:
            guard let number, let key = fetches.key(of: number) else { break }
            // The program may have removed the request, and used its ID for another one.
            guard requests[key]?.number == number else { return [] }
            requests[key] = nil
            waiting.remove(key)
            subject = .fetch(key)
        case .cancel?, .replacement?, .remove?, .setting?: break
        }
        return [.report(.refused(RefusedMessage(subject, reply)))]
    }

    mutating func submit(_ fetch: Shared<Fetch>, losses: Int) -> [ClientAction] {
        let key = RequestKey(fetch.value)
        lastOrder += 1
        var request = OpenRequest(fetch: fetch, order: lastOrder, losses: losses)
        defer { requests[key] = request }
        let actions = replaced.removeValue(forKey: key) == nil ? [] : submit(.replacement(key))
        guard phase == .ready else { return actions }
        if let sequence = ledger.unacknowledged(key) {
            request.waitsFor = sequence
            waiting.insert(key)
            guard fetch.value.options.replacesHandler else { return actions }
            // Later requests precede this one on the wire, so its own REPLACE would purge them: a REMOVE is sent first.
            request.wasSent = true
            return actions + submit(.remove(.handler(key.handler)))
        }
        return isDraining ? actions : actions + send(&request)
    }

    /// Forgets the open requests of a pattern; without `old` also its submissions.
    ///
    /// - Returns: keys of the requests sent in this session.
    @discardableResult
    mutating func forget(_ pattern: HandlerPattern, _ old: [RequestKey]?) -> [RequestKey] {
        var repeated: [RequestKey] = []
        for key in old ?? requests.keys.filter({ pattern.matches($0.handler) }) {
            if let request = requests.removeValue(forKey: key), request.number < .max { repeated.append(key) }
            waiting.remove(key)
        }
        if let old {
            let keys = Set(old)
            dropBodies { keys.contains($0) }
        } else {
            dropBodies { pattern.matches($0.handler) }
            forgetSubmissions { pattern.matches($0.handler) }
        }
        return repeated
    }

    /// Forgets submissions and repetitions that a removal ends.
    mutating func forgetSubmissions(_ isRemoved: (RequestKey) -> Bool) {
        unansweredMessages.removeAll { $0.what.submitted.map(isRemoved) ?? false }
    }
}

extension ClientCore.Awaited {
    var isRemoval: Bool {
        switch self {
        case .cancel, .replacement, .remove: true
        case .retry, .query, .take, .setting, .submission: false
        }
    }

    /// Request that the broker accepts or refuses, if this is a submission or a repetition.
    var submitted: RequestKey? {
        switch self {
        case .submission(let fetch): RequestKey(fetch)
        case .retry(let key): key
        case .cancel, .replacement, .remove, .query, .take, .setting: nil
        }
    }

    var isQuery: Bool {
        switch self {
        case .query: true
        case .cancel, .retry, .replacement, .remove, .take, .setting, .submission: false
        }
    }

    var isSubmission: Bool { if case .submission = self { true } else { false } }

    /// The message that carries it.
    var message: ClientMessage {
        switch self {
        case .cancel(let key), .replacement(let key): .removeRequest(key.handler, key.request)
        case .retry(let key): .retry(key.handler, key.request)
        case .remove(let pattern): .remove(pattern)
        case .query(let query, let page): .query(query, page)
        case .take(let sequence): .take(sequence)
        case .setting(let setting): .set(setting)
        case .submission(let fetch): .fetch(fetch)
        }
    }
}

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
        case .take(let sequence)?: actions = fileTaken(sequence, nil)
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
