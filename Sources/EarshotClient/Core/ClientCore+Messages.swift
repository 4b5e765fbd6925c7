internal import DequeModule
internal import EarshotWire

/// Handling of broker messages, malformed ones included, and of lost connections. `ClientConnection` calls it.
extension ClientCore {
    mutating func welcomeReceived(_ welcome: Welcome) -> [ClientAction] {
        resumptionRefusals = 0
        if let lastReceived = welcome.lastReceivedNumber {
            // Too many notices since HELLO: the resumed session does not know them.
            guard sessionToken != nil else { return [.reconnect] }
            return sessionResumed(after: lastReceived, welcome)
        }
        let lost = endSession()
        phase = .ready
        sessionToken = welcome.token
        spool = welcome.spoolPath
        isPulling = welcome.pullsBodies
        broker = welcome.broker
        var actions: [ClientAction] = [.report(.stateChanged(.connected(welcome.broker)))] + lost
        let pendingMessages = unansweredMessages
        unansweredMessages = []
        // After a subscription or a request a removal would end it.
        for pending in pendingMessages where pending.content.isRemoval { actions += resendPendingMessage(pending) }
        for pattern in subscriptions { actions += sendNotice(.subscribe(pattern)) }
        // The same broker has the cookies in its jars, with later values of the servers.
        for index in cookies.indices where cookies[index].broker != welcome.broker {
            cookies[index].broker = welcome.broker
            actions += sendNotice(cookies[index].cookiesMessage)
        }
        actions += lostSubmissions.map { .report(.messageRefused(Self.connectionLost($0))) }
        lostSubmissions = []
        actions += resendRequests(withSubmissions: pendingMessages.filter(\.content.isSubmission))
        for pending in pendingMessages where !pending.content.isRemoval && !pending.content.isSubmission {
            actions += resendPendingMessage(pending)
        }
        return actions
    }

    /// Repeats the open requests and `submissions` in the order of their creation.
    private mutating func resendRequests(withSubmissions submissions: Deque<PendingMessage>) -> [ClientAction] {
        var submissions = submissions
        var actions: [ClientAction] = []
        for (key, request) in requests.sorted(by: { $0.value.creationOrder < $1.value.creationOrder }) {
            while let first = submissions.first, first.creationOrder < request.creationOrder {
                submissions.removeFirst()
                actions += resendPendingMessage(first)
            }
            if request.mayHaveBeenProcessed {
                requests[key] = nil
                actions.append(.report(.messageRefused(Self.connectionLost(key))))
            } else {
                actions += sendOpenRequest(key)
            }
        }
        for submission in submissions { actions += resendPendingMessage(submission) }
        return actions
    }

    private static let nonIdempotentRequestLost =
        "the connection was lost during a request that is not idempotent: the server may have processed it"

    /// Returns the report that ends a request which must not be repeated.
    static func connectionLost(_ key: RequestKey, _ detail: String = Self.nonIdempotentRequestLost) -> RefusedMessage {
        RefusedMessage(.fetch(key), code: "connection-lost", detail: detail)
    }

    /// Ends the session: the next connection starts a new one and repeats all open requests.
    ///
    /// - Returns: the terminals whose bodies are lost with the session.
    mutating func endSession() -> [ClientAction] {
        let lost = makeActions(for: pulls.endSession()) + deliverUntakenTerminals()
        sessionNumber += 1
        sessionToken = nil
        sentNumbers = SentNumbers()
        sentFetches = SentFetches()
        replacedRequests = [:]
        unansweredMessages.removeAll { pending in
            switch pending.content {
            case .removeReplaced, .takeFile: true
            case .cancel, .retry, .remove, .query, .changeSetting, .submitRequest: false
            }
        }
        noticeLog = NoticeLog()
        for key in requests.keys { requests[key]?.sessionLost() }
        loseSubmissions()
        deliveryLedger = DeliveryLedger()
        isDraining = false
        for key in waitingRequests { requests[key]?.blockingTerminalSequence = nil }
        waitingRequests.removeAll()
        return lost
    }

    /// Moves sent submissions that are not idempotent to `lostSubmissions`.
    private mutating func loseSubmissions() {
        unansweredMessages.removeAll { pending in
            guard case .submitRequest(let fetch) = pending.content, pending.wasSent, !fetch.options.isRepeatable
            else { return false }
            lostSubmissions.append(RequestKey(fetch))
            return true
        }
    }

    /// - Parameter number: number of the message that the terminal answers; nil unless it is a refusal without a
    ///   sequence number.
    mutating func terminalReceived(_ terminal: consuming Terminal, answering number: UInt64?) -> [ClientAction] {
        let key = RequestKey(terminal.handler, terminal.request)
        if terminal.sequence == 0 {
            guard let number else { return [] }
            sentNumbers.recordAnswer(to: number)
            brokerReceived(through: number)
            // The ID may be that of a later request.
            let isOpen = requests[key]?.messageNumber == number
            guard isOpen || unansweredMessages.contains(where: { $0.messageNumber == number }) else { return [] }
        } else if !deliveryLedger.recordTerminal(terminal.sequence, of: key) {
            return []
        }
        // One lookup: hashing names of up to 200 bytes costs time.
        let index = requests.index(forKey: key)
        if let index {
            brokerReceived(through: requests.values[index].messageNumber)
            // The terminal may be the only answer, to a repetition of a durable request that was refused to others.
            if requests.values[index].fetch.value.options.isDurable {
                sentNumbers.closeNumber(requests.values[index].messageNumber)
            }
        }
        let id = DeliveredTerminal.ID(sessionNumber: sessionNumber, sequence: terminal.sequence)
        let isRefusedByDraining =
            switch terminal.outcome {
            case .failed(let failure): failure.code == "stopping" && (index != nil || isSubmitted(key))
            case .result: false
            }
        // A draining broker refuses requests with `stopping`. The next broker answers them.
        if hasPendingRemoval(key) || isRefusedByDraining {
            deliveryLedger.finish(terminal.sequence)
            if isRefusedByDraining {
                requests[key]?.wasSent = false
                requests[key]?.messageNumber = .max
                if let submission = unansweredMessages.firstIndex(where: { $0.content.submittedKey == key }) {
                    unansweredMessages[submission].isRefused = true
                    unansweredMessages[submission].wasSent = false
                }
                defer { isBrokerRefusing = true }
                return isDraining || isBrokerRefusing ? [] : [.report(.stateChanged(.draining))]
            }
            return []
        }
        endSubmission(key)
        let request = index.map { requests.remove(at: $0).value }
        return deliver(DeliveredTerminal(id: id, terminal, of: request))
    }

    /// Returns whether a message about `key` refers to a request that was cancelled or removed: the answer to that is
    /// pending.
    func hasPendingRemoval(_ key: RequestKey) -> Bool {
        unansweredMessages.contains { pending in
            switch pending.content {
            case .cancel(let cancelled), .removeReplaced(let cancelled): cancelled == key
            case .remove(let pattern): pattern.matches(key.handler)
            case .retry, .query, .takeFile, .changeSetting, .submitRequest: false
            }
        }
    }

    /// Ends the wait for the answer to a submission or a repetition.
    mutating func endSubmission(_ key: RequestKey) {
        if unansweredMessages.isEmpty { return }
        unansweredMessages.removeAll { $0.content.submittedKey == key }
    }

    func isSubmitted(_ key: RequestKey) -> Bool { unansweredMessages.contains { $0.content.submittedKey == key } }

    /// - Parameters:
    ///   - number: number of the refused message; nil for one without, and before WELCOME.
    ///   - requested: the message that the error answers, if its answer was pending; nil for another one.
    mutating func messageRefused(
        _ reply: ErrorReply, answering number: UInt64?, _ requested: Awaited?
    ) -> [ClientAction] {
        switch reply.code {
        case "hello-required":
            // One ERROR comes for each message in flight. Only the first one has an effect.
            guard phase == .ready else { return [] }
            return endSession() + linkOpened()
        case "session-in-use":
            // The broker has not noticed the end of the old connection.
            resumptionRefusals += 1
            if resumptionRefusals >= Self.maximumResumptionRefusals { sessionToken = nil }
            return [.reconnect]
        case "version":
            return [.report(.stateChanged(.incompatible)), .report(.messageRefused(RefusedMessage(.hello, reply)))]
        default: break
        }
        guard phase == .ready else { return [.report(.messageRefused(RefusedMessage(.hello, reply)))] }
        var subject = RefusedMessage.Subject.other
        switch requested {
        case .takeFile(let sequence)?: return fileTaken(sequence, nil)
        case .retry(let key)?:
            if hasPendingRemoval(key) { return [] }
            subject = .retry(key)
        case .submitRequest(let fetch)?:
            if hasPendingRemoval(RequestKey(fetch)) { return [] }
            subject = .fetch(RequestKey(fetch))
        case .query?: subject = .query
        case nil:
            guard let number, let key = sentFetches.requestKey(ofNumber: number) else { break }
            // The program may have removed the request, and used its ID for another one.
            guard requests[key]?.messageNumber == number else { return [] }
            requests[key] = nil
            waitingRequests.remove(key)
            subject = .fetch(key)
        case .cancel?, .removeReplaced?, .remove?, .changeSetting?: break
        }
        return [.report(.messageRefused(RefusedMessage(subject, reply)))]
    }

    mutating func submit(_ fetch: Shared<Fetch>, missingFileCount: Int) -> [ClientAction] {
        let key = RequestKey(fetch.value)
        lastCreationOrder += 1
        var request = OpenRequest(
            fetch: fetch, creationOrder: lastCreationOrder, createdAt: clock(), missingFileCount: missingFileCount)
        defer { requests[key] = request }
        let actions = replacedRequests.removeValue(forKey: key) == nil ? [] : sendAwaitingAnswer(.removeReplaced(key))
        guard phase == .ready else { return actions }
        if let sequence = deliveryLedger.unacknowledgedSequence(of: key) {
            request.blockingTerminalSequence = sequence
            waitingRequests.insert(key)
            guard fetch.value.options.replacesHandler else { return actions }
            // Later requests precede this one on the wire, so its own REPLACE would purge them: a REMOVE is sent first.
            request.wasSent = true
            return actions + sendAwaitingAnswer(.remove(.handler(key.handler)))
        }
        return isDraining ? actions : actions + sendFetch(of: &request, now: request.createdAt)
    }

    /// Forgets the open requests of a pattern; without `old` also its submissions.
    ///
    /// - Returns: keys of the requests sent in this session.
    @discardableResult
    mutating func forgetRequests(of pattern: HandlerPattern, among old: [RequestKey]?) -> [RequestKey] {
        var sentKeys: [RequestKey] = []
        for key in old ?? requests.keys.filter({ pattern.matches($0.handler) }) {
            if let request = requests.removeValue(forKey: key), request.messageNumber < .max { sentKeys.append(key) }
            waitingRequests.remove(key)
        }
        if let old {
            let keys = Set(old)
            discardBodies { keys.contains($0) }
        } else {
            discardBodies { pattern.matches($0.handler) }
            forgetSubmissions { pattern.matches($0.handler) }
        }
        return sentKeys
    }

    /// Forgets submissions and repetitions that a removal ends.
    mutating func forgetSubmissions(where isRemoved: (RequestKey) -> Bool) {
        unansweredMessages.removeAll { $0.content.submittedKey.map(isRemoved) ?? false }
    }
}

extension ClientCore.Awaited {
    var isRemoval: Bool {
        switch self {
        case .cancel, .removeReplaced, .remove: true
        case .retry, .query, .takeFile, .changeSetting, .submitRequest: false
        }
    }

    /// Request that the broker accepts or refuses, if this is a submission or a repetition.
    var submittedKey: RequestKey? {
        switch self {
        case .submitRequest(let fetch): RequestKey(fetch)
        case .retry(let key): key
        case .cancel, .removeReplaced, .remove, .query, .takeFile, .changeSetting: nil
        }
    }

    var isQuery: Bool {
        switch self {
        case .query: true
        case .cancel, .retry, .removeReplaced, .remove, .takeFile, .changeSetting, .submitRequest: false
        }
    }

    var isSubmission: Bool { if case .submitRequest = self { true } else { false } }

    /// The message that carries it.
    var message: ClientMessage {
        switch self {
        case .cancel(let key), .removeReplaced(let key): .removeRequest(key.handler, key.request)
        case .retry(let key): .retry(key.handler, key.request)
        case .remove(let pattern): .removeHandlers(pattern)
        case .query(let query, let page): .query(query, page)
        case .takeFile(let sequence): .takeFile(sequence)
        case .changeSetting(let setting): .changeSetting(setting)
        case .submitRequest(let fetch): .fetch(fetch)
        }
    }
}

/// Handling of messages that violate the grammar: the core uses their legible parts.
extension ClientCore {
    /// Handles a malformed message. An answer ends the wait of the message that it names. A terminal counts as received
    /// and ends its request.
    mutating func malformedMessageReceived(_ fragment: BrokerFragment, _ error: WireError) -> [ClientAction] {
        var report = RefusedMessage(.other, ErrorReply(error))
        guard phase == .ready else { return [.report(.messageRefused(report))] }
        var actions: [ClientAction] = []
        switch fragment.answeredNumber.flatMap({ recordAnswer(to: $0) }) {
        case .cancel(let key)?: actions = [.report(.cancelled(key, wasOpen: false))]
        case .remove(let pattern)?: actions = [.report(.removed(pattern, count: 0))]
        case .query?: report.subject = .query
        // The file of the terminal may have another name.
        case .takeFile(let sequence)?: actions = fileTaken(sequence, nil)
        case .submitRequest(let fetch)?: markRequestEnded(RequestKey(fetch), in: &report)
        case .retry(let key)?: markRequestEnded(key, in: &report)
        case .changeSetting?, .removeReplaced?, nil: break
        }
        if fragment.verb == "RESULT" || fragment.verb == "FAILED" {
            let key = fragment.handler.flatMap { handler in fragment.request.map { RequestKey(handler, $0) } }
            if let sequence = fragment.sequence {
                guard deliveryLedger.recordTerminal(sequence, of: key) else { return [] }
                deliveryLedger.finish(sequence)
            }
            if let key, !hasPendingRemoval(key), endRequest(key) { markRequestEnded(key, in: &report) }
        }
        return actions + sendHeldMessages() + [.report(.messageRefused(report))]
    }

    /// Makes a report the end of a request.
    private func markRequestEnded(_ key: RequestKey, in report: inout RefusedMessage) {
        (report.code, report.subject) = ("internal", .fetch(key))
    }

    /// - Returns: whether the request or submission was open.
    private mutating func endRequest(_ key: RequestKey) -> Bool {
        let isOpen = requests.removeValue(forKey: key) != nil || isSubmitted(key)
        endSubmission(key)
        waitingRequests.remove(key)
        pulls.bodylessTerminalReceived(key)
        return isOpen
    }
}
