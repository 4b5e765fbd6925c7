import Glibc
import Testing
import ZeroMQ

/// Events of a socket's connections.
@Suite struct MonitorTests {
    @Test func `a connection ends under the number that it began with`() throws {
        let context = try Context.make()
        let endpoint = TestEndpoint()
        let router = try context.socket(.router)
        let monitor = try Monitor.make(of: router)
        try router.bind(endpoint.name)
        try speakAndLeave(context, router, endpoint)
        let kinds = try events(monitor, through: .disconnected)
        #expect(kinds.first?.kind == .accepted)
        #expect(kinds.contains { $0.kind == .handshakeSucceeded })
        #expect(try kinds.first?.descriptor == #require(kinds.last?.descriptor))
    }

    @Test func `a client sees its broker go and come back`() throws {
        let context = try Context.make()
        let endpoint = TestEndpoint()
        let dealer = try context.socket(.dealer)
        let monitor = try Monitor.make(of: dealer)
        try dealer.connect(endpoint.name)
        try serve(context, monitor, endpoint)
        _ = try events(monitor, through: .disconnected)
        try serve(context, monitor, endpoint)
    }

    @Test func `a monitor may outlive its socket`() throws {
        let context = try Context.make()
        let monitor = try abandonedMonitor(context)
        while try monitor.next() != nil {}
        #expect(try !monitor.isReadable())
    }

    private func abandonedMonitor(_ context: borrowing Context) throws -> Monitor {
        let socket = try context.socket(.dealer)
        return try Monitor.make(of: socket)
    }

    private func serve(_ context: borrowing Context, _ monitor: borrowing Monitor, _ endpoint: TestEndpoint) throws {
        let router = try context.socket(.router)
        try router.bind(endpoint.name)
        _ = try events(monitor, through: .handshakeSucceeded)
    }

    private func events(_ monitor: borrowing Monitor, through last: Monitor.Event.Kind) throws -> [Monitor.Event] {
        var events: [Monitor.Event] = []
        while events.last?.kind != last {
            while let event = try monitor.next(), events.last?.kind != last { events.append(event) }
            guard events.last?.kind != last else { break }
            try #require(wait(monitor.descriptor, milliseconds: 60_000))
        }
        return events
    }

    private func speakAndLeave(
        _ context: borrowing Context, _ router: borrowing Socket, _ endpoint: TestEndpoint
    ) throws {
        let dealer = try context.socket(.dealer)
        try dealer.connect(endpoint.name)
        try dealer.awaitSend([1])
        #expect(try router.awaitMessage().last == [1])
    }
}
