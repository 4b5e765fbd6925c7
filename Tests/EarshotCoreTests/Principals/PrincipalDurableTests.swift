import EarshotWire
import Testing

@testable import EarshotCore

/// Durable requests of several principals, over restarts of the broker.
struct PrincipalDurableTests {
    private static let first = ClientID(rawValue: 1)
    private static let second = ClientID(rawValue: 2)
    private static let administrator = ClientID(rawValue: 3)
    private var bed = DurableBed()

    private mutating func connect() {
        for (id, user) in [(Self.first, "uid:33"), (Self.second, "uid:34"), (Self.administrator, nil)] {
            bed.pass { rig in
                rig.connect(id, user: user.flatMap { PrincipalName($0) })
                rig.send(.hello(Hello()), by: id)
            }
        }
    }

    @Test mutating func `after a restart each principal receives its own results`() {
        connect()
        let clients = [Self.first, Self.second, Self.administrator]
        bed.pass { rig in
            for client in clients {
                rig.fetch("h", "1", "http://one/\(client.rawValue)", by: client) {
                    $0.options.isDurable = true
                }
            }
        }
        #expect(Set(bed.disk.rows.values.map(\.principal)) == ["uid:33", "uid:34", nil])
        bed.restart()
        connect()
        let worker = bed.rig.worker()
        bed.pass()
        #expect(bed.rig.jobs.count == 3)
        bed.finishJobs(worker)
        for client in clients {
            bed.pass { $0.send(.subscribe(HandlerPattern("h")!), by: client) }
            #expect(bed.rig.terminals(for: client) == ["h 1 200"])
            for other in clients where other != client { #expect(bed.rig.terminals(for: other) == []) }
        }
    }

    @Test
    mutating func
        `durable requests of a key that is no longer valid continue until the administrator removes them`() throws
    {
        let proof = try #require(GatewayProof(String(repeating: "ab", count: 32)))
        let laptop = try #require(PrincipalName("key:laptop"))
        bed.rig.core.shellFeatures.gatewayProof = proof
        func open(_ rig: inout CoreRig, _ id: ClientID, isGateway: Bool) {
            rig.core.clientConnected(id, token: CoreRig.token(of: id), user: nil, isGateway: isGateway)
            var hello = Hello()
            hello.principal = laptop
            hello.proof = isGateway ? proof : nil
            rig.send(.hello(hello), by: id)
        }
        bed.pass { rig in
            open(&rig, Self.first, isGateway: true)
            rig.fetch("h", "1", "http://one/", by: Self.first) { $0.options.isDurable = true }
        }
        bed.pass { rig in
            rig.core.clientLost(Self.first, now: rig.now)
            rig.core.gatewayKeysChanged([], now: rig.now)
        }
        let worker = bed.rig.worker()
        bed.pass()
        #expect(bed.rig.jobs.count == 1)
        bed.finishJobs(worker)
        #expect(bed.disk.rows.count == 1)
        bed.pass { open(&$0, Self.administrator, isGateway: false) }
        bed.pass { $0.remove("h", by: Self.administrator) }
        #expect(bed.disk.rows.isEmpty)
    }

    @Test mutating func `a row with a damaged principal belongs to nobody`() {
        let head = ClientMessage.fetch(
            {
                var fetch = Fetch(handler: HandlerID("h")!, request: RequestID("1")!, url: "http://one/")
                fetch.options.isDurable = true
                return fetch
            }()
        ).encoded()
        bed.pass { rig in
            rig.core.beginDurableLoad()
            for (number, name) in ["", "uid 33", String(repeating: "a", count: 65)].enumerated() {
                let id = DurableID(rawValue: UInt64(number + 1))
                let entry = DurableEntry(
                    id: id, acceptedAt: 1_000_000, head: head, principal: name, hasResult: false)
                rig.core.durableRowsRead([entry], now: rig.now)
            }
        }
        #expect(bed.sent.count { if case .durable(.deleteRequest) = $0 { true } else { false } } == 3)
        #expect(bed.rig.core.ledger.requests.pending == 0)
    }

    @Test
    mutating func
        `a principal with a handler keeps its number while thousands of others come and go`()
    {
        connect()
        bed.pass { rig in
            rig.fetch("h", "1", "http://one/", by: Self.first) {
                $0.options.isDurable = true
                $0.options.subscribes = false
            }
        }
        bed.pass { $0.core.clientLost(Self.first, now: $0.now) }
        bed.rig.pass { rig in
            for number in 0..<5_000 {
                let id = ClientID(rawValue: UInt64(100 + number))
                rig.connect(id, user: PrincipalName("uid:\(2_000 + number)"))
                rig.core.clientLost(id, now: rig.now)
            }
        }
        #expect(bed.rig.core.audit() == [])
        #expect(bed.rig.core.records.principals.count < 200)
        let back = ClientID(rawValue: 9)
        bed.pass { rig in
            rig.connect(back, user: PrincipalName("uid:33"))
            rig.send(.hello(Hello()), by: back)
            rig.send(.query(.explainRequest(HandlerID("h")!, RequestID("1")!)), by: back)
        }
        let answers = bed.sent.compactMap { action -> String? in
            if case .client(.answerQuery(back, _, let json)) = action {
                String(decoding: json, as: UTF8.self)
            } else {
                nil
            }
        }
        #expect(answers.count == 1 && answers[0].contains("\"state\":\"queued\""))
    }
}
