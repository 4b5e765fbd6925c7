internal import DequeModule
internal import EarshotWire

/// One session over several connections. Messages have numbers, so that after a resumption only those are repeated that
/// the broker did not receive, and the broker repeats the answers that were lost.
extension ClientCore {
    // MARK: Sending

    /// Sends a message, or only numbers it while disconnected: its number marks it as not received, so the resumption
    /// sends it.
    mutating func send(_ message: ClientMessage) -> [ClientAction] {
        numbers.add(message)
        return phase == .ready && numbers.admits(message) ? [.send(message)] : []
    }

    /// Sends the messages that waited for answers to earlier ones.
    mutating func sendHeld() -> [ClientAction] { numbers.release().map { .send($0) } }

    /// Sends a message that the broker answers.
    mutating func submit(_ what: Awaited) -> [ClientAction] {
        lastOrder += 1
        unansweredMessages.append(PendingMessage(what: what, order: lastOrder, number: .max, wasSent: false))
        return sendAwaited(unansweredMessages.endIndex - 1)
    }

    mutating func sendAwaited(_ index: Int) -> [ClientAction] {
        let actions = send(unansweredMessages[index].what.message)
        unansweredMessages[index].number = numbers.lastNumber
        unansweredMessages[index].isRefused = false
        // A message that is held back leaves later, without another call of this function.
        unansweredMessages[index].wasSent = unansweredMessages[index].wasSent || phase == .ready
        return actions
    }

    mutating func sendRequest(_ key: RequestKey) -> [ClientAction] {
        guard var request = requests[key] else { return [] }
        defer { requests[key] = request }
        return send(&request)
    }

    mutating func send(_ request: inout OpenRequest) -> [ClientAction] {
        let actions = send(request.takeMessage())
        request.number = numbers.lastNumber
        fetches.add(RequestKey(request.fetch.value), number: numbers.lastNumber)
        if fetches.count > 2 * requests.count + SentFetches.mostSpareEntries {
            fetches.removeAll { requests[$1]?.number != $0 }
        }
        return actions
    }

    /// Sends a message that OK answers.
    mutating func notify(_ message: ClientMessage) -> [ClientAction] {
        let actions = send(message)
        guard token != nil else { return actions }
        notices.append(message, number: numbers.lastNumber)
        // Without a connection nothing confirms them: the next one starts a new session.
        if notices.isFull, phase != .ready {
            notices = NoticeLog()
            token = nil
        }
        return actions
    }

    /// Records an answer, and ends the question that has it.
    ///
    /// - Returns: the question; nil if the message is none, or had the answer before.
    mutating func resolveAwaited(_ number: UInt64) -> Awaited? {
        numbers.answered(number)
        lastReceived(number)
        // Numbers rise, and few questions are passed: those about durable requests.
        guard let index = unansweredMessages.firstIndex(where: { $0.number >= number }),
            unansweredMessages[index].number == number
        else {
            return nil
        }
        return unansweredMessages.remove(at: index).what
    }

    /// Records that the broker received all messages up to a number.
    mutating func lastReceived(_ number: UInt64) {
        guard number < .max else { return }
        notices.confirm(through: number)
        if !replaced.isEmpty { replaced = replaced.filter { $0.value > number } }
    }

    // MARK: Resumption

    /// Resumes a session in which the broker knows the messages up to `lastReceived`.
    ///
    /// Repeats the messages after those in their order. The broker repeats lost answers, except those to queries, which
    /// are asked again.
    mutating func resumed(_ lastReceived: UInt64, _ welcome: Welcome) -> [ClientAction] {
        phase = .ready
        token = welcome.token
        spool = welcome.spool
        isPulling = welcome.isPulling
        broker = welcome.broker
        var actions: [ClientAction] = [.report(.state(.connected(welcome.broker)))]
        // Terminals of replaced requests are repeated after WELCOME.
        for key in replaced.keys { replaced[key] = .max }
        self.lastReceived(lastReceived)
        var unreceived: [(number: UInt64, send: (inout ClientCore) -> [ClientAction])] = []
        for notice in notices.entries { unreceived.append((notice.number, { $0.notify(notice.message) })) }
        let isKnown: (PendingMessage) -> Bool = { $0.number <= lastReceived && !$0.what.isQuery }
        for question in unansweredMessages where !isKnown(question) {
            unreceived.append((question.number, { $0.resend(question) }))
        }
        for (key, request) in requests where request.number > lastReceived && request.waitsFor == nil {
            if request.number < .max { requests[key]?.wasSent = false }
            // Requests never sent come last, in the order of their creation.
            let number = request.number == .max ? (UInt64.max >> 1) + request.order : request.number
            unreceived.append((number, { $0.sendRequest(key) }))
        }
        notices = NoticeLog()
        unansweredMessages.removeAll { !isKnown($0) }
        numbers.resume(after: lastReceived)
        fetches.resume(after: lastReceived)
        if let sequence = ledger.acknowledged { actions += send(.acknowledge(sequence)) }
        for (_, send) in unreceived.sorted(by: { $0.number < $1.number }) { actions += send(&self) }
        for key in replaced.keys { replaced[key] = numbers.lastNumber + 1 }
        return actions
    }

    /// Whether the broker drains, and another bus can take over: no body is being read, and each request that was sent may
    /// be made again there.
    var mayMove: Bool {
        guard phase == .ready, isDraining, pulls.isEmpty, taking.isEmpty else { return false }
        let submissions = unansweredMessages.compactMap { question in
            if case .submission(let fetch) = question.what, question.wasSent { fetch.options } else { nil }
        }
        let options = requests.values.filter(\.wasSent).map(\.fetch.value.options) + submissions
        return options.allSatisfy { $0.isRepeatable && !$0.isDurable }
    }

    /// Gives up the session, because the next connection goes to another bus.
    ///
    /// Open requests are made again there. Durable ones that were sent may be on the disk of the old bus, which then
    /// fetches them, so they end here.
    mutating func busChanged() -> [ClientAction] {
        var stayed: [(order: UInt64, key: RequestKey)] = []
        for (key, request) in requests where request.wasSent && request.fetch.value.options.isDurable {
            stayed.append((request.order, key))
            requests[key] = nil
        }
        unansweredMessages.removeAll { question in
            guard case .submission(let fetch) = question.what, question.wasSent, fetch.options.isDurable else {
                return false
            }
            stayed.append((question.order, RequestKey(fetch)))
            return true
        }
        let actions = endSession()
        return actions
            + stayed.sorted { $0.order < $1.order }.map { entry in
                .report(
                    .refused(
                        Self.connectionLost(
                            entry.key,
                            "the bus that received the durable request cannot be reached: the request stays there if it was stored"
                        )))
            }
    }

    mutating func resend(_ question: PendingMessage) -> [ClientAction] {
        unansweredMessages.append(question)
        return sendAwaited(unansweredMessages.endIndex - 1)
    }
}
