import EarshotLoop
import EarshotWire
import Testing

@testable import EarshotClient

/// The next bus of a list, and the pauses, after connections that failed or were lost.
@Suite struct EndpointListTests {
    private func list(_ count: Int) throws -> EndpointList {
        EndpointList(try (1...count).map { try CurveKeys.endpoint("tcp://127.0.0.1:\($0)") })
    }

    private func port(_ list: EndpointList) -> String { String(list.currentEndpoint.description.suffix(1)) }

    @Test func `unreachable buses are tried in turn, with pauses that grow to two seconds`() throws {
        var list = try list(2)
        var ports: [String] = []
        var pauses: [Int64] = []
        for _ in 0..<24 {
            ports.append(port(list))
            guard case .connect(let pause) = list.connectionFailed(.unreachable, at: 0, random: .max) else { break }
            pauses.append(pause)
        }
        #expect(ports == Array(repeating: ["1", "2"], count: 12).flatMap(\.self))
        #expect(pauses.first == 50_000_000)
        #expect(pauses.last == 2_000_000_000)
        #expect(pauses == pauses.sorted())
    }

    @Test func `half of a pause is random`() throws {
        var list = try list(1)
        #expect(list.connectionFailed(.unreachable, at: 0, random: 0) == .connect(after: 25_000_000))
    }

    @Test func `a lost bus is tried alone for three seconds`() throws {
        var list = try list(2)
        list.connected()
        for milliseconds in [1_000, 2_000, 3_999] {
            _ = list.connectionFailed(.connectionLost, at: milliseconds, random: 0)
            #expect(port(list) == "1" && !list.isSessionElsewhere)
        }
        #expect(list.connectionFailed(.connectionLost, at: 3_990, random: 0) == .connect(after: 10_000_000))
        _ = list.connectionFailed(.connectionLost, at: 4_000, random: 0)
        #expect(port(list) == "2" && list.isSessionElsewhere)
        list.sessionEnded()
        #expect(!list.isSessionElsewhere)
        list.connected()
        _ = list.connectionFailed(.connectionLost, at: 9_000, random: 0)
        #expect(port(list) == "2")
    }

    @Test func `a bus that refuses the key is left at once, and with the last one the client gives up`() throws {
        var list = try list(2)
        list.connected()
        _ = list.connectionFailed(.refused, at: 0, random: 0)
        #expect(port(list) == "2")
        let last = list.currentEndpoint
        #expect(list.connectionFailed(.handshakeInvalid, at: 0, random: 0) == .noEndpointLeft(last, .handshakeInvalid))
    }

    @Test func `a bus that drained is left at once, also for one whose last attempt failed`() throws {
        var list = try list(2)
        _ = list.connectionFailed(.unreachable, at: 0, random: 0)
        list.connected()
        #expect(list.hasAlternativeBus)
        list.busDrained()
        _ = list.connectionFailed(.connectionLost, at: 1_000, random: 0)
        #expect(port(list) == "1" && list.isSessionElsewhere)
    }

    @Test func `a bus without another one that may accept the client is not left`() throws {
        #expect(try !list(1).hasAlternativeBus)
        var list = try list(2)
        _ = list.connectionFailed(.refused, at: 0, random: 0)
        list.connected()
        #expect(!list.hasAlternativeBus)
        #expect(!EndpointList([BusEndpoint(socket: "/run/bus"), BusEndpoint(socket: "/run/other")]).hasAlternativeBus)
    }

    @Test func `three failed handshakes mean a wrong server key, unless the bus has answered before`() throws {
        var list = try list(1)
        let bus = list.currentEndpoint
        for _ in 0..<2 {
            #expect(list.connectionFailed(.handshakeFailed, at: 0, random: 0) != .noEndpointLeft(bus, .handshakeFailed))
        }
        #expect(list.connectionFailed(.handshakeFailed, at: 0, random: 0) == .noEndpointLeft(bus, .handshakeFailed))
        var known = try self.list(1)
        known.connected()
        for _ in 0..<9 {
            #expect(
                known.connectionFailed(.handshakeFailed, at: 0, random: 0) != .noEndpointLeft(bus, .handshakeFailed))
        }
    }

    @Test func `failed handshakes count only in a row`() throws {
        var list = try list(1)
        let bus = list.currentEndpoint
        for ending in [.handshakeFailed, .handshakeFailed, .unreachable, .handshakeFailed] as [LinkEnding] {
            #expect(list.connectionFailed(ending, at: 0, random: 0) != .noEndpointLeft(bus, ending))
        }
    }

    @Test func `the families of addresses take turns`() throws {
        var list = try list(1)
        #expect(!list.usesIPv6)
        _ = list.connectionFailed(.unreachable, at: 0, random: 0)
        #expect(list.usesIPv6)
        _ = list.connectionFailed(.unreachable, at: 0, random: 0)
        #expect(!list.usesIPv6)
    }

    @Test func `a bus of this machine is tried every 10 to 100 ms`() {
        var list = EndpointList([BusEndpoint(socket: "/run/bus")])
        let pauses = (0..<6).map { _ in list.connectionFailed(nil, at: 0, random: .max) }
        #expect(pauses == [10, 20, 40, 80, 100, 100].map { .connect(after: $0 * 1_000_000) })
    }

    // MARK: The session that stays behind

    @Test(arguments: ["GET", "POST", "durable", "submitted"])
    func `a session leaves a bus that drains unless a request that was sent cannot be made again`(kind: String) {
        var request = fetch("1")
        if kind == "POST" { request.options.method = kind }
        request.options.isDurable = kind == "durable" || kind == "submitted"
        request.options.subscribes = kind != "submitted"
        var core = ClientCore(hello: hello, clock: stoppedClock)
        _ = core.linkOpened()
        _ = core.received(welcome(1, lastReceived: nil))
        _ = core.fetch(request)
        #expect(!core.canChangeBus)
        _ = core.received(.goodbye(reason: "draining"))
        #expect(core.canChangeBus == (kind == "GET"))
        // Made after the farewell, so that the bus has never received it.
        var later = fetch("2")
        later.options.method = "POST"
        _ = core.fetch(later)
        #expect(core.canChangeBus == (kind == "GET"))
        _ = core.linkLost()
        #expect(!core.canChangeBus)
    }

    @Test func `a session does not leave a bus that drains while it reads a body there`() {
        var core = ClientCore(hello: hello, clock: stoppedClock)
        _ = core.linkOpened()
        _ = core.received(welcome(1, lastReceived: nil))
        _ = core.fetch(fetch("1"))
        _ = core.received(.goodbye(reason: "draining"))
        _ = core.pulls.bodyGrew(progress("1"))
        #expect(!core.canChangeBus)
    }

    @Test func `a session that stays behind gives up its token, its lost and its durable requests`() {
        var core = ClientCore(hello: hello, clock: stoppedClock)
        _ = core.linkOpened()
        _ = core.received(welcome(1, lastReceived: nil))
        _ = core.fetch(fetch("1"))
        var durable = fetch("2")
        durable.options.isDurable = true
        _ = core.fetch(durable)
        _ = core.linkLost()
        // Never sent, so it is not on the disk of the old bus.
        var later = fetch("3")
        later.options.isDurable = true
        _ = core.fetch(later)
        let reports = core.busChanged()
        #expect(reports.count == 1)
        guard case .report(.messageRefused(let reply))? = reports.first else {
            Issue.record("no refusal")
            return
        }
        #expect(reply.code == "connection-lost" && reply.subject == .fetch(RequestKey(handler, durable.request)))
        guard case .hello(let hello)? = sent(core.linkOpened()).first else {
            Issue.record("no HELLO")
            return
        }
        #expect(hello.token == nil && hello.firstUnansweredNumber == nil)
        let requests = sent(core.received(welcome(2, lastReceived: nil))).compactMap { message in
            if case .fetch(let fetch) = message { fetch.request.description } else { nil }
        }
        #expect(requests == ["1", "3"])
    }
}
