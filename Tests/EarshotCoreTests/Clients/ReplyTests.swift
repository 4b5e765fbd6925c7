import EarshotWire
import Testing

@testable import EarshotCore

/// Replies of a session with a lease: those that its client did not receive are repeated on the next connection.
struct ReplyTests {
    private var rig = CoreRig()

    private static let handler = HandlerID("h")!

    private mutating func connect(
        _ number: UInt64, window: Int = 256, lease: Int = 1_000, resuming session: ClientID? = nil,
        received: UInt64? = nil
    ) -> ClientID {
        let id = ClientID(rawValue: number)
        var hello = Hello(client: "c", window: window)
        hello.leaseMilliseconds = lease
        hello.token = session.map { CoreRig.token(of: $0) }
        hello.replies = received
        rig.pass { rig in
            rig.connect(id)
            rig.say(.hello(hello), by: id)
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
            case .client(.deliver(client, let terminal, _)): "\(terminal.sequence)"
            case .client(.answer(client, let query, _)): "ANSWER \(query.words.joined(separator: " "))"
            case .client(.send(client, let message)):
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

    /// Sends one message for each verb that has a reply, and a malformed one.
    private mutating func sayOfEach(_ client: ClientID) {
        rig.pass { rig in
            rig.fetch("h", "1", "http://other/", by: client)
            rig.say(.removeRequest(Self.handler, RequestID("none")!), by: client)
            rig.remove("gone/", by: client)
            rig.say(.query(.ping), by: client)
            rig.say(.set(SettingWords(["origin-limit", "3"])!), by: client)
            rig.core.clientSaidNonsense(WireError(.unknownVerb, "no such verb"), by: client, now: rig.now)
        }
    }

    private static let ofEach = [
        "ERROR id-in-use", "REMOVED h none 0", "REMOVED gone/ 0", "ANSWER ping", "CHANGED origin-limit 3",
        "ERROR unknown-verb",
    ]

    @Test mutating func `replies that were not received come again, each after the terminals that preceded it`() {
        let a = connect(1)
        answer(2, by: a)
        sayOfEach(a)
        #expect(sent(to: a) == Self.ofEach)
        answer(1, under: "g", by: a)
        rig.pass { $0.remove("g", by: a) }
        lose(a)
        let b = connect(2, resuming: a, received: 0)
        #expect(sent(to: b) == ["WELCOME EAR/1", "1", "2"] + Self.ofEach + ["3", "REMOVED g 0"])
        #expect(welcome(of: b)?.replies == 7)
        lose(b)
        let c = connect(3, resuming: a, received: 6)
        #expect(sent(to: c) == ["WELCOME EAR/1", "1", "2", "3", "REMOVED g 0"])
        lose(c)
        let d = connect(4, resuming: a, received: 7)
        #expect(sent(to: d) == ["WELCOME EAR/1", "1", "2", "3"])
        #expect(rig.core.audit() == [])
    }

    private func welcome(of client: ClientID) -> Welcome? {
        rig.replies(to: client).compactMap { if case .welcome(let welcome) = $0 { welcome } else { nil } }.first
    }

    @Test mutating func `a client that does not count its replies gets none again`() {
        let a = connect(1)
        answer(1, by: a)
        sayOfEach(a)
        lose(a)
        let b = connect(2, resuming: a)
        #expect(sent(to: b) == ["WELCOME EAR/1", "1"])
        #expect(welcome(of: b)?.heard != nil && welcome(of: b)?.replies == nil)
    }

    @Test
    mutating func `replies wait behind terminals for which a smaller window has no room, and later ones behind them`() {
        let a = connect(1, window: 4)
        answer(3, by: a)
        rig.pass { $0.say(.query(.ping), by: a) }
        lose(a)
        let b = connect(2, window: 1, resuming: a, received: 0)
        #expect(sent(to: b) == ["WELCOME EAR/1", "1"])
        rig.pass { $0.remove("h", by: b) }
        #expect(sent(to: b) == [])
        // No terminal of the handler follows REMOVED: those that were not repeated are withdrawn.
        rig.pass { $0.say(.acknowledge(1), by: b) }
        #expect(sent(to: b) == ["ANSWER ping", "REMOVED h 0"])
        #expect(rig.core.ledger.deliveries.outstanding == 0)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a session whose replies are no longer kept is not resumed, and its transfers go on`() {
        var limits = CoreLimits()
        limits.keptReplies = 3
        rig = CoreRig(limits: limits)
        _ = rig.worker()
        let a = connect(1)
        rig.pass { $0.fetch("h", "1", "http://h/", by: a) }
        #expect(rig.jobs.count == 1)
        for _ in 0..<5 { rig.pass { $0.say(.query(.ping), by: a) } }
        lose(a)
        for (number, received) in [(2, 1), (3, 6)] as [(UInt64, UInt64)] {
            let b = connect(number, resuming: a, received: received)
            #expect(welcome(of: b)?.heard == nil, "\(received) of 5")
            rig.pass { $0.fetch("h", "1", "http://h/", by: b) }
            #expect(rig.jobs.isEmpty && rig.cancellations.isEmpty)
        }
        let c = connect(4, resuming: a, received: 2)
        #expect(sent(to: c) == ["WELCOME EAR/1", "ANSWER ping", "ANSWER ping", "ANSWER ping"])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a client that lets too many replies wait behind terminals is closed`() {
        var limits = CoreLimits()
        limits.keptReplies = 2
        rig = CoreRig(limits: limits)
        let a = connect(1, window: 4)
        answer(2, by: a)
        rig.pass { $0.say(.query(.ping), by: a) }
        lose(a)
        let b = connect(2, window: 1, resuming: a, received: 0)
        rig.pass { $0.say(.query(.ping), by: b) }
        #expect(sent(to: b).isEmpty && rig.actions.isEmpty)
        rig.pass { $0.say(.query(.ping), by: b) }
        #expect(rig.actions == [.client(.close(b, reason: "too-slow"))])
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `nothing is kept for a client without a lease`() {
        let a = connect(1, lease: 0)
        for _ in 0..<5 { rig.pass { $0.say(.query(.ping), by: a) } }
        #expect(rig.core.clients.indices.allSatisfy { rig.core.clients[$0].replies.kept == 0 })
    }

    @Test mutating func `BYE ends the count`() {
        let a = connect(1)
        rig.pass { $0.say(.query(.ping), by: a) }
        var hello = Hello(client: "c")
        hello.leaseMilliseconds = 1_000
        rig.pass { rig in
            rig.say(.bye, by: a)
            rig.say(.hello(hello), by: a)
        }
        lose(a)
        let b = connect(2, resuming: a, received: 0)
        #expect(sent(to: b) == ["WELCOME EAR/1"])
        #expect(welcome(of: b)?.replies == 0)
    }
}
