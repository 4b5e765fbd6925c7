internal import DequeModule
internal import EarshotLoop
internal import EarshotWire

/// One session over several connections. Messages have numbers, so that after a resumption only those are repeated that
/// the broker did not receive, and the broker repeats the answers that were lost.
extension ClientCore {
    // MARK: Sending

    /// Sends a message, or only numbers it while disconnected: its number marks it as not received, so the resumption
    /// sends it.
    mutating func send(_ message: ClientMessage) -> [ClientAction] {
        sentNumbers.add(message)
        return phase == .ready && sentNumbers.admits(message) ? [.send(message)] : []
    }

    /// Sends the messages that waited for answers to earlier ones.
    mutating func sendHeldMessages() -> [ClientAction] { sentNumbers.releaseMessages().map { .send($0) } }

    /// Sends a message that the broker answers.
    mutating func sendAwaitingAnswer(_ content: Awaited) -> [ClientAction] {
        lastCreationOrder += 1
        unansweredMessages.append(
            PendingMessage(content: content, creationOrder: lastCreationOrder, messageNumber: .max, wasSent: false))
        return sendPendingMessage(at: unansweredMessages.endIndex - 1)
    }

    mutating func sendPendingMessage(at index: Int) -> [ClientAction] {
        let actions = send(unansweredMessages[index].content.message)
        unansweredMessages[index].messageNumber = sentNumbers.lastAssignedNumber
        unansweredMessages[index].isRefused = false
        // A message that is held back leaves later, without another call of this function.
        unansweredMessages[index].wasSent = unansweredMessages[index].wasSent || phase == .ready
        return actions
    }

    mutating func sendOpenRequest(_ key: RequestKey) -> [ClientAction] {
        guard var request = requests[key] else { return [] }
        defer { requests[key] = request }
        return sendFetch(of: &request, now: clock())
    }

    mutating func sendFetch(of request: inout OpenRequest, now: LoopTime) -> [ClientAction] {
        let actions = send(request.takeFetchMessage(now: now))
        request.messageNumber = sentNumbers.lastAssignedNumber
        sentFetches.add(RequestKey(request.fetch.value), number: sentNumbers.lastAssignedNumber)
        if sentFetches.count > 2 * requests.count + SentFetches.maximumSpareEntries {
            sentFetches.removeAll { requests[$1]?.messageNumber != $0 }
        }
        return actions
    }

    /// Sends a message that OK answers.
    mutating func sendNotice(_ message: ClientMessage) -> [ClientAction] {
        let actions = send(message)
        guard sessionToken != nil else { return actions }
        noticeLog.append(message, number: sentNumbers.lastAssignedNumber)
        // Without a connection nothing confirms them: the next one starts a new session.
        if noticeLog.isFull, phase != .ready {
            noticeLog = NoticeLog()
            sessionToken = nil
        }
        return actions
    }

    /// Records an answer, and ends the wait of the message that has this number.
    ///
    /// - Returns: the content of that message; nil if its answer was not pending.
    mutating func recordAnswer(to number: UInt64) -> Awaited? {
        sentNumbers.recordAnswer(to: number)
        brokerReceived(through: number)
        // Numbers rise, and the search passes few messages: those about durable requests.
        guard let index = unansweredMessages.firstIndex(where: { $0.messageNumber >= number }),
            unansweredMessages[index].messageNumber == number
        else { return nil }
        return unansweredMessages.remove(at: index).content
    }

    /// Records that the broker received all messages up to a number.
    mutating func brokerReceived(through number: UInt64) {
        guard number < .max else { return }
        noticeLog.removeConfirmed(through: number)
        if !replacedRequests.isEmpty { replacedRequests = replacedRequests.filter { $0.value > number } }
    }

    // MARK: Resumption

    /// Resumes a session in which the broker knows the messages up to `lastReceived`.
    ///
    /// Repeats the messages after those in their order. The broker repeats lost answers, except those to queries. The
    /// core sends those queries again.
    mutating func sessionResumed(after lastReceived: UInt64, _ welcome: Welcome) -> [ClientAction] {
        phase = .ready
        sessionToken = welcome.token
        spool = welcome.spoolPath
        isPulling = welcome.pullsBodies
        broker = welcome.broker
        var actions: [ClientAction] = [.report(.stateChanged(.connected(welcome.broker)))]
        // Terminals of replaced requests are repeated after WELCOME.
        for key in replacedRequests.keys { replacedRequests[key] = .max }
        brokerReceived(through: lastReceived)
        var unreceived: [(number: UInt64, send: (inout ClientCore) -> [ClientAction])] = []
        for notice in noticeLog.entries { unreceived.append((notice.number, { $0.sendNotice(notice.message) })) }
        let isKnown: (PendingMessage) -> Bool = { $0.messageNumber <= lastReceived && !$0.content.isQuery }
        for pending in unansweredMessages where !isKnown(pending) {
            unreceived.append((pending.messageNumber, { $0.resendPendingMessage(pending) }))
        }
        for (key, request) in requests
        where request.messageNumber > lastReceived && request.blockingTerminalSequence == nil {
            if request.messageNumber < .max { requests[key]?.wasSent = false }
            // Requests never sent come last, in the order of their creation.
            let number =
                request.messageNumber == .max ? (UInt64.max >> 1) + request.creationOrder : request.messageNumber
            unreceived.append((number, { $0.sendOpenRequest(key) }))
        }
        noticeLog = NoticeLog()
        unansweredMessages.removeAll { !isKnown($0) }
        sentNumbers.resume(after: lastReceived)
        sentFetches.resume(after: lastReceived)
        if let sequence = deliveryLedger.acknowledgedNumber { actions += send(.acknowledge(sequence)) }
        for (_, send) in unreceived.sorted(by: { $0.number < $1.number }) { actions += send(&self) }
        for key in replacedRequests.keys { replacedRequests[key] = sentNumbers.lastAssignedNumber + 1 }
        return actions
    }

    /// Whether the broker drains, and another bus can take over: no body is being read, and each request that was sent
    /// may be made again there.
    var canChangeBus: Bool {
        guard phase == .ready, isDraining, pulls.isEmpty, terminalsAwaitingTaken.isEmpty else { return false }
        let submissions = unansweredMessages.compactMap { pending in
            if case .submitRequest(let fetch) = pending.content, pending.wasSent { fetch.options } else { nil }
        }
        let options = requests.values.filter(\.wasSent).map(\.fetch.value.options) + submissions
        return options.allSatisfy { $0.isRepeatable && !$0.isDurable }
    }

    /// Abandons the session, because the next connection goes to another bus.
    ///
    /// Open requests are made again there. Durable ones that were sent may be on the disk of the old bus, which then
    /// fetches them, so they end here.
    mutating func busChanged() -> [ClientAction] {
        var stayed: [(order: UInt64, key: RequestKey)] = []
        for (key, request) in requests where request.wasSent && request.fetch.value.options.isDurable {
            stayed.append((request.creationOrder, key))
            requests[key] = nil
        }
        unansweredMessages.removeAll { pending in
            guard case .submitRequest(let fetch) = pending.content, pending.wasSent, fetch.options.isDurable else {
                return false
            }
            stayed.append((pending.creationOrder, RequestKey(fetch)))
            return true
        }
        let detail =
            "the bus that received the durable request cannot be reached: the request stays there if it was stored"
        var actions = endSession()
        for entry in stayed.sorted(by: { $0.order < $1.order }) {
            actions.append(.report(.messageRefused(Self.connectionLost(entry.key, detail))))
        }
        return actions
    }

    mutating func resendPendingMessage(_ pending: PendingMessage) -> [ClientAction] {
        unansweredMessages.append(pending)
        return sendPendingMessage(at: unansweredMessages.endIndex - 1)
    }
}
