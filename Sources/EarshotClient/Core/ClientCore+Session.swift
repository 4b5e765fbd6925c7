internal import DequeModule
internal import EarshotWire

/// One session over several connections. Messages have numbers, so that after a resumption only those are repeated that
/// the broker did not receive, and the broker repeats the answers that were lost.
extension ClientCore {
    // MARK: Sending

    /// Sends a message, or only numbers it while disconnected: its number marks it as not received, so the resumption
    /// sends it.
    mutating func say(_ message: ClientMessage) -> [ClientAction] {
        numbers.add(message)
        return phase == .ready && numbers.admits(message) ? [.send(message)] : []
    }

    /// Sends the messages that waited for answers to earlier ones.
    mutating func sayHeld() -> [ClientAction] { numbers.release().map { .send($0) } }

    /// Sends a message that the broker answers.
    mutating func ask(_ what: Awaited) -> [ClientAction] {
        lastOrder += 1
        awaited.append(Question(what: what, order: lastOrder, number: .max, wasSaid: false))
        return sayQuestion(awaited.endIndex - 1)
    }

    mutating func sayQuestion(_ index: Int) -> [ClientAction] {
        let actions = say(awaited[index].what.message)
        awaited[index].number = numbers.last
        awaited[index].isRefused = false
        // A message that is held back leaves later, without another call of this function.
        awaited[index].wasSaid = awaited[index].wasSaid || phase == .ready
        return actions
    }

    mutating func sayRequest(_ key: RequestKey) -> [ClientAction] {
        guard var request = requests[key] else { return [] }
        defer { requests[key] = request }
        return say(&request)
    }

    mutating func say(_ request: inout OpenRequest) -> [ClientAction] {
        let actions = say(request.takeMessage())
        request.number = numbers.last
        fetches.add(RequestKey(request.fetch.value), number: numbers.last)
        if fetches.count > 2 * requests.count + SentFetches.spare {
            fetches.removeAll { requests[$1]?.number != $0 }
        }
        return actions
    }

    /// Sends a message that OK answers.
    mutating func notify(_ message: ClientMessage) -> [ClientAction] {
        let actions = say(message)
        guard token != nil else { return actions }
        notices.append(message, number: numbers.last)
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
    mutating func settle(_ number: UInt64) -> Awaited? {
        numbers.answered(number)
        heard(number)
        // Numbers rise, and few questions are passed: those about durable requests.
        guard let index = awaited.firstIndex(where: { $0.number >= number }), awaited[index].number == number else {
            return nil
        }
        return awaited.remove(at: index).what
    }

    /// Records that the broker received all messages up to a number.
    mutating func heard(_ number: UInt64) {
        guard number < .max else { return }
        notices.confirm(through: number)
        if !replaced.isEmpty { replaced = replaced.filter { $0.value > number } }
    }

    // MARK: Resumption

    /// Resumes a session in which the broker knows the messages up to `heard`.
    ///
    /// Repeats the messages after those in their order. The broker repeats lost answers, except those to queries, which
    /// are asked again.
    mutating func resumed(_ heard: UInt64, _ welcome: Welcome) -> [ClientAction] {
        phase = .ready
        token = welcome.token
        spool = welcome.spool
        isPulling = welcome.isPulling
        broker = welcome.broker
        var actions: [ClientAction] = [.report(.state(.connected(welcome.broker)))]
        // Terminals of replaced requests are repeated after WELCOME.
        for key in replaced.keys { replaced[key] = .max }
        self.heard(heard)
        var unheard: [(number: UInt64, say: (inout ClientCore) -> [ClientAction])] = []
        for notice in notices.entries { unheard.append((notice.number, { $0.notify(notice.message) })) }
        let isKnown: (Question) -> Bool = { $0.number <= heard && !$0.what.isQuery }
        for question in awaited where !isKnown(question) {
            unheard.append((question.number, { $0.sayAgain(question) }))
        }
        for (key, request) in requests where request.number > heard && request.waitsFor == nil {
            if request.number < .max { requests[key]?.wasSaid = false }
            // Requests never sent come last, in the order of their creation.
            let number = request.number == .max ? (UInt64.max >> 1) + request.order : request.number
            unheard.append((number, { $0.sayRequest(key) }))
        }
        notices = NoticeLog()
        awaited.removeAll { !isKnown($0) }
        numbers.resume(after: heard)
        fetches.resume(after: heard)
        if let sequence = ledger.acknowledged { actions += say(.acknowledge(sequence)) }
        for (_, say) in unheard.sorted(by: { $0.number < $1.number }) { actions += say(&self) }
        for key in replaced.keys { replaced[key] = numbers.last + 1 }
        return actions
    }

    /// Whether the broker drains, and another bus can take over: no body is being read, and each request that was sent may
    /// be made again there.
    var mayMove: Bool {
        guard phase == .ready, isDraining, pulls.isEmpty, taking.isEmpty else { return false }
        let submissions = awaited.compactMap { question in
            if case .submission(let fetch) = question.what, question.wasSaid { fetch.options } else { nil }
        }
        let options = requests.values.filter(\.wasSaid).map(\.fetch.value.options) + submissions
        return options.allSatisfy { $0.isRepeatable && !$0.isDurable }
    }

    /// Gives up the session, because the next connection goes to another bus.
    ///
    /// Open requests are made again there. Durable ones that were sent may be on the disk of the old bus, which then
    /// fetches them, so they end here.
    mutating func moved() -> [ClientAction] {
        var stayed: [(order: UInt64, key: RequestKey)] = []
        for (key, request) in requests where request.wasSaid && request.fetch.value.options.isDurable {
            stayed.append((request.order, key))
            requests[key] = nil
        }
        awaited.removeAll { question in
            guard case .submission(let fetch) = question.what, question.wasSaid, fetch.options.isDurable else {
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

    mutating func sayAgain(_ question: Question) -> [ClientAction] {
        awaited.append(question)
        return sayQuestion(awaited.endIndex - 1)
    }
}
