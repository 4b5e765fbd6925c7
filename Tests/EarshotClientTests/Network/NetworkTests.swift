import EarshotLoop
import EarshotWire
import Testing
import ZMTP
import ZeroMQ

@testable import EarshotClient

/// Time limit; reached only by failing tests.
private let timeout = Duration.seconds(300)
private let anyPort = "tcp://127.0.0.1:*"

/// Connections over tcp to a scripted server of CURVE.
@Suite struct NetworkTests {
    private func connect(
        _ endpoints: [BusEndpoint], _ loop: EventLoop, lease: Duration? = nil, window: Int = 256,
        onEvent: @escaping (ClientEvent) -> Void = { _ in }
    ) throws -> ClientConnection {
        try ClientConnection(
            endpoints: endpoints, window: window, lease: lease, loop: loop, onEvent: onEvent)
    }

    /// Returns the first HELLO that a broker received.
    private func firstHello(_ broker: ScriptedBroker) throws -> Hello {
        guard case .hello(let hello)? = broker.sent.first else { throw SystemError("no HELLO", number: 0) }
        return hello
    }

    /// Returns the endpoint of a port without a server.
    private func closedPort(_ loop: EventLoop) throws -> String {
        let broker = try ScriptedBroker(anyPort, loop) { _, _ in }
        broker.die()
        return broker.endpoint
    }

    @Test func `requests and results pass over tcp, under a lease of a minute`() throws {
        let loop = try EventLoop()
        let broker = try ScriptedBroker(anyPort, loop) { broker, message in
            switch message {
            case .hello: try broker.send(welcome(1, lastReceived: nil))
            case .fetch: try broker.send(.terminal(result("1", sequence: 1)), body: [1, 2, 3])
            default: break
            }
        }
        var bodies: [[UInt8]] = []
        let connection = try connect([CurveKeys.endpoint(broker.endpoint)], loop) { event in
            if case .terminal(_, let body) = event { bodies.append(body) }
        }
        try connection.fetch(fetch("1"))
        #expect(try loop.run(for: timeout) { broker.sent.last == .acknowledge(1) })
        #expect(bodies == [[1, 2, 3]])
        #expect(try firstHello(broker).leaseMilliseconds == 60_000)
        connection.close()
        #expect(try loop.run(for: timeout) { broker.sent.last == .bye })
        broker.die()
    }

    @Test func `nine hundred requests and results arrive, in both directions in one burst`() throws {
        let loop = try EventLoop()
        var requested: [Fetch] = []
        let broker = try ScriptedBroker(anyPort, loop) { broker, message in
            switch message {
            case .hello: try broker.send(welcome(1, lastReceived: nil))
            case .fetch(let fetch):
                requested.append(fetch)
                guard requested.count == 900 else { return }
                for (index, fetch) in requested.enumerated() {
                    let terminal = result(fetch.request.description, sequence: UInt64(index + 1))
                    try broker.send(.terminal(terminal), body: [UInt8](repeating: 7, count: 5_000))
                }
            default: break
            }
        }
        var keys: Set<RequestKey> = []
        let connection = try connect([CurveKeys.endpoint(broker.endpoint)], loop) { event in
            if case .terminal(let delivery, let body) = event, body.count == 5_000 { keys.insert(delivery.key) }
        }
        for number in 1...900 { try connection.fetch(fetch("\(number)")) }
        #expect(try loop.run(for: timeout) { keys.count == 900 && broker.sent.last == .acknowledge(900) })
        #expect(requested.map(\.request.description) == (1...900).map { "\($0)" })
        broker.die()
    }

    @Test func `a connection with unsent messages reports room in its full queue`() throws {
        let loop = try EventLoop()
        var count = 0
        let broker = try ScriptedBroker(anyPort, loop) { _, _ in count += 1 }
        guard case .remote(let address, let key, let serverKey) = try CurveKeys.endpoint(broker.endpoint).kind else {
            Issue.record("the endpoint is local")
            return
        }
        let link = try CurveLink(address, key, serverKey: serverKey, usesIPv6: false, Network(), loop: loop)
        #expect(try loop.run(for: timeout) { link.readConnectionEvents() })
        let message = ZMTP.Message(head: ClientMessage.bye.encoded(), body: nil)
        var sent = 0
        while link.send(message) { sent += 1 }
        // Nothing but the room wakes the owner: the broker receives everything and answers nothing.
        #expect(try loop.run(for: timeout) { link.needsPass(hasUnsent: true) })
        #expect(link.send(message))
        #expect(try loop.run(for: timeout) { count == sent + 1 })
        #expect(!link.needsPass(hasUnsent: false))
        broker.die()
    }

    @Test func `a connected client that waits does not wake`() throws {
        let loop = try EventLoop()
        let broker = try ScriptedBroker(anyPort, loop) { broker, _ in try broker.send(welcome(1, lastReceived: nil)) }
        var isConnected = false
        let connection = try connect([CurveKeys.endpoint(broker.endpoint)], loop) { event in
            if case .state(.connected) = event { isConnected = true }
        }
        #expect(try loop.run(for: timeout) { isConnected })
        #expect(try loop.idlePasses() <= 2)
        connection.close()
        broker.die()
    }

    @Test func `a worker's connection that waits does not wake`() throws {
        let loop = try EventLoop()
        let broker = try ScriptedBroker(anyPort, loop) { broker, _ in try broker.send(welcome(1, lastReceived: nil)) }
        let tunnel = WorkerTunnel([try CurveKeys.endpoint(broker.endpoint)], loop: loop) { Issue.record($0) }
        let worker = try MessageStream(
            tunnel.connectWorker(), as: .dealer, frameBytes: 10_000, maximumMessages: 16, loop: loop
        ) {}
        defer { withExtendedLifetime((tunnel, worker)) {} }
        let message = ZMTP.Message(head: ClientMessage.hello(Hello()).encoded(), body: nil)
        var wasSent = false
        let hasAnswer = try loop.run(for: timeout) {
            let answer = worker.next()
            if !wasSent { wasSent = worker.send(message) }
            worker.flush()
            return answer != nil
        }
        #expect(hasAnswer)
        #expect(try loop.idlePasses() <= 2)
        broker.die()
    }

    // MARK: Refusals

    private func failure(_ connection: ClientConnection, _ loop: EventLoop) throws -> String {
        #expect(try loop.run(for: timeout) { connection.failure != nil })
        let error = try #require(connection.failure as? ClientError)
        #expect(error.code == .refused)
        return error.description
    }

    @Test func `a wrong server key is an error that names it`() throws {
        let loop = try EventLoop()
        let broker = try ScriptedBroker(anyPort, loop) { _, _ in }
        let connection = try connect([CurveKeys.endpoint(broker.endpoint, serverKey: CurveKeys.client)], loop)
        let sentence = try failure(connection, loop)
        #expect(sentence.contains("server key") && sentence.contains(broker.endpoint))
        broker.die()
    }

    @Test func `a key that is not authorized is an error that says so`() throws {
        let loop = try EventLoop()
        let broker = try ScriptedBroker(anyPort, loop, admits: false) { _, _ in }
        var states: [ClientState] = []
        let connection = try connect([CurveKeys.endpoint(broker.endpoint)], loop) { event in
            if case .state(let state) = event { states.append(state) }
        }
        #expect(try failure(connection, loop).contains("not authorized the key"))
        #expect(states == [.disconnected])
        broker.die()
    }

    @Test func `a server without encryption is an error that says so`() throws {
        let loop = try EventLoop()
        let address = try #require(TCPSocket.Address("127.0.0.1"))
        let (listener, port) = try TCPSocket.listen(address, port: 0, backlog: 1)
        defer { UnixSocket.close(listener) }
        var peer: Int32?
        defer { if let peer { UnixSocket.close(peer) } }
        // The greeting of ZMTP 3.0 with the mechanism NULL. libzmq would also close the connection, perhaps before the client
        // has read the greeting.
        let greeting =
            [0xff] + [UInt8](repeating: 0, count: 8) + [0x7f, 3, 0] + Array("NULL".utf8)
            + [UInt8](repeating: 0, count: 48)
        _ = try loop.add(listener, .readable) { _ in
            guard peer == nil, let accepted = try? UnixSocket.accept(listener) else { return }
            peer = accepted
            _ = unsafe greeting.withUnsafeBytes { unsafe UnixSocket.send(accepted, $0) }
        }
        let connection = try connect([CurveKeys.endpoint("tcp://127.0.0.1:\(port)")], loop)
        #expect(try failure(connection, loop).contains("no bus with encryption"))
    }

    @Test func `without a server the client tries on, and tells the address`() throws {
        let loop = try EventLoop()
        let endpoint = try closedPort(loop)
        let connection = try connect([CurveKeys.endpoint(endpoint)], loop)
        #expect(try loop.run(for: timeout) { connection.connectionFaultText != nil })
        #expect(connection.connectionFaultText?.contains("no bus answers at \(endpoint)") == true)
        #expect(connection.failure == nil)
        var isConnected = false
        let broker = try ScriptedBroker(endpoint, loop) { broker, _ in
            isConnected = true
            try broker.send(welcome(1, lastReceived: nil))
        }
        #expect(try loop.run(for: timeout) { isConnected })
        broker.die()
    }

    @Test func `a bus of an asynchronous program that cannot be reached throws with its address`() async throws {
        let endpoint = try closedPort(EventLoop())
        let choice = BrokerChoice.remote([try CurveKeys.endpoint(endpoint)])
        var description = ""
        // The time may pass before the refused connection is reported.
        for timeout in [300, 3_000, 30_000] where !description.contains(endpoint) {
            let error = await #expect(throws: BusError.self) {
                try await Bus.connect(to: choice, timeout: .milliseconds(timeout))
            }
            #expect(error?.code == .noBroker)
            description = error?.description ?? ""
        }
        #expect(description.contains(endpoint))
    }

    // MARK: Lost connections

    @Test func `a broken connection resumes its session, and neither repeats nor loses a request`() throws {
        let loop = try EventLoop()
        var first: ScriptedBroker? = try ScriptedBroker(anyPort, loop) { broker, message in
            if case .hello = message { try broker.send(welcome(1, lastReceived: nil)) }
        }
        let endpoint = try #require(first?.endpoint)
        var delivered: [RequestKey] = []
        let connection = try connect([CurveKeys.endpoint(endpoint)], loop) { event in
            if case .terminal(let delivery, _) = event { delivered.append(delivery.key) }
        }
        try connection.fetch(fetch("1"))
        #expect(try loop.run(for: timeout) { first?.sent.count == 2 })
        first?.die()
        first = nil

        let second = try ScriptedBroker(endpoint, loop) { broker, message in
            guard case .hello = message else { return }
            try broker.send(welcome(1, lastReceived: 1))
            try broker.send(.terminal(result("1", sequence: 1)))
        }
        #expect(try loop.run(for: timeout) { second.sent.last == .acknowledge(1) })
        #expect(delivered == [key("1")])
        #expect(try firstHello(second).token == token)
        #expect(second.sent.count == 2)
        second.die()
    }

    @Test func `if its bus stays away, the client asks another one again, and durable requests stay`() throws {
        let loop = try EventLoop()
        var first: ScriptedBroker? = try ScriptedBroker(anyPort, loop) { broker, message in
            if case .hello = message { try broker.send(welcome(1, lastReceived: nil)) }
        }
        let second = try ScriptedBroker(anyPort, loop) { broker, message in
            switch message {
            case .hello: try broker.send(welcome(2, lastReceived: nil))
            case .fetch(let fetch):
                try broker.send(.terminal(result(fetch.request.description, sequence: 1)))
            default: break
            }
        }
        let endpoints = try [#require(first?.endpoint), second.endpoint].map { try CurveKeys.endpoint($0) }
        var delivered: [RequestKey] = []
        var refusals: [RefusedMessage] = []
        let connection = try connect(endpoints, loop) { event in
            switch event {
            case .terminal(let delivery, _): delivered.append(delivery.key)
            case .messageRefused(let reply): refusals.append(reply)
            default: break
            }
        }
        try connection.fetch(fetch("1"))
        var durable = fetch("2")
        durable.options.isDurable = true
        durable.options.subscribes = false
        try connection.fetch(durable)
        #expect(try loop.run(for: timeout) { first?.sent.count == 3 })
        #expect(second.sent.isEmpty)
        first?.die()
        first = nil

        #expect(try loop.run(for: timeout) { second.sent.last == .acknowledge(1) })
        #expect(delivered == [key("1")])
        #expect(try firstHello(second).token == nil)
        #expect(refusals.map(\.code) == ["connection-lost"])
        #expect(refusals.first?.key?.request == durable.request)
        second.die()
    }

    @Test func `the second bus serves while the first one cannot be reached`() throws {
        let loop = try EventLoop()
        let broker = try ScriptedBroker(anyPort, loop) { broker, _ in try broker.send(welcome(1, lastReceived: nil)) }
        var isConnected = false
        let endpoints = try [closedPort(loop), broker.endpoint].map { try CurveKeys.endpoint($0) }
        let connection = try connect(endpoints, loop) { event in
            if case .state(.connected) = event { isConnected = true }
        }
        #expect(try loop.run(for: timeout) { isConnected })
        connection.close()
        broker.die()
    }
}
