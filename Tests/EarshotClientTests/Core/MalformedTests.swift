import EarshotLoop
import EarshotWire
import Testing

@testable import EarshotClient

/// Messages of the broker that violate the grammar.
@Suite struct MalformedTests {
    private let error = WireError(.badMessage, "malformed")
    private var log: ClientAction { .report(.messageRefused(RefusedMessage(.other, ErrorReply(error)))) }

    private func receive(_ core: inout ClientCore, _ head: String) -> [ClientAction] {
        core.malformedMessageReceived(BrokerFragment(head: Array(head.utf8)), error)
    }

    private var query: ClientAction { .report(.messageRefused(RefusedMessage(.query, ErrorReply(error)))) }

    private func ended(_ request: String) -> ClientAction {
        .report(.messageRefused(RefusedMessage(.fetch(key(request)), code: "internal", detail: error.detail)))
    }

    @Test func `a malformed answer ends the question that it names`() throws {
        var core = ready()
        let setting = try #require(SettingWords(["slots", "3"]))
        _ = core.cancel(key("1"))
        _ = core.cancel(key("2"))
        _ = core.remove(.handler(handler))
        _ = core.query(.status)
        _ = core.query(.ledger)
        _ = core.changeSetting(setting)
        var submission = fetch("3")
        (submission.options.subscribes, submission.options.isDurable) = (false, true)
        _ = core.fetch(submission)
        #expect(receive(&core, "REMOVED x\nto: 1\n") == [.report(.cancelled(key("1"), wasOpen: false)), log])
        #expect(core.received(requestRemoved("2")) == [.report(.cancelled(key("2"), wasOpen: true))])
        #expect(receive(&core, "REMOVED x\nto: 3\n") == [.report(.removed(.handler(handler), count: 0)), log])
        #expect(receive(&core, "ANSWER\nto: 4\n") == [query])
        #expect(receive(&core, "CHANGED\nto: 6\n") == [log])
        #expect(receive(&core, "ACCEPTED\nto: 7\n") == [ended("3")])
        #expect(receive(&core, "ERROR a b\n") == [log])
        #expect(core.received(.queryAnswer(.ledger)) == [.report(.queryAnswered(.ledger))])
        #expect(core.unansweredMessages.isEmpty)
        for verb in ["REMOVED", "ANSWER", "CHANGED", "ACCEPTED"] { #expect(receive(&core, "\(verb)\nto: 1") == [log]) }
    }

    @Test func `a malformed terminal counts as received and ends its request`() {
        var core = ready()
        for name in ["1", "2", "3"] { _ = core.fetch(fetch(name)) }
        #expect(receive(&core, "RESULT gallery/1 1 x\nseq: 1\n") == [ended("1")])
        #expect(core.passEnded() == [.send(.acknowledge(1))])
        #expect(receive(&core, "RESULT gallery/1 2 x\nseq: 1\n") == [], "a repetition")
        #expect(receive(&core, "FAILED / 2\nseq: 2\n") == [log])
        #expect(core.passEnded() == [.send(.acknowledge(2))])
        #expect(receive(&core, "FAILED gallery/1 2 timeout\nseq: x\n") == [ended("2")])
        _ = core.cancel(key("3"))
        #expect(receive(&core, "FAILED gallery/1 3 a b\nseq: 3\n") == [log], "its REMOVED follows")
        #expect(receive(&core, "FAILED gallery/1 3 a b\n") == [log])
        #expect(core.requests.isEmpty)
    }

    @Test func `nothing counts before WELCOME`() {
        var core = ClientCore(hello: hello, clock: stoppedClock)
        _ = core.linkOpened()
        #expect(receive(&core, "ANSWER\n") == [log])
    }

    @Test func `a connection takes malformed answers, and ignores verbs of later versions`() throws {
        let loop = try EventLoop()
        let endpoint = Endpoint()
        var events: [String] = []
        let connection = try ClientConnection(endpoint: endpoint.name, lease: .seconds(7), loop: loop) { event in
            switch event {
            case .messageRefused(let reply): events.append("\(reply.subject) \(reply.code)")
            case .removed(let pattern, let count): events.append("\(pattern) \(count)")
            case .queryAnswer: events.append("answer")
            default: break
            }
        }
        let broker = try ScriptedBroker(endpoint.name, loop) { broker, message in
            switch message {
            case .hello: try broker.send(welcome(1, lastReceived: nil))
            case .removeHandlers: try broker.send(head: "REMOVED\nto: \(broker.number)\n")
            case .query(let query, _):
                try broker.send(head: "NOVELTY a b\n")
                try broker.send(.queryAnswer(query), body: Array("{}".utf8))
            default: break
            }
        }
        connection.remove(.handler(handler))
        connection.query(.ping)
        #expect(try loop.run(for: .seconds(60)) { events.count == 3 })
        #expect(events == ["gallery/1 0", "other bad-message", "answer"])
        broker.die()
    }
}
