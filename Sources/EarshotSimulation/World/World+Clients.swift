internal import EarshotCore
internal import EarshotWire

/// Behaviour of client programs at planned events of the `World`.
extension World {
    mutating func makeClient() -> SimulatedClient {
        let window = [1_024, 4_096, 1, 3, 16, 256, 256, 64][random.number(below: 8)]
        let handlers = (0..<max(2, setting.handlerCount * 2 / setting.clientCount)).map { _ in
            random.number(below: setting.handlerCount)
        }
        return SimulatedClient(
            window: window, isSlow: random.boolean(perMille: 250),
            principal: setting.isEnabled(.multiplePrincipals) ? PrincipalName("key:\(clients.count % 3)") : nil,
            handlers: handlers,
            leaseMilliseconds: setting.isEnabled(.leases) ? [0, 40, 400, 4_000][random.number(below: 4)] : 0)
    }

    mutating func clientConnects(_ number: Int) throws(Violation) {
        guard !isOver, clients[number].link == nil else { return }
        lastLink += 1
        let link = lastLink
        links[link] = Link(peerNumber: number)
        clients[number].link = link
        clients[number].hasPlannedAcknowledgement = false
        try handle(.clientConnected(ClientID(rawValue: link)))
        sendHello(number, link)
        planEvent(random.nanoseconds(around: setting.meanPauseNanoseconds), .clientActs(number))
    }

    /// Sends HELLO. Open requests follow at once, unless a resumed session may make them unnecessary.
    private mutating func sendHello(_ number: Int, _ link: UInt64) {
        var hello = Hello(window: clients[number].window)
        hello.leaseMilliseconds = clients[number].leaseMilliseconds
        hello.token = clients[number].token
        hello.principal = clients[number].principal
        if hello.token != nil, random.boolean(perMille: 50) {
            // Token of another session, or an unknown one.
            hello.token = Trial.token(of: ClientID(rawValue: UInt64(random.number(below: Int(lastLink) + 2))))
        }
        // Some clients name none, and some a number that there was not. Not drawn, so that other behaviour stays the same.
        if hello.token != nil, !link.isMultiple(of: 7) {
            hello.firstUnansweredNumber =
                clients[number].messageNumbers.firstUnansweredNumber + (link.isMultiple(of: 11) ? 100 : 0)
        }
        clients[number].awaitsWelcome = hello.token != nil
        clients[number].messageNumbers.helloSent(unanswered: hello.firstUnansweredNumber)
        sendFromClient(.hello(hello), link)
        if hello.token == nil {
            clients[number].lastReceivedTerminal = 0
            resendOpenRequests(number, link)
        }
    }

    /// Repeats all open requests.
    private mutating func resendOpenRequests(_ number: Int, _ link: UInt64) {
        clients[number].messageNumbers.beginSession()
        for want in clients[number].wantedFetches.keys.sorted() { sendRequest(want, number, link) }
    }

    private mutating func sendRequest(_ want: SimulatedClient.WantedRequest, _ number: Int, _ link: UInt64) {
        guard let fetch = clients[number].wantedFetches[want] else { return }
        sendFromClient(.fetch(fetch), link)
    }

    private mutating func welcomeReceived(_ welcome: Welcome, _ number: Int, _ link: UInt64) {
        clients[number].token = welcome.token
        clients[number].messageNumbers.welcomeReceived()
        guard clients[number].awaitsWelcome else { return }
        clients[number].awaitsWelcome = false
        guard let lastReceived = welcome.lastReceivedNumber else {
            clients[number].lastReceivedTerminal = 0
            resendOpenRequests(number, link)
            return
        }
        let (repeated, queries) = clients[number].messageNumbers.resumeSession(after: lastReceived)
        for message in repeated { sendFromClient(message, link) }
        for query in queries { sendFromClient(query, link) }
        sendFromClient(.acknowledge(clients[number].lastReceivedTerminal), link)
    }

    /// Sends a message; some as bytes, to be parsed by the decoder.
    private mutating func sendFromClient(_ message: ClientMessage, _ link: UInt64) {
        guard let number = links[link]?.peerNumber else { return }
        sendFromClient(clients[number].messageNumbers.numberMessage(message), link)
    }

    private mutating func sendFromClient(_ message: NumberedMessage, _ link: UInt64) {
        let sentMessage: PlannedEvent.PeerMessage =
            random.boolean(perMille: 60) ? .bytes(message.encoded()) : .message(message)
        planArrival(atBrokerOver: link, .messageFromClient(link: link, sentMessage))
    }

    mutating func clientMessageArrived(_ sentMessage: PlannedEvent.PeerMessage<NumberedMessage>, _ link: UInt64)
        throws(Violation)
    {
        guard let known = links[link], !known.isBroken || known.deliversPendingMessages else { return }
        let id = ClientID(rawValue: link)
        try awaitRemoval(by: id)
        switch sentMessage {
        case .message(let sentMessage): try handle(.clientSent(id, sentMessage.message, number: sentMessage.number))
        case .bytes(let bytes):
            let event: BrokerEvent
            do throws(WireError) {
                let sentMessage = try NumberedMessage(head: bytes)
                event = .clientSent(id, sentMessage.message, number: sentMessage.number)
            } catch {
                event = .clientSentMalformed(id, error)
            }
            try handle(event)
        }
    }

    // MARK: Acting

    mutating func clientActs(_ number: Int) {
        guard !isEnding, let link = clients[number].link else { return }
        planEvent(random.nanoseconds(around: setting.meanPauseNanoseconds), .clientActs(number))
        guard !clients[number].awaitsWelcome else { return }
        switch random.number(below: 1_000) {
        case ..<4 where setting.isEnabled(.lostConnections): loseConnection(link, number)
        case ..<8 where setting.isEnabled(.removals): clientLeaves(number, link)
        case ..<20 where setting.isEnabled(.malformedClientMessages): sendMalformed(link)
        case ..<40 where setting.isEnabled(.watchers): watch(link)
        case ..<80 where setting.isEnabled(.removals): remove(number, link)
        case ..<150 where setting.isEnabled(.removals): cancel(number, link)
        case ..<165:
            sendFromClient(
                .query([.ping, .ledger, .status, .workers, .origins, .requests][random.number(below: 6)]), link)
        case ..<180: sendRequest(number, link) { handler, request, _ in .query(.explainRequest(handler, request)) }
        case ..<210:
            let priority = PriorityClass.allCases[random.number(below: 4)]
            sendRequest(number, link) { handler, request, _ in .setPriority(handler, request, priority) }
        case ..<230: sendRequest(number, link) { _, _, fetch in .fetch(fetch) }
        default: for _ in 0...random.number(below: 4) { fetch(number, link) }
        }
    }

    private mutating func fetch(_ number: Int, _ link: UInt64) {
        let handlers = clients[number].handlers
        let want = SimulatedClient.WantedRequest(
            handler: handlers[random.number(below: handlers.count)],
            request: random.number(below: setting.requestIDsPerHandler))
        let key = min(random.number(below: setting.keyCount), random.number(below: setting.keyCount))
        var fetch = unconditionalFetch(want, key)
        choose(&fetch.options, key)
        if random.boolean(perMille: 50) { fetch.httpFields = Array("cookie: a".utf8) }
        if random.boolean(perMille: 40) { makeUnshared(&fetch) }
        if setting.isEnabled(.malformedClientMessages), random.boolean(perMille: 20) {
            corrupt(&fetch)
        } else if fetch.httpFields.isEmpty, catalogue.hasCacheMode(key) {
            fetch.options.cacheMode = catalogue.cacheMode(of: key)
        }
        if fetch.httpFields.isEmpty, catalogue.hasEntityTag(key) { addCondition(to: &fetch, key, want.request) }
        // A client library requests each resource once; few programs reuse an ID at once.
        if clients[number].wantedFetches[want] != nil, !random.boolean(perMille: 100) { return }
        submitRequest(fetch, for: want, number, link)
    }

    private func unconditionalFetch(_ want: SimulatedClient.WantedRequest, _ key: Int) -> Fetch {
        var fetch = Fetch(
            handler: catalogue.handlers[want.handler], request: catalogue.requests[want.request],
            url: catalogue.urls[key])
        fetch.options.redirectMode = catalogue.redirectMode(of: key)
        fetch.options.route.deliversErrorResponses = catalogue.deliversErrors(of: key)
        return fetch
    }

    /// Makes two of three requests conditional: on the present version, and on one that the origin no longer has.
    private func addCondition(to fetch: inout Fetch, _ key: Int, _ request: Int) {
        guard request % 3 > 0, fetch.options.method == "GET", fetch.options.maximumBodyBytes == nil,
            fetch.options.expectedSHA256 == nil, fetch.url == catalogue.urls[key]
        else { return }
        fetch.httpFields = Array("if-none-match: \(request % 3 == 1 ? entityTag(of: key) : "\"\(key).0\"")".utf8)
    }

    /// Makes requests that workers will serve when the broker dies.
    mutating func clientSubmitsBeforeDeath(_ number: Int) {
        for _ in 0..<deathRandom.number(below: 3) {
            submitUnderUnusedName(number, key: deathRandom.number(below: setting.keyCount))
        }
    }

    /// Makes a request under an unused name.
    private mutating func submitUnderUnusedName(_ number: Int, key: Int) {
        guard !isEnding, let link = clients[number].link, !clients[number].awaitsWelcome else { return }
        let handlers = clients[number].handlers
        let want = SimulatedClient.WantedRequest(
            handler: handlers[deathRandom.number(below: handlers.count)],
            request: deathRandom.number(below: setting.requestIDsPerHandler))
        guard clients[number].wantedFetches[want] == nil else { return }
        var fetch = unconditionalFetch(want, key)
        fetch.options.cacheMode = catalogue.cacheMode(of: key)
        submitRequest(fetch, for: want, number, link)
    }

    /// Sends a new request, and stores it for repetition after a disconnection.
    private mutating func submitRequest(
        _ fetch: Fetch, for want: SimulatedClient.WantedRequest, _ number: Int, _ link: UInt64
    ) {
        var fetch = fetch
        if let principal = clients[number].principal, fetch.options.coalesces,
            !fetch.httpFields.starts(with: "host:".utf8)
        {
            // A JOB identifies its flight, and principals share none.
            fetch.httpFields = Array("x-user: \(principal)".utf8)
            fetch.options.cacheMode = .default
        }
        sendFromClient(.fetch(fetch), link)
        guard fetch.options.subscribes else { return }
        clients[number].wantedFetches[want] = fetch
    }

    /// Makes a request unshared, distinguished by a header field.
    private mutating func makeUnshared(_ fetch: inout Fetch) {
        fetch.options.coalesces = false
        fetch.options.method = ["GET", "POST", "PUT", "PATCH", "DELETE"][random.number(below: 5)]
        lastUnsharedRequest += 1
        fetch.httpFields = Array("x-alone: \(lastUnsharedRequest)".utf8)
    }

    private mutating func choose(_ options: inout Fetch.Options, _ key: Int) {
        options.priority = [.background, .low, .normal, .normal, .high][random.number(below: 5)]
        options.retries = random.number(below: 4)
        if random.boolean(perMille: 30) { options.method = "HEAD" }
        if random.boolean(perMille: 30) { options.isCacheWarming = true }
        if random.boolean(perMille: 50) { options.progressIntervalMilliseconds = 50 }
        if random.boolean(perMille: 80) { options.streams = true }
        if random.boolean(perMille: 80) { options.delivery = random.boolean(perMille: 500) ? .inline : .file }
        // The default that the core applies.
        if options.delivery == .inline { options.maximumBodyBytes = 65_536 }
        if setting.isEnabled(.handlerOwnedRequests), random.boolean(perMille: 60) { options.subscribes = false }
        if setting.isEnabled(.deadlines), random.boolean(perMille: 60) {
            let milliseconds = 1 + random.number(below: 400)
            // No multiple of a lease's unit: a lease that ended in the same instant might end the request as well.
            options.deadlineMilliseconds = milliseconds.isMultiple(of: 40) ? milliseconds - 1 : milliseconds
        }
        if setting.isEnabled(.removals), random.boolean(perMille: 10) { options.replacesHandler = true }
        // Not drawn, so that the worlds of seeds stay the same. Which of two times ends a request is not predictable.
        if options.deadlineMilliseconds == nil, options.retries < 2, [4, 5].contains(key % 10) {
            options.coolDownWaitMilliseconds = key % 2 == 0 ? 0 : key * 37 % 2_000
        }
        if key % 10 == 7 { options.ageMilliseconds = 50 * key }
        guard setting.isEnabled(.sizeLimits) else { return }
        if random.boolean(perMille: 60) { options.maximumBodyBytes = random.number(below: 500) }
        if random.boolean(perMille: 30) {
            options.expectedSHA256 = catalogue.bodyDigests[random.boolean(perMille: 500) ? key : 0]
        }
    }

    private mutating func corrupt(_ fetch: inout Fetch) {
        switch random.number(below: 4) {
        case 0: fetch.url = "nonsense"
        case 1: fetch.url = "ftp://o1.test/1"
        case 2: fetch.options.method = "POST"
        default: fetch.httpFields = Array("host: other".utf8)
        }
        fetch.options.redirectMode = .follow
        fetch.options.route.deliversErrorResponses = false
    }

    /// Sends a message about one of its requests.
    private mutating func sendRequest(
        _ number: Int, _ link: UInt64, _ message: (HandlerID, RequestID, Fetch) -> ClientMessage
    ) {
        guard let want = someWant(of: number), let fetch = clients[number].wantedFetches[want] else { return }
        sendFromClient(message(fetch.handler, fetch.request, fetch), link)
    }

    private mutating func someWant(of number: Int) -> SimulatedClient.WantedRequest? {
        let wants = clients[number].wantedFetches.keys
        guard let first = wants.min() else { return nil }
        let start = SimulatedClient.WantedRequest(handler: random.number(below: setting.handlerCount), request: 0)
        return wants.filter { $0 >= start }.min() ?? first
    }

    private mutating func cancel(_ number: Int, _ link: UInt64) {
        guard let want = someWant(of: number), let fetch = clients[number].wantedFetches.removeValue(forKey: want)
        else {
            return
        }
        sendFromClient(.removeRequest(fetch.handler, fetch.request), link)
    }

    private mutating func remove(_ number: Int, _ link: UInt64) {
        let handlers = clients[number].handlers
        let pattern =
            random.boolean(perMille: 800)
            ? HandlerPattern.handler(catalogue.handlers[handlers[random.number(below: handlers.count)]])
            : catalogue.handlerPatterns[random.number(below: catalogue.handlerPatterns.count)]
        clients[number].wantedFetches = clients[number].wantedFetches.filter {
            !pattern.matches(catalogue.handlers[$0.key.handler])
        }
        sendFromClient(.removeHandlers(pattern), link)
    }

    private mutating func watch(_ link: UInt64) {
        let patterns = catalogue.handlerPatterns
        let fromEnd = random.boolean(perMille: 300)
        let pattern = patterns[
            fromEnd
                ? patterns.count - 1 - random.number(below: setting.handlerCount / 4 + 1)
                : random.number(below: patterns.count)]
        sendFromClient(random.boolean(perMille: 550) ? .subscribe(pattern) : .unsubscribe(pattern), link)
    }

    private mutating func clientLeaves(_ number: Int, _ link: UInt64) {
        sendFromClient(.bye, link)
        clients[number].token = nil
        if random.boolean(perMille: 500) {
            clients[number].wantedFetches = [:]
            let received = clients[number].lastReceivedTerminal
            sendHello(number, link)
            clients[number].lastReceivedTerminal = received
        } else {
            breakConnection(link)
        }
    }

    private mutating func sendMalformed(_ link: UInt64) {
        switch random.number(below: 6) {
        case 0: sendFromClient(.acknowledge(random.next() >> 40), link)
        case 1:
            planArrival(
                atBrokerOver: link, .messageFromClient(link: link, .message(NumberedMessage(.hello(Hello(window: 2))))))
        case 2: sendFromClient(.removeRequest(catalogue.handlers[0], catalogue.requests[0]), link)
        case 3:
            guard let number = links[link]?.peerNumber, let last = clients[number].messageNumbers.lastNumber else {
                return
            }
            let message = ClientMessage.removeRequest(catalogue.handlers[0], catalogue.requests[0])
            sendFromClient(NumberedMessage(message, number: max(1, link.isMultiple(of: 2) ? last : last / 2)), link)
        default:
            planArrival(atBrokerOver: link, .messageFromClient(link: link, .bytes(malformedHead())))
        }
    }

    /// Returns bytes that are similar to a message or random.
    mutating func malformedHead() -> [UInt8] {
        var bytes = Array("FETCH r0/h0 q1 http://o1.test/1\npriority: high\nDONE 00000000000000f2.1.1 200\n".utf8)
        bytes.removeFirst(random.number(below: bytes.count))
        bytes.removeLast(random.number(below: bytes.count))
        for _ in 0..<random.number(below: 4) where !bytes.isEmpty {
            bytes[random.number(below: bytes.count)] = UInt8(truncatingIfNeeded: random.next())
        }
        // The model has no expectations for URLs outside the catalogue.
        if case .fetch = try? ClientMessage(head: bytes) { return [0] }
        return bytes
    }

    // MARK: Received messages

    mutating func clientReceives(_ answer: NumberedAnswer, _ link: UInt64) throws(Violation) {
        guard let known = links[link], !known.isBroken else { return }
        let (number, message) = (known.peerNumber, answer.message)
        try checkWire(answer)
        let requestedMessage = answer.answeredNumber.flatMap { clients[number].messageNumbers.unansweredMessage($0) }
        if let to = answer.answeredNumber, !clients[number].messageNumbers.recordAnswer(to) {
            throw Violation(1, "client \(number) gets a second answer to its message \(to): \(message)")
        }
        switch message {
        case .terminal(let terminal):
            // Not a duplicate from before a disconnection.
            let isNew = terminal.sequence > clients[number].lastReceivedTerminal
            clients[number].lastReceivedTerminal = max(clients[number].lastReceivedTerminal, terminal.sequence)
            if isNew {
                try requestFile(of: terminal, number, link)
                requestEnded(terminal.handler, terminal.request, number)
            }
            guard !clients[number].hasPlannedAcknowledgement else { return }
            clients[number].hasPlannedAcknowledgement = true
            let isSlow = clients[number].isSlow && setting.isEnabled(.slowReaders) && !isEnding
            planEvent(
                isSlow ? random.nanoseconds(around: 600_000_000) : random.nanoseconds(around: 500_000),
                .clientAcknowledges(client: number, link: link))
        case .error(let error):
            if case .fetch(let fetch)? = requestedMessage { requestEnded(fetch.handler, fetch.request, number) }
            // The broker has not yet noticed the end of the old connection.
            if error.code == "session-in-use" { breakConnection(link) }
        case .welcome(let welcome): welcomeReceived(welcome, number, link)
        case .fileTaken(let sequence, let path):
            // Unless the client dies before it moves the file.
            if let path, !sequence.isMultiple(of: 4) { takenFiles[Self.fileName(ofPath: path)] = number }
        case .fetchAccepted, .progress, .handlersRemoved, .requestRemoved, .queryAnswer, .settingChanged, .bodyData,
            .ok, .goodbye:
            break
        }
    }

    /// Asks for the file of a terminal, in most cases. No other client may own it.
    private mutating func requestFile(of terminal: Terminal, _ number: Int, _ link: UInt64) throws(Violation) {
        guard let file = terminal.response?.bodyFilePath.map(Self.fileName) else { return }
        if let owner = takenFiles[file], owner != number {
            throw Violation(15, "client \(number) is told of \(file), which client \(owner) has taken")
        }
        guard !terminal.sequence.isMultiple(of: 3) else { return }
        sendFromClient(.takeFile(terminal.sequence), link)
        // A repetition, and one of a terminal that may not be there.
        if terminal.sequence.isMultiple(of: 7) { sendFromClient(.takeFile(terminal.sequence), link) }
        if terminal.sequence.isMultiple(of: 11) { sendFromClient(.takeFile(terminal.sequence / 2), link) }
    }

    private static func fileName(ofPath path: String) -> String {
        path.split(separator: "/").last.map(String.init) ?? ""
    }

    private mutating func requestEnded(_ handler: HandlerID, _ request: RequestID, _ number: Int) {
        guard let handler = catalogue.handlerIndices[handler], let request = catalogue.requestNumbers[request] else {
            return
        }
        clients[number].wantedFetches[SimulatedClient.WantedRequest(handler: handler, request: request)] = nil
    }

    mutating func clientAcknowledges(_ number: Int, _ link: UInt64) {
        guard clients[number].link == link, !clients[number].awaitsWelcome else { return }
        clients[number].hasPlannedAcknowledgement = false
        sendFromClient(.acknowledge(clients[number].lastReceivedTerminal), link)
    }

    /// Encodes and decodes some of the broker's messages.
    private mutating func checkWire(_ message: NumberedAnswer) throws(Violation) {
        guard random.boolean(perMille: 30) else { return }
        let read = try? NumberedAnswer(head: message.encoded())
        guard read == message else { throw Violation(13, "\(message) is read as \(String(describing: read))") }
    }

    // MARK: Links

    /// Breaks a client's connection. For a resumable session the broker may still read messages in transit; its replies
    /// are lost.
    private mutating func loseConnection(_ link: UInt64, _ number: Int) {
        if clients[number].token != nil, let last = links[link]?.lastArrivalAtBroker {
            let arrival = max(last, now + setting.meanTransitNanoseconds)
            links[link]?.deliversPendingMessages = true
            links[link]?.lastArrivalAtBroker = arrival
            // Its answer is lost, and kept for the next connection.
            let last = clients[number].messageNumbers.numberMessage(.unsubscribe(.handler(catalogue.handlers[0])))
            planEvent(arrival - now, .messageFromClient(link: link, .message(last)))
        }
        breakConnection(link)
    }

    /// Breaks a client's connection: it reconnects later, and the broker is notified later.
    private mutating func breakConnection(_ link: UInt64) {
        guard let number = links[link]?.peerNumber else { return }
        links[link]?.isBroken = true
        planEvent(random.nanoseconds(around: 300_000_000), .clientGone(link: link))
        clients[number].link = nil
        planEvent(random.nanoseconds(around: 200_000_000), .clientConnects(number))
    }

    /// Handles the closing of a connection by the broker.
    mutating func connectionClosed(_ link: UInt64) {
        guard let known = links[link], !known.isBroken else { return }
        breakConnection(link)
    }
}
