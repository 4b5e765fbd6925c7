import EarshotWire
import Testing

@testable import EarshotClient

/// Resumption of a session with a lease: messages that the broker received are not repeated.
@Suite struct ClientSessionTests {
    private var hello: Hello {
        var hello = Hello()
        hello.leaseMilliseconds = 5_000
        return hello
    }

    private func leased() -> ClientCore {
        var core = ClientCore(hello: hello, clock: stoppedClock)
        _ = core.linkOpened()
        _ = core.received(welcome(1, lastReceived: nil))
        return core
    }

    private func resume(_ core: inout ClientCore, lastReceived: UInt64) -> [ClientAction] {
        _ = core.linkLost()
        _ = core.linkOpened()
        return core.received(welcome(1, lastReceived: lastReceived))
    }

    @Test func `the next HELLO says the token, and a session that is gone is forgotten`() {
        var core = leased()
        _ = core.fetch(fetch("1"))
        _ = core.linkLost()
        var next = hello
        next.token = token
        next.firstUnansweredNumber = 1
        #expect(core.linkOpened() == [.send(.hello(next))])
        // Another broker does not know the session.
        #expect(sent(core.received(welcome(2))) == [.fetch(fetch("1"))])
        _ = core.linkLost()
        #expect(core.linkOpened() == [.send(.hello(hello))])
    }

    @Test func `what was not heard is said again in its order, and nothing else`() {
        var core = leased()
        _ = core.fetch(fetch("1"))
        _ = core.subscribe(pattern("others/"))
        _ = core.fetch(fetch("2"))
        _ = core.unsubscribe(pattern("others/"))
        _ = core.remove(.handler(HandlerID("gone")!))
        _ = core.setPriority(key("1"), .high)
        _ = core.fetch(fetch("3"))
        let unreceived: [ClientMessage] = [
            .unsubscribe(pattern("others/")), .removeHandlers(.handler(HandlerID("gone")!)),
            .setPriority(handler, key("1").request, .high), .fetch(fetch("3")),
        ]
        #expect(sent(resume(&core, lastReceived: 3)) == unreceived)
        // They have new consecutive numbers.
        #expect(sent(resume(&core, lastReceived: 5)) == Array(unreceived.dropFirst(2)))
        #expect(sent(resume(&core, lastReceived: 7)) == [])
    }

    @Test func `what is asked for while nobody is there comes last`() {
        var core = leased()
        _ = core.fetch(fetch("1"))
        _ = core.linkLost()
        _ = core.fetch(fetch("2"))
        _ = core.subscribe(pattern("others/"))
        _ = core.cancel(key("1"))
        _ = core.linkOpened()
        let resent = sent(core.received(welcome(1, lastReceived: 0)))
        #expect(
            resent == [.subscribe(pattern("others/")), .removeRequest(handler, key("1").request), .fetch(fetch("2"))])
    }

    @Test func `a terminal that comes again is known, and acknowledged again`() throws {
        var core = leased()
        for name in ["1", "2", "3"] { _ = core.fetch(fetch(name)) }
        _ = core.received(.terminal(result("1", sequence: 1)))
        #expect(core.passEnded() == [.send(.acknowledge(1))])
        let held = try #require(delivery(core.received(.terminal(result("2", sequence: 2, file: "/spool/2")))))
        #expect(sent(resume(&core, lastReceived: 3)) == [.acknowledge(1)])
        #expect(core.received(.terminal(result("1", sequence: 1))) == [])
        #expect(core.received(.terminal(result("2", sequence: 2, file: "/spool/2"))) == [])
        #expect(deliveries(core.received(.terminal(result("3", sequence: 3)))).count == 1)
        #expect(core.passEnded() == [])
        // Delivered over the previous connection.
        core.finishDelivery(held.id)
        #expect(core.passEnded() == [.send(.acknowledge(3))])
    }

    @Test func `an ID whose terminal is in use is asked for again once that is acknowledged`() throws {
        var core = leased()
        _ = core.fetch(fetch("1"))
        let held = try #require(delivery(core.received(.terminal(result("1", sequence: 1, file: "/spool/1")))))
        #expect(core.fetch(fetch("1")) == [])
        #expect(sent(resume(&core, lastReceived: 1)) == [])
        core.finishDelivery(held.id)
        #expect(core.passEnded() == [.send(.acknowledge(1)), .send(.fetch(fetch("1")))])
    }

    @Test func `what may not be done twice goes on, and is said again only if it was not heard`() {
        var core = leased()
        var post = fetch("1")
        post.options.method = "POST"
        post.options.coalesces = false
        var late = post
        late.request = key("2").request
        var submission = post
        submission.request = key("3").request
        submission.options.subscribes = false
        for fetch in [post, late, submission] { _ = core.fetch(fetch) }
        #expect(sent(resume(&core, lastReceived: 1)) == [.fetch(late), .fetch(submission)])
        #expect(sent(resume(&core, lastReceived: 3)) == [])
        #expect(core.received(.ok) == [])
        _ = core.linkLost()
        _ = core.linkOpened()
        let lost = core.received(welcome(2, lastReceived: nil)).compactMap { action in
            if case .report(.messageRefused(let reply)) = action { "\(reply.key!.request) \(reply.code)" } else { nil }
        }
        #expect(lost == ["1 connection-lost", "2 connection-lost"], "the submission was heard, and is the handler's")
    }

    @Test func `answers that were lost are awaited, and queries asked again`() throws {
        var core = leased()
        _ = core.fetch(fetch("1"))
        _ = core.fetch(fetch("2"))
        _ = core.query(.ping)
        _ = core.received(.queryAnswer(.ping))
        _ = core.received(.progress(progress("1")))
        _ = core.cancel(key("2"))
        _ = core.remove(.handler(HandlerID("gone")!))
        _ = core.query(.status)
        var submission = fetch("3")
        submission.options.subscribes = false
        submission.options.isDurable = true
        _ = core.fetch(submission)
        _ = core.query(.ledger)
        _ = core.linkLost()
        guard case .send(.hello(let hello))? = core.linkOpened().first else {
            Issue.record("no HELLO")
            return
        }
        #expect(hello.firstUnansweredNumber == 4)
        // Only the last query did not arrive.
        #expect(sent(core.received(welcome(1, lastReceived: 7))) == [.query(.status), .query(.ledger)])
        #expect(core.received(requestRemoved("2")) == [.report(.cancelled(key("2"), wasOpen: true))])
        let removed = BrokerMessage.handlersRemoved(.handler(HandlerID("gone")!), count: 3)
        #expect(core.received(removed) == [.report(.removed(.handler(HandlerID("gone")!), count: 3))])
        #expect(core.received(.queryAnswer(.status)) == [.report(.queryAnswered(.status))])
        #expect(core.received(.fetchAccepted(handler, key("3").request)) == [.report(.accepted(key("3")))])
        #expect(core.received(.queryAnswer(.ledger)) == [.report(.queryAnswered(.ledger))])
        // A refusal ends the request.
        let refusal = ErrorReply(code: "too-many-handlers")
        #expect(
            core.refused(.fetch(fetch("1")), refusal) == [
                .report(.messageRefused(RefusedMessage(.fetch(key("1")), refusal)))
            ])
        _ = core.linkLost()
        guard case .send(.hello(let next))? = core.linkOpened().first else {
            Issue.record("no HELLO")
            return
        }
        #expect(next.firstUnansweredNumber == 10)
        #expect(sent(core.received(welcome(1, lastReceived: 9))) == [])
        // A new session counts from zero.
        _ = core.linkLost()
        _ = core.linkOpened()
        _ = core.received(welcome(2, lastReceived: nil))
    }

    @Test func `a submission that is refused without a number is told, and nothing is acknowledged`() throws {
        var core = leased()
        var submission = fetch("1")
        submission.options.subscribes = false
        submission.options.isDurable = true
        _ = core.fetch(submission)
        let refusal = Terminal(
            handler: handler, request: key("1").request, sequence: 0,
            outcome: .failed(Terminal.Failure(code: "not-stored")))
        #expect(delivery(core.received(.terminal(refusal)))?.terminal == refusal)
        #expect(core.passEnded() == [])
        #expect(sent(resume(&core, lastReceived: 0)) == [])
    }

    private func replacing(_ request: String) -> Fetch {
        var fetch = fetch(request)
        fetch.options.replacesHandler = true
        return fetch
    }

    @Test func `the terminal of a replaced request is not taken for that of the next with its ID`() {
        var core = leased()
        _ = core.fetch(fetch("1"))
        // Its terminal may be in flight.
        #expect(
            sent(core.fetch(replacing("1"))) == [.removeRequest(handler, key("1").request), .fetch(replacing("1"))])
        #expect(core.received(.terminal(result("1", sequence: 1))) == [])
        let refusal = BrokerMessage.error(ErrorReply(code: "id-in-use"))
        #expect(core.messageReceived(NumberedAnswer(refusal, answeredNumber: 1)) == [], "also of the old one")
        #expect(core.received(.progress(progress("1"))) == [])
        #expect(core.received(requestRemoved("1")) == [])
        #expect(deliveries(core.received(.terminal(result("1", sequence: 2)))) == [result("1", sequence: 2)])
        #expect(core.passEnded() == [.send(.acknowledge(2))])
        // An ended request needs no removal.
        #expect(sent(core.fetch(replacing("1"))) == [.fetch(replacing("1"))])
    }

    @Test func `nor is that of one which another ID replaced, until something later was heard`() {
        for isReceived in [false, true] {
            var core = leased()
            _ = core.fetch(fetch("1"))
            #expect(sent(core.fetch(replacing("2"))) == [.fetch(replacing("2"))])
            if isReceived { _ = core.received(.terminal(result("2", sequence: 1))) }
            let cancel: [ClientMessage] = isReceived ? [] : [.removeRequest(handler, key("1").request)]
            #expect(sent(core.fetch(fetch("1"))) == cancel + [.fetch(fetch("1"))])
        }
    }

    @Test func `a replaced request's terminal may come again over the next connection`() {
        var core = leased()
        _ = core.fetch(fetch("1"))
        _ = core.fetch(replacing("2"))
        #expect(sent(resume(&core, lastReceived: 2)) == [])
        #expect(sent(core.fetch(fetch("1"))) == [.removeRequest(handler, key("1").request), .fetch(fetch("1"))])
        // A new session starts without it.
        _ = core.linkLost()
        _ = core.linkOpened()
        #expect(sent(core.received(welcome(2, lastReceived: nil))) == [.fetch(fetch("2")), .fetch(fetch("1"))])
    }

    @Test func `a request that replaces others does so although its first saying was lost, and once`() {
        var core = leased()
        var replacing = fetch("1")
        replacing.options.replacesHandler = true
        _ = core.fetch(replacing)
        #expect(sent(resume(&core, lastReceived: 0)) == [.fetch(replacing)])
        #expect(sent(resume(&core, lastReceived: 1)) == [])
        _ = core.linkLost()
        _ = core.linkOpened()
        #expect(sent(core.received(welcome(2, lastReceived: nil))) == [.fetch(fetch("1"))])
    }

    @Test func `a request whose REMOVE replaced others does not replace later ones after a resumption`() throws {
        var core = leased()
        _ = core.fetch(fetch("1"))
        let held = try #require(delivery(core.received(.terminal(result("1", sequence: 1, file: "/spool/1")))))
        var replacing = fetch("1")
        replacing.options.replacesHandler = true
        #expect(sent(core.fetch(replacing)) == [.removeHandlers(.handler(handler))])
        _ = core.received(.goodbye(reason: "draining"))
        core.finishDelivery(held.id)
        #expect(sent(core.passEnded()) == [.acknowledge(1)])
        #expect(sent(resume(&core, lastReceived: 3)) == [.acknowledge(1), .fetch(fetch("1"))])
    }

    @Test func `a session whose connection still stands is asked for again, and given up at last`() {
        var core = leased()
        let refusal = ErrorReply(code: "session-in-use")
        for _ in 1..<ClientCore.maximumResumptionRefusals {
            _ = core.linkLost()
            _ = core.linkOpened()
            #expect(core.received(.error(refusal)) == [.reconnect])
        }
        _ = core.linkLost()
        var next = hello
        next.token = token
        next.firstUnansweredNumber = 1
        #expect(core.linkOpened() == [.send(.hello(next))])
        #expect(core.received(.error(refusal)) == [.reconnect])
        _ = core.linkLost()
        #expect(core.linkOpened() == [.send(.hello(hello))])
    }

    @Test func `of more that may be lost than is remembered the session is not gone on with`() {
        var core = leased()
        for number in 0...NoticeLog.maximumEntries { _ = core.subscribe(pattern("h/\(number)")) }
        _ = core.linkLost()
        #expect(core.linkOpened() == [.send(.hello(hello))])
        core = leased()
        for number in 0...NoticeLog.maximumEntries {
            _ = core.subscribe(pattern("h/\(number)"))
            #expect(core.received(.ok) == [])
        }
        #expect(core.noticeLog.isEmpty)
        #expect(core.sessionToken != nil)
    }

    @Test func `more than 256 messages without an answer wait for answers, and an acknowledgement does not`() {
        var core = leased()
        _ = sent(core.fetch(fetch("0"))).map { core.numbered($0) }
        let count = SentNumbers.maximumUnanswered + 300
        var messages: [ClientMessage] = []
        for number in 1...count { messages += sent(core.subscribe(pattern("h/\(number)"))) }
        messages += sent(core.fetch(fetch("1")))
        #expect(messages == (1...SentNumbers.maximumUnanswered).map { .subscribe(pattern("h/\($0)")) })
        _ = core.received(.terminal(result("0", sequence: 1)))
        #expect(core.passEnded() == [.send(.acknowledge(1))])
        for _ in 1...count { messages += sent(core.received(.ok)) }
        #expect(messages == (1...count).map { .subscribe(pattern("h/\($0)")) } + [.fetch(fetch("1"))])
        // The numbers are those of the order on the wire.
        let numbered = messages.map { core.numbered($0).number }
        #expect(numbered.last == core.sentNumbers.lastAssignedNumber)
        #expect(sent(core.fetch(fetch("2"))) == [.fetch(fetch("2"))])
        #expect(
            sent(resume(&core, lastReceived: core.sentNumbers.lastAssignedNumber - 1)) == [
                .acknowledge(1), .fetch(fetch("2")),
            ])
    }

    @Test func `a submission that was held back and then sent is not repeated in a new session`() {
        var core = leased()
        for number in 0...NoticeLog.maximumEntries { _ = core.subscribe(pattern("h/\(number)")) }
        var post = fetch("1")
        post.options.method = "POST"
        post.options.coalesces = false
        post.options.subscribes = false
        #expect(core.fetch(post) == [])
        var messages: [ClientMessage] = []
        while !core.noticeLog.isEmpty { messages += sent(core.received(.ok)) }
        #expect(messages.contains(.fetch(post)))
        _ = core.linkLost()
        _ = core.linkOpened()
        let actions = core.received(welcome(2, lastReceived: nil))
        #expect(!sent(actions).contains(.fetch(post)))
        let isLoss = { (action: ClientAction) in
            if case .report(.messageRefused(let reply)) = action { reply.code == "connection-lost" } else { false }
        }
        #expect(actions.contains(where: isLoss))
    }

    @Test func `cookies are stored again in the jars of another broker, before the requests`() {
        var core = ready()
        let cookies = ClientMessage.storeCookies(
            handler, url: "https://a.example/", fields: Array("set-cookie: a=1".utf8))
        _ = core.subscribe(.handler(handler))
        let given = core.storeCookies(Array("set-cookie: a=1".utf8), from: "https://a.example/", for: handler)
        #expect(given == [.send(cookies)])
        _ = core.fetch(fetch("1"))
        func resent(_ broker: UInt64) -> [ClientMessage] {
            _ = core.linkLost()
            _ = core.linkOpened()
            return sent(core.received(welcome(broker)))
        }
        #expect(
            resent(1).first == .subscribe(.handler(handler)) && !resent(1).contains(cookies), "its jar has later values"
        )
        #expect(resent(2).prefix(2) == [.subscribe(.handler(handler)), cookies])
        #expect(!resent(2).contains(cookies))
        _ = core.remove(.handler(handler))
        #expect(!resent(3).contains(cookies))
    }

    @Test func `cookies that were stored without a connection reach the next broker once`() {
        var core = leased()
        _ = core.linkLost()
        #expect(core.storeCookies([], from: "https://a.example/", for: handler) == [])
        _ = core.linkOpened()
        let cookies = ClientMessage.storeCookies(handler, url: "https://a.example/", fields: [])
        #expect(sent(core.received(welcome(1, lastReceived: 0))) == [cookies])
        #expect(sent(resume(&core, lastReceived: 1)) == [])
    }

    @Test(arguments: [true, false]) func `more than 256 submissions wait for the OK of earlier ones`(isLeased: Bool) {
        var core = isLeased ? leased() : ready()
        var messages: [ClientMessage] = []
        var submission = fetch("1")
        submission.options.subscribes = false
        for number in 1...SentNumbers.maximumUnanswered + 2 {
            submission.request = key("\(number)").request
            messages += sent(core.fetch(submission))
        }
        #expect(messages.count == SentNumbers.maximumUnanswered)
        #expect(sent(core.received(.ok)).count == 1)
        #expect(sent(core.received(.ok)) == [.fetch(submission)])
        for _ in 1...SentNumbers.maximumUnanswered { #expect(core.received(.ok) == []) }
        #expect(core.unansweredMessages.isEmpty)
    }

    @Test func `a session that is resumed after it was given up is left for a new one`() {
        var core = leased()
        _ = core.linkLost()
        _ = core.linkOpened()
        for number in 0...NoticeLog.maximumEntries { _ = core.subscribe(pattern("h/\(number)")) }
        #expect(core.received(welcome(1, lastReceived: 0)) == [.reconnect])
        _ = core.linkLost()
        #expect(core.linkOpened() == [.send(.hello(hello))])
        #expect(sent(core.received(welcome(1, lastReceived: nil))).first == .subscribe(pattern("h/0")))
    }

    @Test func `who leaves says so when the broker would wait for it`() {
        var core = leased()
        #expect(core.endClient() == [.send(.bye)])
        #expect(core.endClient() == [])
        core = ready()
        #expect(core.endClient() == [])
    }
}
