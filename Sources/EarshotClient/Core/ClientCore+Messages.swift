internal import DequeModule
internal import EarshotWire

/// Handling of broker messages.
extension ClientCore {
    mutating func welcomed(by welcome: Welcome) -> [ClientAction] {
        refusals = 0
        if let heard = welcome.heard {
            // Too many notices since HELLO: the resumed session does not know them.
            guard token != nil else { return [.reconnect] }
            return resumed(heard, welcome)
        }
        let lost = endSession()
        phase = .ready
        token = welcome.token
        spool = welcome.spool
        isPulling = welcome.isPulling
        broker = welcome.broker
        var actions: [ClientAction] = [.report(.state(.connected(welcome.broker)))] + lost
        let questions = awaited
        awaited = []
        // After a subscription or a request a removal would end it.
        for question in questions where question.what.isRemoval { actions += sayAgain(question) }
        for pattern in subscriptions { actions += notify(.subscribe(pattern)) }
        // The same broker has the cookies in its jars, with later values of the servers.
        for index in cookies.indices where cookies[index].broker != welcome.broker {
            cookies[index].broker = welcome.broker
            actions += notify(cookies[index].message)
        }
        actions += lostSubmissions.map { .report(.refused(Self.connectionLost($0))) }
        lostSubmissions = []
        actions += sayFetches(questions.filter(\.what.isSubmission))
        for question in questions where !question.what.isRemoval && !question.what.isSubmission {
            actions += sayAgain(question)
        }
        return actions
    }

    /// Repeats the open requests and `submissions` in the order of their creation.
    private mutating func sayFetches(_ submissions: Deque<Question>) -> [ClientAction] {
        var submissions = submissions
        var actions: [ClientAction] = []
        for (key, request) in requests.sorted(by: { $0.value.order < $1.value.order }) {
            while let first = submissions.first, first.order < request.order {
                submissions.removeFirst()
                actions += sayAgain(first)
            }
            if request.isLost {
                requests[key] = nil
                actions.append(.report(.refused(Self.connectionLost(key))))
            } else {
                actions += sayRequest(key)
            }
        }
        for submission in submissions { actions += sayAgain(submission) }
        return actions
    }

    /// Returns the report that ends a request which must not be repeated.
    static func connectionLost(
        _ key: RequestKey,
        _ detail: String =
            "the connection was lost during a request that is not idempotent: the server may have processed it"
    ) -> ErrorReply {
        var reply = ErrorReply(code: "connection-lost", detail: detail)
        reply.verb = "FETCH"
        reply.handler = key.handler
        reply.request = key.request
        return reply
    }

    /// Ends the session: the next connection starts a new one and repeats all open requests.
    ///
    /// - Returns: the terminals whose bodies are lost with the session.
    mutating func endSession() -> [ClientAction] {
        let lost = carryOut(pulls.endSession()) + stopTaking()
        link += 1
        token = nil
        said = 0
        replies = 0
        replaced = [:]
        awaited.removeAll { question in
            switch question.what {
            case .replacement, .barrier, .take: true
            case .cancel, .retry, .remove, .query, .setting, .submission: false
            }
        }
        notices = NoticeLog()
        unconfirmed = 0
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
        // The refusal of a submission has no sequence number.
        guard terminal.sequence == 0 || ledger.receive(terminal.sequence, of: key) else { return [] }
        // One lookup: hashing names of up to 200 bytes costs time.
        let place = requests.index(forKey: key)
        if let place { heard(requests.values[place].number) }
        let id = Delivery.ID(link: link, sequence: terminal.sequence)
        let isRefusedByDraining =
            switch terminal.outcome {
            case .failed(let failure): failure.code == "stopping" && (place != nil || isSubmitted(key))
            case .result: false
            }
        // A draining broker refuses requests with `stopping`. The next broker answers them.
        if isStale(key) || isRefusedByDraining {
            ledger.finish(terminal.sequence)
            if isRefusedByDraining {
                requests[key]?.wasSaid = false
                requests[key]?.number = .max
                if let index = awaited.firstIndex(where: { $0.what.submitted == key }) {
                    awaited[index].isRefused = true
                    awaited[index].wasSaid = false
                }
                defer { isRefusing = true }
                return isDraining || isRefusing ? [] : [.report(.state(.draining))]
            }
            return []
        }
        settleSubmission(key)
        let request = place.map { requests.remove(at: $0).value }
        return deliver(Delivery(id: id, terminal, of: request))
    }

    /// Returns whether a message about `key` refers to a request that was cancelled or removed: the answer to that is
    /// pending.
    func isStale(_ key: RequestKey) -> Bool {
        awaited.contains { question in
            switch question.what {
            case .cancel(let cancelled), .replacement(let cancelled): cancelled == key
            case .remove(let pattern): pattern.matches(key.handler)
            case .retry, .query, .take, .barrier, .setting, .submission: false
            }
        }
    }

    /// Ends the wait for the answer to a submission or a repetition.
    mutating func settleSubmission(_ key: RequestKey) {
        if awaited.isEmpty { return }
        awaited.removeAll { $0.what.submitted == key }
    }

    func isSubmitted(_ key: RequestKey) -> Bool { awaited.contains { $0.what.submitted == key } }

    mutating func accepted(_ key: RequestKey) -> [ClientAction] {
        guard !isStale(key) else { return [] }
        settleSubmission(key)
        return [.report(.accepted(key))]
    }

    mutating func answered(_ query: Query) -> [ClientAction] {
        guard let index = awaited.firstIndex(where: { $0.what.asks(query) }) else { return [] }
        return settleQuery(at: index) ? [.report(.answered(query))] : []
    }

    /// Settles the first open query, whose answer does not name it.
    ///
    /// - Returns: whether the consumer asked it.
    mutating func settleFirstQuery() -> Bool {
        guard let index = awaited.firstIndex(where: \.what.isQuery) else { return false }
        return settleQuery(at: index)
    }

    /// - Returns: whether the consumer asked the query.
    private mutating func settleQuery(at index: Int) -> Bool {
        let isBarrier = awaited[index].what == .barrier
        heard(awaited[index].number)
        // Messages are processed in order: the answer to a query proves that earlier submissions arrived. It does not
        // prove that durable ones are on disk.
        let earlier = awaited[..<index].filter { entry in
            if case .submission(let fetch) = entry.what { fetch.options.isDurable || entry.isRefused } else { true }
        }
        awaited.replaceSubrange(...index, with: earlier)
        return !isBarrier
    }

    mutating func refused(_ reply: ErrorReply) -> [ClientAction] {
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
            return [.report(.state(.incompatible)), .report(.refused(reply))]
        default: break
        }
        if reply.verb == "READ" { return readRefused(reply) }
        if reply.verb == "TAKE", let sequence = reply.sequence { return taken(sequence, nil) }
        if let handler = reply.handler, let request = reply.request, reply.verb == "FETCH" || reply.verb == nil {
            let key = RequestKey(handler, request)
            // The refusal precedes the answer to a removal, so it concerns the removed request with the same ID.
            guard !isStale(key) else { return [] }
            requests[key] = nil
            waiting.remove(key)
            settleSubmission(key)
        } else if reply.verb == "RETRY", let handler = reply.handler, let request = reply.request {
            let key = RequestKey(handler, request)
            guard !isStale(key) else { return [] }
            _ = settle(.retry(key))
        } else if reply.verb == "QUERY" {
            if let index = awaited.firstIndex(where: \.what.isQuery), awaited.remove(at: index).what == .barrier {
                return []
            }
        } else if reply.verb == "SET" {
            _ = settleSetting()
        }
        return [.report(.refused(reply))]
    }

    mutating func ask(_ fetch: Shared<Fetch>, losses: Int) -> [ClientAction] {
        let key = RequestKey(fetch.value)
        lastOrder += 1
        var request = OpenRequest(fetch: fetch, order: lastOrder, losses: losses)
        defer { requests[key] = request }
        let actions = replaced.removeValue(forKey: key) == nil ? [] : ask(.replacement(key))
        guard phase == .ready else { return actions }
        if let sequence = ledger.unacknowledged(key) {
            request.waitsFor = sequence
            waiting.insert(key)
            guard fetch.value.options.replacesHandler else { return actions }
            // Later requests precede this one on the wire, so its own REPLACE would purge them: a REMOVE is sent first.
            request.wasSaid = true
            return actions + ask(.remove(.handler(key.handler)))
        }
        return isDraining ? actions : actions + say(&request)
    }

    /// Forgets the open requests of a pattern; without `old` also its submissions.
    ///
    /// - Returns: keys of the requests sent in this session.
    @discardableResult
    mutating func forget(_ pattern: HandlerPattern, _ old: [RequestKey]?) -> [RequestKey] {
        var said: [RequestKey] = []
        for key in old ?? requests.keys.filter({ pattern.matches($0.handler) }) {
            if let request = requests.removeValue(forKey: key), request.number < .max { said.append(key) }
            waiting.remove(key)
        }
        if let old {
            let keys = Set(old)
            dropBodies { keys.contains($0) }
        } else {
            dropBodies { pattern.matches($0.handler) }
            forgetSubmissions { pattern.matches($0.handler) }
        }
        return said
    }

    /// Forgets submissions and repetitions that a removal ends.
    mutating func forgetSubmissions(_ isRemoved: (RequestKey) -> Bool) {
        awaited.removeAll { $0.what.submitted.map(isRemoved) ?? false }
    }

    /// Settles the first removal of a request.
    ///
    /// - Returns: whether the consumer requested it.
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

    /// Answers come in the order of the SETs, with the setting in canonical form.
    mutating func settleSetting() -> Bool {
        guard let index = awaited.firstIndex(where: { if case .setting = $0.what { true } else { false } }) else {
            return false
        }
        heard(awaited.remove(at: index).number)
        return true
    }
}

extension ClientCore.Awaited {
    var isRemoval: Bool {
        switch self {
        case .cancel, .replacement, .remove: true
        case .retry, .query, .take, .barrier, .setting, .submission: false
        }
    }

    /// Request that the broker accepts or refuses, if this is a submission or a repetition.
    var submitted: RequestKey? {
        switch self {
        case .submission(let fetch): RequestKey(fetch)
        case .retry(let key): key
        case .cancel, .replacement, .remove, .query, .take, .barrier, .setting: nil
        }
    }

    var isQuery: Bool {
        switch self {
        case .query, .barrier: true
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
        case .barrier: .query(.ping, QueryPage())
        case .setting(let setting): .set(setting)
        case .submission(let fetch): .fetch(fetch)
        }
    }
}
