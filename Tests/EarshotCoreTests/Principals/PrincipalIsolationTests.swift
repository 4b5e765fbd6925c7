import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// Isolation of principals: a client tries every verb and subject on the handlers of another user.
///
/// It gets exactly the answer of this table, which is the answer of a bus on which the other user does not exist. The
/// other user gets nothing, and finds everything as it was.
struct PrincipalIsolationTests {
    /// Messages of the client, with the exact answers. An empty answer is none.
    private static let attempts: [(message: String, answer: String)] = [
        ("QUERY ping", "ANSWER ping {\"broker\":\"0000000000000001\"}"),
        ("SUBSCRIBE h/x", ""),
        ("SUBSCRIBE h/", ""),
        ("SUBSCRIBE h/d", ""),
        ("UNSUBSCRIBE h/x", ""),
        ("UNSUBSCRIBE h/d", ""),
        ("UNSUBSCRIBE h/", ""),
        ("REMOVE h/x 1", "REMOVED h/x 1 0"),
        ("REMOVE h/x 2", "REMOVED h/x 2 0"),
        ("REMOVE h/x 3", "REMOVED h/x 3 0"),
        ("REMOVE h/d 4", "REMOVED h/d 4 0"),
        ("REMOVE h/x", "REMOVED h/x 0"),
        ("REMOVE h/d", "REMOVED h/d 0"),
        ("REMOVE h/", "REMOVED h/ 0"),
        ("PRIORITY h/x 2 high", "ERROR unknown-request detail: there is no such request"),
        ("RETRY h/d 4", "ERROR unknown-request detail: there is no such durable request"),
        ("ACK 1", "ERROR bad-message detail: ACK names a terminal that was not sent"),
        (
            "READ 1 0 100",
            "DATA 1 0 error: unknown-body detail: no such terminal with a pulled body waits for an ACK"
        ),
        ("READ h/x 1 0 100", "DATA h/x 1 0 error: unknown-body detail: no such open request has stream: yes"),
        (
            "COOKIES h/x http://two/\n\nset-cookie: s=2",
            "ERROR bad-message detail: subscribe to the handler first"
        ),
        ("QUERY cookies h/x", "ANSWER cookies h/x {\"broker\":\"0000000000000001\",\"cookies\":[]}"),
        ("QUERY why h/x 1", unknown("h/x", "1")),
        ("QUERY why h/x 2", unknown("h/x", "2")),
        ("QUERY why h/x 3", unknown("h/x", "3")),
        ("QUERY why h/d 4", unknown("h/d", "4")),
        ("QUERY handlers", none("handlers")),
        ("QUERY handlers\nafter: h/w", none("handlers")),
        ("QUERY handlers\nafter: /2/a", none("handlers")),
        ("QUERY handlers\nhandler: h/x", none("handlers")),
        ("QUERY handlers\nhandler: h/", none("handlers")),
        ("QUERY requests", none("requests")),
        ("QUERY requests\nafter: 0", none("requests")),
        ("QUERY requests\nafter: h/x//1", none("requests")),
        ("QUERY requests\nhandler: h/x", none("requests")),
        ("QUERY requests\nhandler: h/", none("requests")),
        ("QUERY requests\nstate: running", none("requests")),
        ("QUERY ledger", "ANSWER ledger {\"broker\":\"0000000000000001\",\(zero)}"),
        (
            "QUERY status",
            "ANSWER status {\"broker\":\"0000000000000001\",\(zero),\"phase\":\"serving\",\"admission\":\"open\","
                + "\"ready\":true,\"clients\":1,\"clients-away\":0,\"handlers\":0}"
        ),
        ("QUERY origins", reserved("origins, workers, settings and cluster")),
        ("QUERY workers", reserved("origins, workers, settings and cluster")),
        ("QUERY settings", reserved("origins, workers, settings and cluster")),
        ("QUERY cluster", reserved("origins, workers, settings and cluster")),
        ("SET slots 1", reserved("settings")),
        ("SET admission closed", reserved("settings")),
        ("SET cache-size 0", reserved("settings")),
        ("FETCH h/x 1 http://one/\nclient-certificate: /etc/key.pem", reserved("files of certificates")),
        ("HELLO EAR/1\nprincipal: uid:34", "ERROR bad-message detail: HELLO was already sent on this connection"),
        // The client's own request under the name of another's: accepted, since the name is free.
        ("FETCH h/x 1 http://own/\nsubscribe: no\nreplace: yes", ""),
        ("REMOVE h/x 1", "REMOVED h/x 1 1"),
    ]

    private static let zero =
        "\"requests\":{\"submitted\":0,\"answered\":0,\"failed\":{},\"removed\":0,\"orphaned\":0,\"pending\":0}"

    private static func unknown(_ handler: String, _ request: String) -> String {
        "ANSWER why \(handler) \(request) {\"broker\":\"0000000000000001\",\"handler\":\"\(handler)\",\"request\":"
            + "\"\(request)\",\"state\":\"unknown\",\"reason\":\"unknown request; its result may be acknowledged already\"}"
    }

    private static func none(_ table: String) -> String {
        "ANSWER \(table) {\"broker\":\"0000000000000001\",\"\(table)\":[]}"
    }

    private static func reserved(_ subject: String) -> String {
        "ERROR not-authorized detail: \(subject) are reserved for the administrator"
    }

    /// The members of an entry before its subscribers.
    private static func start(of entry: Substring) -> String {
        String(entry[..<(entry.firstRange(of: "\"subscribers\"")?.lowerBound ?? entry.endIndex)])
    }

    private static let intruder = ClientID(rawValue: 2)
    private static let victim = ClientID(rawValue: 3)
    private static let administrator = ClientID(rawValue: 4)
    private var bed = DurableBed()
    private let worker: WorkerID

    init() {
        worker = bed.rig.worker()
        bed.rig.core.shellFeatures.gatewayProof = GatewayProof(String(repeating: "0123456789abcdef", count: 4))
        connect(Self.administrator, nil)
        connect(Self.intruder, "uid:33")
    }

    private mutating func connect(_ id: ClientID, _ user: String?) {
        bed.pass { rig in
            rig.connect(id, user: user.flatMap { PrincipalName($0) })
            var hello = Hello()
            hello.leaseMilliseconds = 60_000
            rig.send(.hello(hello), by: id)
        }
    }

    /// Sends a message and returns all messages to a client, those before the end of the pass included.
    private mutating func send(_ text: String, by client: ClientID, receivedBy subscriber: ClientID? = nil) -> String {
        guard let message = try? ClientMessage(head: Array((text + "\n").utf8)) else {
            Issue.record("\(text) is not a message")
            return ""
        }
        bed.pass { $0.send(message, by: client) }
        return received(by: subscriber ?? client)
    }

    private func received(by client: ClientID) -> String {
        let texts = bed.sent.compactMap { action -> String? in
            switch action {
            case .client(.send(client, let message)): String(decoding: message.encoded(), as: UTF8.self)
            case .client(.deliverTerminal(client, let terminal, _)):
                String(decoding: BrokerMessage.terminal(terminal).encoded(), as: UTF8.self)
            case .client(.answerQuery(client, let query, let json)):
                "ANSWER \(query.operands.joined(separator: " ")) \(String(decoding: json, as: UTF8.self))"
            case .client(.replyToNumberedMessage(client, let message, let json, _)) where message != .ok:
                String(decoding: message.encoded() + (json ?? []), as: UTF8.self)
            default: nil
            }
        }
        return texts.joined().split(separator: "\n").joined(separator: " ")
    }

    /// Gives the other user one request in each state that a stranger could ask for, and a cookie.
    private mutating func makeVictim() {
        connect(Self.victim, "uid:34")
        bed.pass { rig in
            rig.fetch("h/x", "3", "http://three/", by: Self.victim)
            rig.fetch("h/d", "4", "http://four/", by: Self.victim) {
                $0.options.isDurable = true
                $0.options.subscribes = false
                $0.options.retries = 0
            }
        }
        let jobs = bed.rig.jobs
        #expect(jobs.count == 2)
        bed.pass { [worker] rig in
            for job in jobs {
                if job.url == "http://three/" { rig.done(job, by: worker) } else { rig.failed(job, "tls", by: worker) }
            }
        }
        bed.pass { rig in
            rig.fetch("h/x", "1", "http://one/", by: Self.victim) { $0.options.streams = true }
            rig.fetch("h/x", "2", "http://two/", by: Self.victim) { $0.options.usesCookies = true }
        }
        _ = send("COOKIES h/x http://two/\n\nset-cookie: s=1", by: Self.victim)
    }

    /// Answers of the other user to the questions about everything it has.
    private mutating func view(of client: ClientID) -> [String] {
        ["handlers", "requests", "ledger", "status", "cookies h/x", "why h/x 1", "why h/x 2", "why h/x 3", "why h/d 4"]
            .map { send("QUERY \($0)", by: client) }
    }

    @Test mutating func `every verb and subject gets the answer of a bus without the other user`() {
        for (message, answer) in Self.attempts {
            #expect(send(message, by: Self.intruder) == answer, "\(message)")
        }
        #expect(Self.attempts.count >= 40)
    }

    @Test mutating func `every verb and subject gets the same answer beside the other user, which notices nothing`() {
        makeVictim()
        let before = view(of: Self.victim)
        let counts = ["\"submitted\":4", "\"answered\":1", "\"pending\":3"]
        for count in counts { #expect(before[2].contains(count)) }
        #expect(before[4].contains("\"value\":\"1\""))
        for (message, answer) in Self.attempts {
            #expect(send(message, by: Self.intruder) == answer, "\(message)")
            #expect(received(by: Self.victim) == "", "\(message)")
        }
        #expect(view(of: Self.victim) == before)
    }

    @Test mutating func `equal requests of two users are two fetches with two answers`() throws {
        connect(Self.victim, "uid:34")
        bed.pass { rig in
            rig.fetch("h/x", "1", "http://one/", by: Self.victim)
            rig.fetch("h/x", "1", "http://one/", by: Self.intruder)
            rig.fetch("h/x", "1", "http://one/", by: Self.administrator)
        }
        let jobs = bed.rig.jobs
        #expect(jobs.map(\.url) == ["http://one/", "http://one/", "http://one/"])
        for job in jobs {
            bed.pass { [worker] in $0.done(job, by: worker) }
            let receivers = [Self.victim, Self.intruder, Self.administrator].filter {
                !bed.rig.terminals(for: $0).isEmpty
            }
            #expect(receivers.count == 1)
        }
    }

    @Test mutating func `a removal below a name ends the requests of its principal alone`() {
        connect(Self.victim, "uid:34")
        bed.pass { rig in
            for client in [Self.victim, Self.intruder, Self.administrator] {
                rig.fetch("h/x", "1", "http://one/", by: client)
                rig.fetch("h/y", "1", "http://one/", by: client)
            }
        }
        #expect(send("REMOVE h/", by: Self.intruder) == "REMOVED h/ 2")
        #expect(bed.rig.core.ledger.requests.pending == 4)
        #expect(send("REMOVE h/", by: Self.administrator) == "REMOVED h/ 2")
        #expect(bed.rig.core.ledger.requests.pending == 2)
        #expect(send("QUERY why h/x 1", by: Self.victim).contains("\"state\":\"running\""))
    }

    @Test mutating func `a removal in slices withdraws nothing of an equal name of another principal`() {
        connect(Self.victim, "uid:34")
        bed.rig.core.limits.maximumRequestRemovalsPerPass = 2
        bed.pass { rig in
            for client in [Self.victim, Self.intruder] {
                for number in 0..<8 { rig.fetch("h", "\(number)", "http://one/\(number)", by: client) }
            }
        }
        bed.pass { rig in
            rig.remove("h", by: Self.intruder)
            #expect(rig.core.hasPendingRemoval(by: Self.intruder))
            rig.remove("h", "7", by: Self.victim)
        }
        for _ in 0..<8 { bed.pass() }
        #expect(!bed.rig.core.hasPendingRemovals)
        #expect(bed.rig.core.ledger.requests.pending == 7)
        #expect(send("QUERY ledger", by: Self.victim).contains("\"pending\":7"))
    }

    @Test mutating func `the administrator sees the handlers of all, with their principals, and acts for one by name`()
    {
        makeVictim()
        bed.pass { $0.fetch("h/x", "1", "http://one/", by: Self.administrator) }
        let handlers = send("QUERY handlers", by: Self.administrator)
        let names = handlers.split(separator: "{\"handler\":").dropFirst().map { Self.start(of: $0) }
        #expect(
            names == [
                "\"h/x\",", "\"h/d\",\"principal\":\"uid:34\",", "\"h/x\",\"principal\":\"uid:34\",",
            ])
        let requests = send("QUERY requests", by: Self.administrator)
        #expect(requests.split(separator: "\"principal\":\"uid:34\"").count - 1 == 4)
        // Pages end where the next one begins.
        var after = ""
        var pages: [String] = []
        for _ in 0..<4 {
            let page = send("QUERY handlers\nlimit: 1" + after, by: Self.administrator)
            pages.append(Self.start(of: page.split(separator: "{\"handler\":")[1]))
            guard let next = page.split(separator: "\"handlers-next\":\"").dropFirst().first else { break }
            after = "\nafter: " + next.prefix { $0 != "\"" }
        }
        #expect(pages == names)
        let acting = ClientID(rawValue: 9)
        bed.pass { rig in
            rig.connect(acting)
            var hello = Hello()
            hello.principal = PrincipalName("uid:34")
            rig.send(.hello(hello), by: acting)
        }
        #expect(send("REMOVE h/", by: acting) == "REMOVED h/ 3")
        #expect(send("QUERY settings", by: acting).hasPrefix("ERROR not-authorized"))
        #expect(bed.rig.core.ledger.requests.pending == 1)
    }

    @Test mutating func `one principal's absent sessions evict its own, and not those of another`() {
        bed.rig.core.limits.maximumDisconnectedSessions = 8
        connect(Self.victim, "uid:34")
        bed.pass { $0.fetch("h", "1", "http://one/", by: Self.victim) }
        bed.pass { $0.core.clientLost(Self.victim, now: $0.now) }
        for number in 0..<40 as Range<UInt64> {
            let id = ClientID(rawValue: 100 + number)
            connect(id, "uid:33")
            bed.pass { $0.core.clientLost(id, now: $0.now) }
        }
        #expect(bed.rig.core.records.clients.awaySessions.count == 8)
        #expect(bed.rig.core.ledger.requests.pending == 1)
    }

    @Test mutating func `pages of requests follow names, and hold each request once`() {
        bed.pass { rig in
            for handler in ["a", "b/c", "b"] {
                for number in 0..<5 { rig.fetch(handler, "/\(number)", "http://one/\(number)", by: Self.intruder) }
            }
            for number in 0..<30 { rig.fetch("b", "x\(number)", "http://two/\(number)", by: Self.administrator) }
        }
        var after = ""
        var found: [String] = []
        for _ in 0..<10 {
            let page = send("QUERY requests\nlimit: 2" + after, by: Self.intruder)
            for entry in page.split(separator: "{\"handler\":\"").dropFirst() {
                let words = entry.split(separator: "\"")
                found.append("\(words[0]) \(words[4])")
            }
            guard let next = page.split(separator: "\"requests-next\":\"").dropFirst().first else { break }
            after = "\nafter: " + next.prefix { $0 != "\"" }
        }
        #expect(found == ["a", "b", "b/c"].flatMap { name in (0..<5).map { "\(name) /\($0)" } })
        bed.rig.core.limits.maximumExaminedRequestsPerPage = 5
        let empty = send("QUERY requests\nstate: held", by: Self.intruder)
        #expect(empty.contains("\"requests\":[],\"requests-next\":\"a//\""))
    }
}
