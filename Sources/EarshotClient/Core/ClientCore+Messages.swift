internal import DequeModule
internal import EarshotWire

/// What the broker's messages mean to what is wanted.
extension ClientCore {
    mutating func welcomed(by welcome: Welcome) -> [ClientAction] {
        refusals = 0
        if let heard = welcome.heard, token != nil { return resumed(heard, welcome) }
        endSession()
        phase = .ready
        token = welcome.token
        spool = welcome.spool
        var actions: [ClientAction] = [.report(.state(.connected(welcome.broker)))]
        for pattern in subscriptions { actions += notify(.subscribe(pattern)) }
        for index in awaited.indices { actions += sayQuestion(index) }
        actions += lostSubmissions.map { .report(.refused(Self.connectionLost($0))) }
        lostSubmissions = []
        for (key, _) in requests.sorted(by: { $0.value.order < $1.value.order }) {
            if requests[key]?.isLost == true {
                requests[key] = nil
                actions.append(.report(.refused(Self.connectionLost(key))))
            } else {
                actions += sayRequest(key)
            }
        }
        return actions
    }

    /// The end of a request that is not asked again.
    private static func connectionLost(_ key: RequestKey) -> ErrorReply {
        var reply = ErrorReply(
            code: "connection-lost", detail: "the broker was lost, and what may have been done is not asked again")
        reply.verb = "FETCH"
        reply.handler = key.handler
        reply.request = key.request
        return reply
    }

    /// Nothing of what was under way counts any more: the next session begins anew.
    mutating func endSession() {
        link += 1
        token = nil
        said = 0
        replies = 0
        replaced = [:]
        awaited.removeAll { if case .replacement = $0.what { true } else { false } }
        notices = []
        for key in requests.keys { requests[key]?.sessionLost() }
        loseSubmissions()
        ledger = DeliveryLedger()
        isDraining = false
        for key in waiting { requests[key]?.waitsFor = nil }
        waiting.removeAll()
    }

    /// Forgets the submissions that were said, as far as they must not be done twice.
    private mutating func loseSubmissions() {
        awaited.removeAll { question in
            guard case .submission(let fetch) = question.what, question.wasSaid, !fetch.options.isRepeatable else {
                return false
            }
            lostSubmissions.append(RequestKey(fetch))
            return true
        }
    }

    mutating func terminalReceived(_ terminal: consuming Terminal) -> [ClientAction] {
        let key = RequestKey(terminal.handler, terminal.request)
        // The refusal of a submission has no number.
        guard terminal.sequence == 0 || ledger.receive(terminal.sequence, of: key) else { return [] }
        // Looked for once: names are long.
        let place = requests.index(forKey: key)
        if let place { heard(requests.values[place].number) }
        let id = Delivery.ID(link: link, sequence: terminal.sequence)
        let isRefusedByDraining =
            switch terminal.outcome {
            case .failed(let failure): failure.code == "stopping" && (place != nil || isSubmitted(key))
            case .result: false
            }
        // A broker that is about to end has not answered: the next one will.
        if isStale(key) || isRefusedByDraining {
            ledger.finish(terminal.sequence)
            if isRefusedByDraining {
                requests[key]?.wasSaid = false
                requests[key]?.number = .max
            }
            return []
        }
        settleSubmission(key)
        let request = place.map { requests.remove(at: $0).value }
        if terminal.response?.file == nil, !finishesNone { ledger.finish(terminal.sequence) }
        return [.deliver(Delivery(id: id, terminal, of: request))]
    }

    /// Whether a message about `key` is of before its cancellation or removal: the answer to that is still to come.
    func isStale(_ key: RequestKey) -> Bool {
        awaited.contains { question in
            switch question.what {
            case .cancel(let cancelled), .replacement(let cancelled): cancelled == key
            case .remove(let pattern): pattern.matches(key.handler)
            case .query, .setting, .submission: false
            }
        }
    }

    /// A durable request is the broker's affair now.
    private mutating func settleSubmission(_ key: RequestKey) {
        if awaited.isEmpty { return }
        awaited.removeAll { if case .submission(let fetch) = $0.what { RequestKey(fetch) == key } else { false } }
    }

    private func isSubmitted(_ key: RequestKey) -> Bool {
        awaited.contains { if case .submission(let fetch) = $0.what { RequestKey(fetch) == key } else { false } }
    }

    mutating func accepted(_ key: RequestKey) -> [ClientAction] {
        settleSubmission(key)
        return isStale(key) ? [] : [.report(.accepted(key))]
    }

    mutating func answered(_ query: Query) -> [ClientAction] {
        guard let index = awaited.firstIndex(where: { $0.what.asks(query) }) else { return [] }
        heard(awaited[index].number)
        // In order on one connection: what was submitted before the query was taken in before its answer, but what is
        // durable is not on the disk by that.
        let earlier = awaited[..<index].filter { entry in
            if case .submission(let fetch) = entry.what { fetch.options.isDurable } else { true }
        }
        awaited.replaceSubrange(...index, with: earlier)
        return [.report(.answered(query))]
    }

    mutating func refused(_ reply: ErrorReply) -> [ClientAction] {
        switch reply.code {
        case "hello-required":
            // Once for each message that was under way; the first is enough.
            guard phase == .ready else { return [] }
            endSession()
            return linkOpened()
        case "session-in-use":
            // The broker has not seen the end of the old connection yet.
            refusals += 1
            if refusals >= Self.mostRefusals { token = nil }
            return [.reconnect]
        case "version":
            return [.report(.state(.incompatible)), .report(.refused(reply))]
        default: break
        }
        if let handler = reply.handler, let request = reply.request, reply.verb == "FETCH" || reply.verb == nil {
            let key = RequestKey(handler, request)
            // It refuses the request that this one replaces.
            guard !awaited.contains(where: { $0.what == .replacement(key) }) else { return [] }
            requests[key] = nil
            waiting.remove(key)
            settleSubmission(key)
        } else if reply.verb == "QUERY" {
            if let index = awaited.firstIndex(where: { if case .query = $0.what { true } else { false } }) {
                awaited.remove(at: index)
            }
        } else if reply.verb == "SET" {
            _ = settleSetting()
        }
        return [.report(.refused(reply))]
    }

    mutating func ask(_ fetch: Shared<Fetch>, losses: Int) -> [ClientAction] {
        let key = RequestKey(fetch.value)
        lastOrder += 1
        var request = OpenRequest(fetch: fetch, order: lastOrder, askedAt: milliseconds, losses: losses)
        defer { requests[key] = request }
        let actions = replaced.removeValue(forKey: key) == nil ? [] : ask(.replacement(key))
        guard phase == .ready else { return actions }
        if let sequence = ledger.unacknowledged(key) {
            request.waitsFor = sequence
            waiting.insert(key)
            guard fetch.value.options.replacesHandler else { return actions }
            // What is asked for meanwhile comes before it, and must not be purged by it.
            request.wasSaid = true
            return actions + ask(.remove(.handler(key.handler)))
        }
        return isDraining ? actions : actions + say(&request)
    }

    /// - Returns: those of them that were said in this session, and have no terminal.
    @discardableResult
    mutating func forget(_ pattern: HandlerPattern, _ old: [RequestKey]?) -> [RequestKey] {
        var said: [RequestKey] = []
        for key in old ?? requests.keys.filter({ pattern.matches($0.handler) }) {
            if let request = requests.removeValue(forKey: key), request.number < .max { said.append(key) }
            waiting.remove(key)
        }
        return said
    }

    /// The answer to the first CANCEL of this request.
    /// - Returns: whether the consumer said it.
    mutating func settleCancel(_ key: RequestKey) -> Bool {
        guard let index = awaited.firstIndex(where: { [.cancel(key), .replacement(key)].contains($0.what) }) else {
            return false
        }
        let question = awaited.remove(at: index)
        heard(question.number)
        return question.what == .cancel(key)
    }

    mutating func settle(_ what: Awaited) -> Bool {
        guard let index = awaited.firstIndex(where: { $0.what == what }) else { return false }
        heard(awaited.remove(at: index).number)
        return true
    }

    /// Answers come in the order of the questions, and in a normal form of their own.
    mutating func settleSetting() -> Bool {
        guard let index = awaited.firstIndex(where: { if case .setting = $0.what { true } else { false } }) else {
            return false
        }
        heard(awaited.remove(at: index).number)
        return true
    }
}

extension ClientCore.Awaited {
    /// What it was said with.
    var message: ClientMessage {
        switch self {
        case .cancel(let key), .replacement(let key): .cancel(key.handler, key.request)
        case .remove(let pattern): .remove(pattern)
        case .query(let query, let page): .query(query, page)
        case .setting(let setting): .set(setting)
        case .submission(let fetch): .fetch(fetch)
        }
    }
}
