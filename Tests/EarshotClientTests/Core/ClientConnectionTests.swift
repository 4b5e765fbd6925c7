import EarshotClient
import EarshotLoop
import EarshotWire
import Testing

/// Time limit; reached only by failing tests.
private let timeout = Duration.seconds(60)

@Suite struct ClientConnectionTests {
    @Test func `hello, fetch, result, acknowledgement`() throws {
        let loop = try EventLoop()
        let endpoint = Endpoint()
        var terminals: [(DeliveredTerminal, [UInt8])] = []
        let connection = try ClientConnection(endpoint: endpoint.name, loop: loop) { event in
            if case .terminal(let delivery, let body) = event { terminals.append((delivery, body)) }
        }
        try connection.fetch(fetch("1"))
        // The broker starts after its client.
        let broker = try ScriptedBroker(endpoint.name, loop) { broker, message in
            switch message {
            case .hello: try broker.send(welcome(1))
            case .fetch: try broker.send(.terminal(result("1", sequence: 1)), body: [1, 2, 3])
            default: break
            }
        }
        #expect(try loop.run(for: timeout) { broker.sent.count == 3 })
        #expect(broker.sent == [.hello(hello), .fetch(fetch("1")), .acknowledge(1)])
        #expect(terminals.count == 1)
        #expect(terminals.first?.0.fetch == fetch("1"))
        #expect(terminals.first?.1 == [1, 2, 3])
        broker.die()
    }

    @Test func `a new broker is told hello and asked again, over a new socket`() throws {
        let loop = try EventLoop()
        let endpoint = Endpoint()
        var delivered: [DeliveredTerminal] = []
        var states: [ClientState] = []
        let connection = try ClientConnection(endpoint: endpoint.name, loop: loop) { event in
            switch event {
            case .terminal(let delivery, _): delivered.append(delivery)
            case .state(let state): states.append(state)
            default: break
            }
        }
        var first: ScriptedBroker? = try ScriptedBroker(endpoint.name, loop) { broker, message in
            switch message {
            case .hello: try broker.send(welcome(1))
            case .fetch(let fetch) where fetch.request.description == "1":
                try broker.send(.terminal(result("1", sequence: 1)))
            default: break
            }
        }
        try connection.fetch(fetch("1"))
        try connection.fetch(fetch("2"))
        #expect(try loop.run(for: timeout) { first?.sent.count == 4 && delivered.count == 1 })
        first?.die()
        first = nil
        #expect(try loop.run(for: timeout) { states.last == .disconnected })

        // Requested while disconnected: sent once, to the next broker.
        try connection.fetch(fetch("3"))
        let second = try ScriptedBroker(endpoint.name, loop) { broker, message in
            switch message {
            case .hello: try broker.send(welcome(2))
            case .fetch(let fetch):
                let number = fetch.request.description
                try broker.send(.terminal(result(number, sequence: number == "2" ? 1 : 2)))
            default: break
            }
        }
        #expect(try loop.run(for: timeout) { delivered.count == 3 && second.sent.contains(.acknowledge(2)) })
        #expect(second.sent.prefix(3) == [.hello(hello), .fetch(fetch("2")), .fetch(fetch("3"))])
        #expect(delivered.map(\.key) == [key("1"), key("2"), key("3")])
        #expect(states.filter { $0 != .disconnected } == [1, 2].map { .connected(BrokerInstance(rawValue: $0)) })
        second.die()
    }

    @Test func `nothing is told any more once it was closed, not what has come either`() throws {
        let loop = try EventLoop()
        let endpoint = Endpoint()
        var reported: [RequestKey] = []
        var connection: ClientConnection?
        connection = try ClientConnection(endpoint: endpoint.name, loop: loop) { event in
            guard case .terminal(let delivery, _) = event else { return }
            reported.append(delivery.key)
            connection?.close()
        }
        let broker = try ScriptedBroker(endpoint.name, loop) { broker, message in
            switch message {
            case .hello: try broker.send(welcome(1))
            // Both arrive in one pass.
            case .fetch(let fetch) where fetch.request.description == "2":
                for number in 1...2 { try broker.send(.terminal(result("\(number)", sequence: UInt64(number)))) }
            default: break
            }
        }
        try connection?.fetch(fetch("1"))
        try connection?.fetch(fetch("2"))
        #expect(try loop.run(for: timeout) { !reported.isEmpty })
        #expect(reported == [key("1")])
        broker.die()
    }

    @Test func `a file is acknowledged when its consumer is done with it`() throws {
        let loop = try EventLoop()
        let endpoint = Endpoint()
        var held: DeliveredTerminal?
        let connection = try ClientConnection(endpoint: endpoint.name, loop: loop) { event in
            if case .terminal(let delivery, _) = event, delivery.isFile { held = delivery }
        }
        let broker = try ScriptedBroker(endpoint.name, loop) { broker, message in
            switch message {
            case .hello: try broker.send(welcome(1))
            case .fetch:
                try broker.send(.terminal(result("1", sequence: 1, file: "/spool/1")))
            case .query(let query, _): try broker.send(.queryAnswer(query), body: Array("{}".utf8))
            default: break
            }
        }
        try connection.fetch(fetch("1"))
        #expect(try loop.run(for: timeout) { held != nil })
        connection.query(.ping)
        #expect(try loop.run(for: timeout) { broker.sent.last == .query(.ping) })
        #expect(!broker.sent.contains(.acknowledge(1)))
        connection.finishDelivery(try #require(held))
        #expect(try loop.run(for: timeout) { broker.sent.last == .acknowledge(1) })
        broker.die()
    }

    @Test func `a connection with a lease says BYE when it is closed`() throws {
        let loop = try EventLoop()
        let endpoint = Endpoint()
        var isConnected = false
        let connection = try ClientConnection(endpoint: endpoint.name, lease: .seconds(7), loop: loop) { event in
            if case .state(.connected) = event { isConnected = true }
        }
        let broker = try ScriptedBroker(endpoint.name, loop) { broker, message in
            if case .hello = message { try broker.send(welcome(1, lastReceived: nil)) }
        }
        #expect(try loop.run(for: timeout) { isConnected })
        guard case .hello(let hello)? = broker.sent.first else {
            Issue.record("no HELLO")
            return
        }
        #expect(hello.leaseMilliseconds == 7_000)
        connection.close()
        #expect(try loop.run(for: timeout) { broker.sent.last == .bye })
        broker.die()
    }

    @Test(arguments: ["", "http://127.0.0.1/a b", "http://127.0.0.1/\u{7f}", "http://127.0.0.1/\n"])
    func `a URL that would break a head is not said`(url: String) throws {
        let connection = try ClientConnection(endpoint: Endpoint().name, loop: EventLoop()) { _ in }
        var request = fetch("1")
        request.url = url
        #expect(throws: ClientError.self) { try connection.fetch(request) }
    }

    @Test func `what is no path is no endpoint`() throws {
        #expect(throws: ClientError.self) {
            _ = try ClientConnection(endpoint: "tcp://127.0.0.1:1", loop: EventLoop()) { _ in }
        }
        let long = "ipc:///" + String(repeating: "a", count: 200)
        #expect(throws: SystemError.self) { _ = try ClientConnection(endpoint: long, loop: EventLoop()) { _ in } }
    }

    @Test func `a connected client that waits does not wake`() throws {
        let loop = try EventLoop()
        let endpoint = Endpoint()
        var isConnected = false
        let connection = try ClientConnection(endpoint: endpoint.name, loop: loop) { event in
            if case .state(.connected) = event { isConnected = true }
        }
        let broker = try ScriptedBroker(endpoint.name, loop) { broker, _ in try broker.send(welcome(1)) }
        #expect(try loop.run(for: timeout) { isConnected })
        #expect(try loop.idlePasses() <= 2)
        broker.die()
        connection.close()
    }
}
