internal import EarshotCore
internal import EarshotWire

/// Behaviour of client programs at planned events of the `World`.
extension World {
    mutating func makeClient() -> SimulatedClient {
        let window = [1_024, 4_096, 1, 3, 16, 256, 256, 64][random.below(8)]
        let handlers = (0..<max(2, setting.handlers * 2 / setting.clients)).map { _ in random.below(setting.handlers) }
        return SimulatedClient(
            window: window, isSlow: random.perMille(250),
            principal: setting.has(.principals) ? PrincipalName("key:\(clients.count % 3)") : nil, handlers: handlers,
            lease: setting.has(.leases) ? [0, 40, 400, 4_000][random.below(4)] : 0)
    }

    mutating func clientConnects(_ number: Int) throws(Violation) {
        guard !isOver, clients[number].link == nil else { return }
        lastLink += 1
        let link = lastLink
        links[link] = Link(peer: number)
        clients[number].link = link
        clients[number].willAcknowledge = false
        try handle(.clientConnected(ClientID(rawValue: link)))
        greet(number, link)
        plan(random.around(setting.pause), .clientActs(number))
    }

    /// Sends HELLO. Open requests follow at once, unless a resumed session may make them unnecessary.
    private mutating func greet(_ number: Int, _ link: UInt64) {
        var hello = Hello(window: clients[number].window)
        hello.leaseMilliseconds = clients[number].lease
        hello.token = clients[number].token
        hello.principal = clients[number].principal
        if hello.token != nil, random.perMille(50) {
            // Token of another session, or an unknown one.
            hello.token = Trial.token(of: ClientID(rawValue: UInt64(random.below(Int(lastLink) + 2))))
        }
        // Some clients name none, and some a number that there was not. Not drawn, so that other behaviour stays the same.
        if hello.token != nil, !link.isMultiple(of: 7) {
            hello.unanswered = clients[number].numbers.unanswered + (link.isMultiple(of: 11) ? 100 : 0)
        }
        clients[number].awaitsWelcome = hello.token != nil
        clients[number].numbers.helloSent(unanswered: hello.unanswered)
        send(.hello(hello), link)
        if hello.token == nil {
            clients[number].received = 0
            sessionBegan(number, link)
        }
    }

    /// Repeats all open requests.
    private mutating func sessionBegan(_ number: Int, _ link: UInt64) {
        clients[number].numbers.begin()
        for want in clients[number].wantedFetches.keys.sorted() { sendRequest(want, number, link) }
    }

    private mutating func sendRequest(_ want: SimulatedClient.Want, _ number: Int, _ link: UInt64) {
        guard let fetch = clients[number].wantedFetches[want] else { return }
        send(.fetch(fetch), link)
    }

    private mutating func welcomed(_ welcome: Welcome, _ number: Int, _ link: UInt64) {
        clients[number].token = welcome.token
        clients[number].numbers.welcomed()
        guard clients[number].awaitsWelcome else { return }
        clients[number].awaitsWelcome = false
        guard let lastReceived = welcome.lastReceived else {
            clients[number].received = 0
            sessionBegan(number, link)
            return
        }
        let (repeated, queries) = clients[number].numbers.resumed(after: lastReceived)
        for message in repeated { send(message, link) }
        for query in queries { send(query, link) }
        send(.acknowledge(clients[number].received), link)
    }

    /// Sends a message; some as bytes, to be parsed by the decoder.
    private mutating func send(_ message: ClientMessage, _ link: UInt64) {
        guard let number = links[link]?.peer else { return }
        send(clients[number].numbers.sent(message), link)
    }

    private mutating func send(_ message: NumberedMessage, _ link: UInt64) {
        let sentMessage: PlannedEvent.PeerMessage = random.perMille(60) ? .bytes(message.encoded()) : .message(message)
        send(up: link, .fromClient(link: link, sentMessage))
    }

    mutating func arrived(_ sentMessage: PlannedEvent.PeerMessage<NumberedMessage>, _ link: UInt64) throws(Violation) {
        guard let known = links[link], !known.isCut || known.isReadPaused else { return }
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
        plan(random.around(setting.pause), .clientActs(number))
        guard !clients[number].awaitsWelcome else { return }
        switch random.below(1_000) {
        case ..<4 where setting.has(.lostConnections): lose(link, number)
        case ..<8 where setting.has(.removals): clientLeaves(number, link)
        case ..<20 where setting.has(.malformedClientMessages): sendMalformed(link)
        case ..<40 where setting.has(.watchers): watch(link)
        case ..<80 where setting.has(.removals): remove(number, link)
        case ..<150 where setting.has(.removals): cancel(number, link)
        case ..<165: send(.query([.ping, .ledger, .status, .workers, .origins, .requests][random.below(6)]), link)
        case ..<180: sendRequest(number, link) { handler, request, _ in .query(.why(handler, request)) }
        case ..<210:
            let priority = PriorityClass.allCases[random.below(4)]
            sendRequest(number, link) { handler, request, _ in .priority(handler, request, priority) }
        case ..<230: sendRequest(number, link) { _, _, fetch in .fetch(fetch) }
        default: for _ in 0...random.below(4) { fetch(number, link) }
        }
    }

    private mutating func fetch(_ number: Int, _ link: UInt64) {
        let handlers = clients[number].handlers
        let want = SimulatedClient.Want(
            handler: handlers[random.below(handlers.count)], request: random.below(setting.requestIDs))
        let key = min(random.below(setting.keys), random.below(setting.keys))
        var fetch = plainFetch(want, key)
        choose(&fetch.options, key)
        if random.perMille(50) { fetch.httpFields = Array("cookie: a".utf8) }
        if random.perMille(40) { makeUnshared(&fetch) }
        if setting.has(.malformedClientMessages), random.perMille(20) {
            corrupt(&fetch)
        } else if fetch.httpFields.isEmpty, catalogue.hasCacheMode(key) {
            fetch.options.cache = catalogue.cacheMode(of: key)
        }
        if fetch.httpFields.isEmpty, catalogue.hasTag(key) { addCondition(to: &fetch, key, want.request) }
        // A client library requests each resource once; few programs reuse an ID at once.
        if clients[number].wantedFetches[want] != nil, !random.perMille(100) { return }
        submit(fetch, for: want, number, link)
    }

    private func plainFetch(_ want: SimulatedClient.Want, _ key: Int) -> Fetch {
        var fetch = Fetch(
            handler: catalogue.handlers[want.handler], request: catalogue.requests[want.request],
            url: catalogue.urls[key])
        fetch.options.redirect = catalogue.redirect(of: key)
        fetch.options.route.deliversErrors = catalogue.deliversErrors(of: key)
        return fetch
    }

    /// Makes two of three requests conditional: on the present version, and on one that the origin no longer has.
    private func addCondition(to fetch: inout Fetch, _ key: Int, _ request: Int) {
        guard request % 3 > 0, fetch.options.method == "GET", fetch.options.maxBytes == nil,
            fetch.options.digest == nil, fetch.url == catalogue.urls[key]
        else { return }
        fetch.httpFields = Array("if-none-match: \(request % 3 == 1 ? tag(of: key) : "\"\(key).0\"")".utf8)
    }

    /// Makes requests that workers will serve when the broker dies.
    mutating func clientSubmitsBeforeDeath(_ number: Int) {
        for _ in 0..<deathRandom.below(3) {
            submitUnused(number, key: deathRandom.below(setting.keys))
        }
    }

    /// Makes a request under an unused name.
    private mutating func submitUnused(_ number: Int, key: Int) {
        guard !isEnding, let link = clients[number].link, !clients[number].awaitsWelcome else { return }
        let handlers = clients[number].handlers
        let want = SimulatedClient.Want(
            handler: handlers[deathRandom.below(handlers.count)], request: deathRandom.below(setting.requestIDs))
        guard clients[number].wantedFetches[want] == nil else { return }
        var fetch = plainFetch(want, key)
        fetch.options.cache = catalogue.cacheMode(of: key)
        submit(fetch, for: want, number, link)
    }

    /// Sends a new request, and stores it for repetition after a disconnection.
    private mutating func submit(_ fetch: Fetch, for want: SimulatedClient.Want, _ number: Int, _ link: UInt64) {
        var fetch = fetch
        if let principal = clients[number].principal, fetch.options.coalesces,
            !fetch.httpFields.starts(with: "host:".utf8)
        {
            // A JOB identifies its flight, and principals share none.
            fetch.httpFields = Array("x-user: \(principal)".utf8)
            fetch.options.cache = .default
        }
        send(.fetch(fetch), link)
        guard fetch.options.subscribes else { return }
        clients[number].wantedFetches[want] = fetch
    }

    /// Makes a request unshared, distinguished by a header field.
    private mutating func makeUnshared(_ fetch: inout Fetch) {
        fetch.options.coalesces = false
        fetch.options.method = ["GET", "POST", "PUT", "PATCH", "DELETE"][random.below(5)]
        lastAlone += 1
        fetch.httpFields = Array("x-alone: \(lastAlone)".utf8)
    }

    private mutating func choose(_ options: inout Fetch.Options, _ key: Int) {
        options.priority = [.background, .low, .normal, .normal, .high][random.below(5)]
        options.retries = random.below(4)
        if random.perMille(30) { options.method = "HEAD" }
        if random.perMille(30) { options.isWarm = true }
        if random.perMille(50) { options.progressMilliseconds = 50 }
        if random.perMille(80) { options.streams = true }
        if random.perMille(80) { options.delivery = random.perMille(500) ? .inline : .file }
        // The default that the core applies.
        if options.delivery == .inline { options.maxBytes = 65_536 }
        if setting.has(.handlerOwned), random.perMille(60) { options.subscribes = false }
        if setting.has(.deadlines), random.perMille(60) {
            let milliseconds = 1 + random.below(400)
            // No multiple of a lease's unit: a lease that ended in the same instant might end the request as well.
            options.deadlineMilliseconds = milliseconds.isMultiple(of: 40) ? milliseconds - 1 : milliseconds
        }
        if setting.has(.removals), random.perMille(10) { options.replacesHandler = true }
        // Not drawn, so that the worlds of seeds stay the same. Which of two times ends a request is not predictable.
        if options.deadlineMilliseconds == nil, options.retries < 2, [4, 5].contains(key % 10) {
            options.waitMilliseconds = key % 2 == 0 ? 0 : key * 37 % 2_000
        }
        guard setting.has(.sizeLimits) else { return }
        if random.perMille(60) { options.maxBytes = random.below(500) }
        if random.perMille(30) { options.digest = catalogue.digests[random.perMille(500) ? key : 0] }
    }

    private mutating func corrupt(_ fetch: inout Fetch) {
        switch random.below(4) {
        case 0: fetch.url = "nonsense"
        case 1: fetch.url = "ftp://o1.test/1"
        case 2: fetch.options.method = "POST"
        default: fetch.httpFields = Array("host: other".utf8)
        }
        fetch.options.redirect = .follow
        fetch.options.route.deliversErrors = false
    }

    /// Sends a message about one of its requests.
    private mutating func sendRequest(
        _ number: Int, _ link: UInt64, _ message: (HandlerID, RequestID, Fetch) -> ClientMessage
    ) {
        guard let want = someWant(of: number), let fetch = clients[number].wantedFetches[want] else { return }
        send(message(fetch.handler, fetch.request, fetch), link)
    }

    private mutating func someWant(of number: Int) -> SimulatedClient.Want? {
        let wants = clients[number].wantedFetches.keys
        guard let first = wants.min() else { return nil }
        let start = SimulatedClient.Want(handler: random.below(setting.handlers), request: 0)
        return wants.filter { $0 >= start }.min() ?? first
    }

    private mutating func cancel(_ number: Int, _ link: UInt64) {
        guard let want = someWant(of: number), let fetch = clients[number].wantedFetches.removeValue(forKey: want)
        else {
            return
        }
        send(.removeRequest(fetch.handler, fetch.request), link)
    }

    private mutating func remove(_ number: Int, _ link: UInt64) {
        let handlers = clients[number].handlers
        let pattern =
            random.perMille(800)
            ? HandlerPattern.handler(catalogue.handlers[handlers[random.below(handlers.count)]])
            : catalogue.handlerPatterns[random.below(catalogue.handlerPatterns.count)]
        clients[number].wantedFetches = clients[number].wantedFetches.filter {
            !pattern.matches(catalogue.handlers[$0.key.handler])
        }
        send(.remove(pattern), link)
    }

    private mutating func watch(_ link: UInt64) {
        let patterns = catalogue.handlerPatterns
        let fromEnd = random.perMille(300)
        let pattern = patterns[
            fromEnd ? patterns.count - 1 - random.below(setting.handlers / 4 + 1) : random.below(patterns.count)]
        send(random.perMille(550) ? .subscribe(pattern) : .unsubscribe(pattern), link)
    }

    private mutating func clientLeaves(_ number: Int, _ link: UInt64) {
        send(.bye, link)
        clients[number].token = nil
        if random.perMille(500) {
            clients[number].wantedFetches = [:]
            let received = clients[number].received
            greet(number, link)
            clients[number].received = received
        } else {
            breakConnection(link)
        }
    }

    private mutating func sendMalformed(_ link: UInt64) {
        switch random.below(6) {
        case 0: send(.acknowledge(random.next() >> 40), link)
        case 1:
            send(up: link, .fromClient(link: link, .message(NumberedMessage(.hello(Hello(window: 2))))))
        case 2: send(.removeRequest(catalogue.handlers[0], catalogue.requests[0]), link)
        case 3:
            guard let number = links[link]?.peer, let last = clients[number].numbers.lastNumber else { return }
            let message = ClientMessage.removeRequest(catalogue.handlers[0], catalogue.requests[0])
            send(NumberedMessage(message, number: max(1, link.isMultiple(of: 2) ? last : last / 2)), link)
        default:
            send(up: link, .fromClient(link: link, .bytes(malformedHead())))
        }
    }

    /// Returns bytes that are similar to a message or random.
    mutating func malformedHead() -> [UInt8] {
        var bytes = Array("FETCH r0/h0 q1 http://o1.test/1\npriority: high\nDONE 00000000000000f2.1.1 200\n".utf8)
        bytes.removeFirst(random.below(bytes.count))
        bytes.removeLast(random.below(bytes.count))
        for _ in 0..<random.below(4) where !bytes.isEmpty {
            bytes[random.below(bytes.count)] = UInt8(truncatingIfNeeded: random.next())
        }
        // The model has no expectations for URLs outside the catalogue.
        if case .fetch = try? ClientMessage(head: bytes) { return [0] }
        return bytes
    }

    // MARK: Received messages

    mutating func clientReceives(_ answer: NumberedAnswer, _ link: UInt64) throws(Violation) {
        guard let known = links[link], !known.isCut else { return }
        let (number, message) = (known.peer, answer.message)
        try checkWire(answer)
        let requestedMessage = answer.to.flatMap { clients[number].numbers.message($0) }
        if let to = answer.to, !clients[number].numbers.answered(to) {
            throw Violation(1, "client \(number) gets a second answer to its message \(to): \(message)")
        }
        switch message {
        case .terminal(let terminal):
            // Not a duplicate from before a disconnection.
            let isNew = terminal.sequence > clients[number].received
            clients[number].received = max(clients[number].received, terminal.sequence)
            if isNew {
                try takeFile(of: terminal, number, link)
                requestEnded(terminal.handler, terminal.request, number)
            }
            guard !clients[number].willAcknowledge else { return }
            clients[number].willAcknowledge = true
            let isSlow = clients[number].isSlow && setting.has(.slowReaders) && !isEnding
            plan(
                isSlow ? random.around(600_000_000) : random.around(500_000),
                .clientAcknowledges(client: number, link: link))
        case .error(let error):
            if case .fetch(let fetch)? = requestedMessage { requestEnded(fetch.handler, fetch.request, number) }
            // The broker has not yet noticed the end of the old connection.
            if error.code == "session-in-use" { breakConnection(link) }
        case .welcome(let welcome): welcomed(welcome, number, link)
        case .taken(let sequence, let path):
            // Unless the client dies before it moves the file.
            if let path, !sequence.isMultiple(of: 4) { takenFiles[Self.name(path)] = number }
        case .accepted, .progress, .removed, .requestRemoved, .answer, .changed, .data, .ok, .goodbye: break
        }
    }

    /// Asks for the file of a terminal, in most cases. No other client may own it.
    private mutating func takeFile(of terminal: Terminal, _ number: Int, _ link: UInt64) throws(Violation) {
        guard let file = terminal.response?.file.map(Self.name) else { return }
        if let owner = takenFiles[file], owner != number {
            throw Violation(15, "client \(number) is told of \(file), which client \(owner) has taken")
        }
        guard !terminal.sequence.isMultiple(of: 3) else { return }
        send(.take(terminal.sequence), link)
        // A repetition, and one of a terminal that may not be there.
        if terminal.sequence.isMultiple(of: 7) { send(.take(terminal.sequence), link) }
        if terminal.sequence.isMultiple(of: 11) { send(.take(terminal.sequence / 2), link) }
    }

    private static func name(_ path: String) -> String { path.split(separator: "/").last.map(String.init) ?? "" }

    private mutating func requestEnded(_ handler: HandlerID, _ request: RequestID, _ number: Int) {
        guard let handler = catalogue.handlerIndices[handler], let request = catalogue.requestNumbers[request] else {
            return
        }
        clients[number].wantedFetches[SimulatedClient.Want(handler: handler, request: request)] = nil
    }

    mutating func clientAcknowledges(_ number: Int, _ link: UInt64) {
        guard clients[number].link == link, !clients[number].awaitsWelcome else { return }
        clients[number].willAcknowledge = false
        send(.acknowledge(clients[number].received), link)
    }

    /// Encodes and decodes some of the broker's messages.
    private mutating func checkWire(_ message: NumberedAnswer) throws(Violation) {
        guard random.perMille(30) else { return }
        let read = try? NumberedAnswer(head: message.encoded())
        guard read == message else { throw Violation(13, "\(message) is read as \(String(describing: read))") }
    }

    // MARK: Links

    /// Breaks a client's connection. For a resumable session the broker may still read messages in transit; its replies
    /// are lost.
    private mutating func lose(_ link: UInt64, _ number: Int) {
        if clients[number].token != nil, let last = links[link]?.lastUp {
            let arrival = max(last, now + setting.delay)
            links[link]?.isReadPaused = true
            links[link]?.lastUp = arrival
            // Its answer is lost, and kept for the next connection.
            let last = clients[number].numbers.sent(.unsubscribe(.handler(catalogue.handlers[0])))
            plan(arrival - now, .fromClient(link: link, .message(last)))
        }
        breakConnection(link)
    }

    /// Breaks a client's connection: it reconnects later, and the broker is notified later.
    private mutating func breakConnection(_ link: UInt64) {
        guard let number = links[link]?.peer else { return }
        links[link]?.isCut = true
        plan(random.around(300_000_000), .clientGone(link: link))
        clients[number].link = nil
        plan(random.around(200_000_000), .clientConnects(number))
    }

    /// Handles the closing of a connection by the broker.
    mutating func closed(_ link: UInt64) {
        guard let known = links[link], !known.isCut else { return }
        breakConnection(link)
    }
}
