import EarshotLoop
import EarshotWire
import Synchronization
import Testing

@testable import EarshotClient

/// The core of a client without a connection: messages and events in their order.
@Suite struct ClientCoreTests {
    @Test func `nothing is said before WELCOME, and then all of it, in order`() {
        var core = ClientCore(hello: hello, clock: stoppedClock)
        #expect(core.subscribe(pattern("others/")) == [])
        #expect(core.fetch(fetch("1")) == [])
        #expect(core.query(.status) == [])
        #expect(core.fetch(fetch("2")) == [])
        #expect(core.linkOpened() == [.send(.hello(hello))])
        #expect(core.fetch(fetch("3")) == [])
        #expect(
            core.received(welcome(1)) == [
                .report(.stateChanged(.connected(BrokerInstance(rawValue: 1)))),
                .send(.subscribe(pattern("others/"))),
                .send(.fetch(fetch("1"))), .send(.fetch(fetch("2"))), .send(.fetch(fetch("3"))),
                .send(.query(.status)),
            ])
        #expect(core.fetch(fetch("4")) == [.send(.fetch(fetch("4")))])
    }

    @Test func `a request that waited for a broker states its age, at most a day`() {
        let time = Mutex(LoopTime(nanoseconds: 5_000_000_000))
        func wait(milliseconds: Int) { time.withLock { $0 = $0.advanced(milliseconds: milliseconds) } }
        func ages(_ actions: [ClientAction]) -> [Int] {
            sent(actions).compactMap { if case .fetch(let fetch) = $0 { fetch.options.ageMilliseconds } else { nil } }
        }
        var core = ClientCore(hello: hello, clock: { time.withLock { $0 } })
        _ = core.fetch(fetch("1"))
        wait(milliseconds: 250)
        _ = core.fetch(fetch("2"))
        _ = core.linkOpened()
        #expect(ages(core.received(welcome(1))) == [250, 0])
        wait(milliseconds: 1_000)
        #expect(ages(core.fetch(fetch("3"))) == [0])
        _ = core.linkLost()
        wait(milliseconds: 500)
        _ = core.linkOpened()
        #expect(ages(core.received(welcome(2))) == [1_750, 1_500, 500])
        _ = core.linkLost()
        wait(milliseconds: 100_000_000)
        _ = core.linkOpened()
        #expect(ages(core.received(welcome(3))) == [86_400_000, 86_400_000, 86_400_000])
    }

    @Test func `what may not be done twice is not asked of the next broker, and is told lost`() {
        var core = ready()
        var post = fetch("1")
        post.options.method = "POST"
        post.options.coalesces = false
        var submission = post
        submission.request = RequestID("2")!
        submission.options.subscribes = false
        var put = fetch("3")
        put.options.method = "PUT"
        for fetch in [post, submission, put] { #expect(core.fetch(fetch) == [.send(.fetch(fetch))]) }
        _ = core.linkLost()
        var late = post
        late.request = RequestID("4")!
        _ = core.fetch(late)
        _ = core.linkOpened()
        let actions = core.received(welcome(2))
        #expect(sent(actions) == [.fetch(put), .fetch(late)])
        let lost = actions.compactMap { action in
            if case .report(.messageRefused(let reply)) = action { "\(reply.key!.request) \(reply.code)" } else { nil }
        }
        #expect(lost == ["2 connection-lost", "1 connection-lost"])
        reconnect(&core)
        #expect(core.requests.keys.map(\.request.description).sorted() == ["3"])
    }

    @Test func `what a draining broker did not take is asked again`() {
        var core = ready()
        var post = fetch("1")
        post.options.method = "POST"
        _ = core.fetch(post)
        let failure = Terminal.Outcome.failed(Terminal.Failure(code: "stopping"))
        _ = core.received(.terminal(Terminal(handler: handler, request: post.request, sequence: 1, outcome: failure)))
        _ = core.linkLost()
        _ = core.linkOpened()
        #expect(sent(core.received(welcome(2))) == [.fetch(post)])
    }

    @Test func `a repetition is asked of the next broker until it is answered`() {
        let key = RequestKey(handler, RequestID("1")!)
        let message = ClientMessage.retry(handler, key.request)
        var core = ready()
        #expect(core.retry(key) == [.send(message)])
        _ = core.linkLost()
        _ = core.linkOpened()
        #expect(sent(core.received(welcome(2))) == [message])
        #expect(core.received(.fetchAccepted(handler, key.request)) == [.report(.accepted(key))])
        reconnect(&core)
        _ = core.retry(key)
        let reply = ErrorReply(code: "unknown-request")
        #expect(core.refused(message, reply) == [.report(.messageRefused(RefusedMessage(.retry(key), reply)))])
        _ = core.retry(key)
        let failure = Terminal.Outcome.failed(Terminal.Failure(code: "not-stored"))
        let refusal = Terminal(handler: handler, request: key.request, sequence: 0, outcome: failure)
        #expect(deliveries(core.received(.terminal(refusal))) == [refusal])
        reconnect(&core)
        _ = core.retry(key)
        #expect(core.cancel(key) == [.send(.removeRequest(handler, key.request))])
        #expect(core.received(.fetchAccepted(handler, key.request)) == [], "it precedes the answer to the removal")
    }

    @Test func `a terminal is delivered once and acknowledged at the end of the pass`() {
        var core = ready()
        _ = core.fetch(fetch("1"))
        let actions = core.received(.terminal(result("1", sequence: 1)))
        #expect(deliveries(actions) == [result("1", sequence: 1)])
        #expect(core.received(.terminal(result("1", sequence: 1))) == [])
        #expect(core.passEnded() == [.send(.acknowledge(1))])
        #expect(core.passEnded() == [])
    }

    @Test func `a pass's terminals are acknowledged in one, up to the first whose file is in use`() {
        var core = ready()
        var held: [DeliveredTerminal] = []
        for number in 1...6 {
            _ = core.fetch(fetch("\(number)"))
            let file = number == 3 || number == 5 ? "/spool/\(number)" : nil
            held += core.received(.terminal(result("\(number)", sequence: UInt64(number), file: file))).compactMap {
                if case .deliver(let delivery) = $0, delivery.isFile { delivery } else { nil }
            }
        }
        #expect(core.passEnded() == [.send(.acknowledge(2))])
        core.finishDelivery(held[1].id)
        #expect(core.passEnded() == [])
        core.finishDelivery(held[0].id)
        #expect(core.passEnded() == [.send(.acknowledge(6))])
    }

    @Test func `a new broker is asked for what has no terminal, and for nothing else`() {
        var core = ready()
        for name in ["1", "2", "3"] { _ = core.fetch(fetch(name)) }
        _ = core.received(.terminal(result("2", sequence: 1)))
        #expect(core.linkLost() == [.report(.stateChanged(.disconnected))])
        #expect(core.linkLost() == [])
        #expect(core.linkOpened() == [.send(.hello(hello))])
        #expect(sent(core.received(welcome(2))) == [.fetch(fetch("1")), .fetch(fetch("3"))])
        // Sequence numbers restart, and a delivery of the old session is not acknowledged in the new one.
        #expect(core.passEnded() == [])
        #expect(deliveries(core.received(.terminal(result("1", sequence: 1)))).count == 1)
        #expect(core.passEnded() == [.send(.acknowledge(1))])
    }

    @Test func `a delivery finished after its connection is gone means nothing`() throws {
        var core = ready()
        _ = core.fetch(fetch("1"))
        let late = try #require(delivery(core.received(.terminal(result("1", sequence: 1, file: "/spool/1")))))
        reconnect(&core)
        _ = core.fetch(fetch("2"))
        _ = core.received(.terminal(result("2", sequence: 1, file: "/spool/2")))
        core.finishDelivery(late.id)
        #expect(core.passEnded() == [])
    }

    @Test func `hello-required is answered once, and everything asked again after the WELCOME`() {
        var core = ready()
        _ = core.fetch(fetch("1"))
        _ = core.remove(.handler(handler))
        _ = core.query(.status)
        _ = core.fetch(fetch("1"))
        let commandError = BrokerMessage.error(ErrorReply(code: "hello-required"))
        #expect(core.messageReceived(NumberedAnswer(commandError, answeredNumber: 2)) == [.send(.hello(hello))])
        #expect(core.messageReceived(NumberedAnswer(commandError, answeredNumber: 3)) == [])
        #expect(core.fetch(fetch("2")) == [])
        let messages: [ClientMessage] = [
            .removeHandlers(.handler(handler)), .fetch(fetch("1")), .fetch(fetch("2")), .query(.status),
        ]
        #expect(sent(core.received(welcome(2))) == messages)
    }

    @Test func `only an ERROR without a number refuses a HELLO`() {
        var core = ready()
        _ = core.linkLost()
        _ = core.linkOpened()
        let refusal = ErrorReply(code: "limit")
        // Of a message that the connection carried to this broker before HELLO.
        #expect(core.messageReceived(NumberedAnswer(.error(refusal), answeredNumber: 1)) == [])
        #expect(core.received(.error(refusal)) == [.report(.messageRefused(RefusedMessage(.hello, refusal)))])
    }

    @Test func `what was cancelled is not delivered, what is asked anew after it is`() {
        var core = ready()
        _ = core.fetch(fetch("1"))
        #expect(core.cancel(key("1")) == [.send(.removeRequest(handler, key("1").request))])
        #expect(core.received(.terminal(result("1", sequence: 1))) == [])
        #expect(core.passEnded() == [.send(.acknowledge(1))])
        #expect(core.fetch(fetch("1")) == [.send(.fetch(fetch("1")))])
        #expect(core.received(requestRemoved("1")) == [.report(.cancelled(key("1"), wasOpen: true))])
        #expect(deliveries(core.received(.terminal(result("1", sequence: 2)))).count == 1)
    }

    @Test func `a removal outlives the connection and takes its requests along`() {
        var core = ready()
        _ = core.fetch(fetch("1"))
        #expect(core.remove(.handler(handler)) == [.send(.removeHandlers(.handler(handler)))])
        #expect(core.received(.progress(progress("1"))) == [])
        _ = core.linkLost()
        _ = core.linkOpened()
        #expect(sent(core.received(welcome(2))) == [.removeHandlers(.handler(handler))])
        let removed = BrokerMessage.handlersRemoved(.handler(handler), count: 0)
        #expect(core.received(removed) == [.report(.removed(.handler(handler), count: 0))])
        #expect(core.received(removed) == [])
    }

    @Test func `an ID is asked for again only once its last terminal is acknowledged`() throws {
        var core = ready()
        _ = core.fetch(fetch("1"))
        let first = try #require(delivery(core.received(.terminal(result("1", sequence: 1, file: "/spool/1")))))
        #expect(core.fetch(fetch("1")) == [])
        #expect(core.passEnded() == [])
        core.finishDelivery(first.id)
        #expect(core.passEnded() == [.send(.acknowledge(1)), .send(.fetch(fetch("1")))])
    }

    @Test func `a lost file is asked again, three times`() throws {
        var core = ready()
        _ = core.fetch(fetch("1"))
        for sequence in UInt64(1)...3 {
            let lost = try #require(delivery(core.received(.terminal(result("1", sequence: sequence, file: "/gone")))))
            #expect(core.resubmitRequest(of: lost) == [])
            #expect(core.passEnded() == [.send(.acknowledge(sequence)), .send(.fetch(fetch("1")))])
        }
        let last = try #require(delivery(core.received(.terminal(result("1", sequence: 4, file: "/gone")))))
        #expect(core.resubmitRequest(of: last) == nil)
        #expect(core.passEnded() == [.send(.acknowledge(4))])
    }

    @Test func `a broker that drains is asked for nothing new, and what it refuses is the next one's`() {
        var core = ready()
        _ = core.fetch(fetch("1"))
        #expect(core.received(.goodbye(reason: "draining")) == [.report(.stateChanged(.draining))])
        #expect(core.fetch(fetch("2")) == [])
        let refusal = Terminal(
            handler: handler, request: key("1").request, sequence: 1,
            outcome: .failed(Terminal.Failure(code: "stopping")))
        #expect(core.received(.terminal(refusal)) == [])
        #expect(core.passEnded() == [.send(.acknowledge(1))])
        _ = core.linkLost()
        _ = core.linkOpened()
        #expect(sent(core.received(welcome(2))) == [.fetch(fetch("1")), .fetch(fetch("2"))])
    }

    @Test(arguments: ["stopping", "too-slow"])
    func `any other farewell ends the connection`(reason: String) {
        var core = ready()
        #expect(core.received(.goodbye(reason: reason)) == [.reconnect])
    }

    @Test func `a refused request is over`() {
        var core = ready()
        _ = core.fetch(fetch("1"))
        let reply = ErrorReply(code: "id-in-use")
        #expect(
            core.refused(.fetch(fetch("1")), reply) == [
                .report(.messageRefused(RefusedMessage(.fetch(key("1")), reply)))
            ])
        reconnect(&core)
        #expect(core.passEnded() == [])
        _ = core.linkLost()
        _ = core.linkOpened()
        #expect(sent(core.received(welcome(3))) == [])
    }

    @Test(arguments: ["cancel", "remove"])
    func `a late ERROR of a removed request does not end the next one with its ID`(verb: String) {
        var core = ready()
        _ = core.fetch(fetch("1"))
        _ = verb == "cancel" ? core.cancel(key("1")) : core.remove(.handler(handler))
        _ = core.fetch(fetch("1"))
        let refusal = ErrorReply(code: "too-many-handlers")
        #expect(
            core.messageReceived(NumberedAnswer(.error(refusal), answeredNumber: 1)) == [],
            "it names the removed request")
        _ = core.received(
            verb == "cancel" ? requestRemoved("1") : .handlersRemoved(.handler(handler), count: 1))
        #expect(deliveries(core.received(.terminal(result("1", sequence: 1)))) == [result("1", sequence: 1)])
        _ = core.fetch(fetch("2"))
        #expect(
            core.refused(.fetch(fetch("2")), refusal) == [
                .report(.messageRefused(RefusedMessage(.fetch(key("2")), refusal)))
            ])
    }

    @Test(arguments: ["cancel", "remove"])
    func `a late ACCEPTED of a removed submission does not settle the next one with its ID`(verb: String) {
        var core = ready()
        var submission = fetch("1")
        submission.options.subscribes = false
        submission.options.isDurable = true
        _ = core.fetch(submission)
        _ = verb == "cancel" ? core.cancel(key("1")) : core.remove(.handler(handler))
        _ = core.fetch(submission)
        #expect(
            core.messageReceived(NumberedAnswer(.fetchAccepted(handler, key("1").request), answeredNumber: 1)) == [])
        _ = core.received(
            verb == "cancel" ? requestRemoved("1") : .handlersRemoved(.handler(handler), count: 1))
        _ = core.linkLost()
        _ = core.linkOpened()
        #expect(sent(core.received(welcome(2))) == [.fetch(submission)])
    }

    @Test func `a removed submission is not repeated after its removal`() {
        var core = ready()
        var submission = fetch("1")
        submission.options.subscribes = false
        submission.options.isDurable = true
        _ = core.fetch(submission)
        _ = core.remove(.handler(handler))
        _ = core.linkLost()
        _ = core.linkOpened()
        #expect(sent(core.received(welcome(2))) == [.removeHandlers(.handler(handler))])
    }

    @Test func `a question about a page is answered as one about the table is`() {
        var core = ready()
        let page = QueryPage(cursor: "a", limit: 3)
        #expect(core.query(.handlers, page) == [.send(.query(.handlers, page))])
        #expect(core.query(.handlers) == [.send(.query(.handlers))])
        // The query is unanswered and is sent to the next broker.
        reconnect(&core)
        #expect(core.received(.queryAnswer(.handlers)) == [.report(.queryAnswered(.handlers))])
        #expect(core.received(.queryAnswer(.handlers)) == [.report(.queryAnswered(.handlers))])
        #expect(core.received(.queryAnswer(.handlers)) == [])
    }

    @Test func `settings are answered in their order and said again to a new broker`() throws {
        let first = try #require(SettingWords(["cool-down", "030"]))
        let second = try #require(SettingWords(["slots", "0"]))
        let third = try #require(SettingWords(["slots", "3"]))
        let normal = try #require(SettingWords(["cool-down", "30"]))
        var core = ready()
        #expect(core.changeSetting(first) == [.send(.changeSetting(first))])
        _ = core.changeSetting(second)
        _ = core.changeSetting(third)
        #expect(core.received(.settingChanged(normal)) == [.report(.settingChanged(normal))])
        let refusal = ErrorReply(code: "bad-setting", detail: "slots is 1 to 10000")
        #expect(
            core.refused(.changeSetting(second), refusal) == [.report(.messageRefused(RefusedMessage(.other, refusal)))]
        )
        _ = core.linkLost()
        _ = core.linkOpened()
        #expect(sent(core.received(welcome(2))) == [.changeSetting(third)])
        #expect(core.received(.settingChanged(third)) == [.report(.settingChanged(third))])
        #expect(core.received(.settingChanged(third)) == [])
    }

    @Test func `a submission is sent again until OK answers it`() {
        var core = ready()
        var submission = fetch("1")
        submission.options.subscribes = false
        #expect(core.fetch(submission) == [.send(.fetch(submission))])
        _ = core.query(.ping)
        _ = core.linkLost()
        _ = core.linkOpened()
        #expect(sent(core.received(welcome(2))) == [.fetch(submission), .query(.ping)])
        #expect(core.received(.queryAnswer(.ping)) == [.report(.queryAnswered(.ping))])
        #expect(core.unansweredMessages.count == 1)
        #expect(core.received(.ok) == [])
        reconnect(&core)
        _ = core.linkLost()
        _ = core.linkOpened()
        #expect(sent(core.received(welcome(3))) == [])
    }

    @Test func `a durable submission is said again until it is accepted, or ends`() {
        var core = ready()
        var one = fetch("1")
        one.options.subscribes = false
        one.options.isDurable = true
        var two = one
        two.request = RequestID("2")!
        for fetch in [one, two] { #expect(core.fetch(fetch) == [.send(.fetch(fetch))]) }
        _ = core.query(.ping)
        _ = core.received(.queryAnswer(.ping))
        var refusal = result("2", sequence: 1)
        refusal.outcome = .failed(Terminal.Failure(code: "stopping"))
        #expect(deliveries(core.received(.terminal(refusal))).isEmpty, "the next broker is asked")
        _ = core.linkLost()
        _ = core.linkOpened()
        #expect(sent(core.received(welcome(2))) == [.fetch(one), .fetch(two)])
        #expect(core.received(.fetchAccepted(handler, one.request)) == [.report(.accepted(key("1")))])
        refusal.outcome = .failed(Terminal.Failure(code: "not-stored"))
        #expect(deliveries(core.received(.terminal(refusal))).count == 1)
        _ = core.linkLost()
        _ = core.linkOpened()
        #expect(sent(core.received(welcome(3))).isEmpty)
    }

    @Test func `a refused submission waits for the next broker, although a query was answered`() {
        var core = ready()
        var posted = fetch("1")
        posted.options.subscribes = false
        posted.options.method = "POST"
        _ = core.fetch(posted)
        _ = core.query(.ping)
        var refusal = result("1", sequence: 0)
        refusal.outcome = .failed(Terminal.Failure(code: "stopping"))
        #expect(core.received(.terminal(refusal)) == [.report(.stateChanged(.draining))])
        #expect(core.received(.queryAnswer(.ping)) == [.report(.queryAnswered(.ping))])
        #expect(core.areRequestsHeld)
        _ = core.linkLost()
        _ = core.linkOpened()
        #expect(sent(core.received(welcome(2))) == [.fetch(posted)])
        #expect(!core.areRequestsHeld)
        // This one takes it. It is not idempotent, so it is not repeated.
        _ = core.received(.ok)
        _ = core.linkLost()
        _ = core.linkOpened()
        #expect(sent(core.received(welcome(3))) == [])
    }

    @Test func `a watched terminal is delivered without a request of ours`() {
        var core = ready()
        _ = core.subscribe(.handler(handler))
        let delivery = delivery(core.received(.terminal(result("others", sequence: 1))))
        #expect(delivery != nil)
        #expect(delivery?.fetch == nil)
    }

    @Test func `a request that replaces its handler's replaces them once`() {
        var core = ready()
        _ = core.fetch(fetch("1"))
        var second = fetch("2")
        second.options.replacesHandler = true
        #expect(core.fetch(second) == [.send(.fetch(second))])
        _ = core.fetch(fetch("3"))
        _ = core.linkLost()
        _ = core.linkOpened()
        #expect(sent(core.received(welcome(2))) == [.fetch(fetch("2")), .fetch(fetch("3"))])
    }
}
