import EarshotWire
import Testing

@testable import EarshotCore

/// Replies of a session with a lease: those that its client did not receive are repeated on the next connection.
struct ReplyTests {
    private var rig = CoreRig()

    private static let handler = HandlerID("h")!

    private mutating func connect(
        _ number: UInt64, window: Int = 256, lease: Int = 1_000, resuming session: ClientID? = nil,
        unanswered: UInt64? = nil
    ) -> ClientID {
        let id = ClientID(rawValue: number)
        var hello = Hello(window: window)
        hello.leaseMilliseconds = lease
        hello.token = session.map { CoreRig.token(of: $0) }
        hello.firstUnansweredNumber = unanswered
        rig.pass { rig in
            rig.connect(id)
            rig.send(.hello(hello), by: id)
        }
        return id
    }

    private mutating func lose(_ client: ClientID) {
        rig.pass { $0.core.clientLost(client, now: $0.now) }
    }

    /// All messages to a client in the last pass, by verb; terminals by number.
    private func sent(to client: ClientID) -> [String] {
        rig.actions.compactMap { action in
            switch action {
            case .client(.deliverTerminal(client, let terminal, _)): "\(terminal.sequence)"
            case .client(.send(client, let message)), .client(.replyToNumberedMessage(client, let message, _, _)):
                String(decoding: message.encoded().prefix { $0 != UInt8(ascii: "\n") }, as: UTF8.self)
            default: nil
            }
        }
    }

    /// Delivers `count` terminals of a handler to a client.
    private mutating func answer(_ count: Int, under handler: String = "h", by client: ClientID) {
        let worker = rig.worker(900, slots: 64)
        rig.pass { rig in
            for number in 1...count { rig.fetch(handler, "\(number)", "http://\(handler)\(number)/", by: client) }
        }
        let jobs = rig.jobs
        rig.pass { rig in for job in jobs { rig.done(job, by: worker) } }
    }

    @Test
    mutating func `replies wait behind terminals for which a smaller window has no room, and later ones behind them`() {
        let a = connect(1, window: 4)
        answer(3, by: a)
        rig.pass { $0.send(.takeFile(9), by: a) }
        lose(a)
        let b = connect(2, window: 1, resuming: a, unanswered: 4)
        #expect(sent(to: b) == ["WELCOME EAR/1", "1"])
        rig.pass { $0.send(.removeHandlers(.handler(Self.handler)), by: b) }
        #expect(sent(to: b) == [])
        // No terminal of the handler follows REMOVED: those that were not repeated are withdrawn.
        rig.pass { $0.send(.acknowledge(1), by: b) }
        #expect(sent(to: b) == ["ERROR unknown-body", "REMOVED h 0"])
        #expect(rig.core.ledger.deliveries.outstanding == 0)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a client that lets too many replies wait behind terminals is closed`() {
        var limits = CoreLimits()
        limits.maximumRepliesPerLeasedSession = 2
        rig = CoreRig(limits: limits)
        let a = connect(1, window: 4)
        answer(2, by: a)
        rig.pass { $0.send(.takeFile(9), by: a) }
        lose(a)
        let b = connect(2, window: 1, resuming: a, unanswered: 3)
        rig.pass { $0.send(.query(.ping), by: b) }
        #expect(sent(to: b).isEmpty && rig.actions.isEmpty)
        rig.pass { $0.send(.query(.ping), by: b) }
        #expect(rig.actions == [.client(.close(b, reason: "too-slow"))])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `300 removals behind terminals for which a smaller window has no room are too slow`() {
        let a = connect(1, window: 4)
        answer(2, by: a)
        rig.pass { $0.send(.takeFile(9), by: a) }
        lose(a)
        let b = connect(2, window: 1, resuming: a, unanswered: 3)
        for number in 1...300 {
            rig.pass { $0.send(.removeHandlers(.handler(HandlerID("x\(number)")!)), by: b) }
            guard rig.actions.isEmpty else {
                #expect(number == 256 && rig.actions == [.client(.close(b, reason: "too-slow"))])
                return
            }
        }
        Issue.record("the client is not closed")
    }

    @Test mutating func `nothing is kept for a client without a lease`() {
        let a = connect(1, lease: 0)
        for _ in 0..<5 { rig.pass { $0.send(.query(.ping), by: a) } }
        #expect(
            rig.core.records.clients.handles.allSatisfy { rig.core.records.clients[$0].replies.keptReplyCount == 0 })
    }

    @Test mutating func `BYE ends the numbers`() {
        let a = connect(1)
        rig.pass { $0.send(.query(.ping), number: 9, by: a) }
        var hello = Hello()
        hello.leaseMilliseconds = 1_000
        rig.pass { rig in
            rig.send(.bye, by: a)
            rig.send(.hello(hello), by: a)
            rig.send(.query(.ping), number: 1, by: a)
        }
        #expect(rig.answers(to: a) == ["1 ANSWER ping"])
        lose(a)
        let b = connect(2, resuming: a, unanswered: 2)
        #expect(sent(to: b) == ["WELCOME EAR/1"])
    }
}
