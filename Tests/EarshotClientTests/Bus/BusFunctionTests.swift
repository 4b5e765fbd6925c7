import EarshotWire
import Glibc
import Synchronization
import Testing

@testable import EarshotClient

/// Delivery of responses to a closure.
@Suite(.timeLimit(.minutes(10))) struct BusFunctionTests {
    private let url = "http://127.0.0.1/a"

    /// Actor other than a global one, with its deliveries.
    private actor Page {
        var delivered: [Int] = []
        var failures: [BusError.Code] = []

        func deliver(_ result: Result<Response, BusError>) {
            switch result {
            case .success(let response): delivered.append(response.status)
            case .failure(let error): failures.append(error.code)
            }
        }

        /// Calls `act` when a response is queued on this actor, which is occupied until then.
        func afterArrival(of fetch: Fetch, _ broker: ScriptedBus, _ act: () -> Void) {
            broker.answer(fetch)
            BusFunctionTests.spin(until: .acknowledge(1), broker)
            act()
        }
    }

    /// Waits without suspending, so that the calling actor stays occupied.
    private static func spin(until message: ClientMessage, _ broker: ScriptedBus) {
        while !broker.sent.versionedValue.value.contains(message) { sched_yield() }
    }

    @Test @MainActor func `a response comes once, on the main actor`() async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        let delivered = Observed<[Int]>([])
        try handler.fetch(
            url,
            onMain: { result in
                MainActor.assertIsolated()
                delivered.change { $0.append((try? result.get().status) ?? 0) }
            })
        await broker.answer(broker.fetch())
        await delivered.changed(since: 0)
        #expect(delivered.versionedValue.value == [200])
    }

    @Test func `a failure comes too, on an actor of the caller's choice`() async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        let page = Page()
        let reported = Observed(false)
        try handler.fetch(
            url, on: page,
            deliver: { page, result in
                page.deliver(result)
                reported.change { $0 = true }
            })
        await broker.end(broker.fetch(), .failed(Terminal.Failure(code: "unknown-host")))
        await reported.changed(since: 0)
        #expect(await page.failures == [.unknownHost])
    }

    @Test(arguments: ["remove", "drop", "cancel", "replace"])
    @MainActor func `nothing comes after a removal on the main actor, though it was on its way`(how: String)
        async throws
    {
        let broker = try ScriptedBus()
        let bus = try await broker.connect()
        var handler: Handler? = bus.handler()
        let isDelivered = Atomic(false)
        let request = try handler?.fetch(
            url,
            onMain: { [url] _ in
                isDelivered.store(true, ordering: .relaxed)
                Issue.record("delivered \(url)")
            })
        await broker.answer(broker.fetch())
        // Occupies the main actor, so that the delivery is queued behind the removal.
        Self.spin(until: .acknowledge(1), broker)
        switch how {
        case "remove": handler?.remove()
        case "drop": handler = nil
        case "cancel": request?.cancel()
        default: try handler?.fetch(url + "2", replaces: true, onMain: { _ in })
        }
        // Queued on the main actor behind the delivery.
        for _ in 0..<10 { await Task { @MainActor in }.value }
        let wasDelivered = isDelivered.load(ordering: .relaxed)
        #expect(!wasDelivered)
    }

    @Test func `nothing comes after a removal on another actor, though it was on its way`() async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        let page = Page()
        try handler.fetch(url, on: page, deliver: { page, result in page.deliver(result) })
        await page.afterArrival(of: broker.fetch(), broker) { handler.remove() }
        for _ in 0..<10 { _ = await page.delivered }
        #expect(await page.delivered == [])
        #expect(await page.failures == [])
    }

    @Test @MainActor func `what is awaited on the main actor does not come after a removal there`() async throws {
        let broker = try ScriptedBus()
        let handler = try await broker.connect().handler()
        let task = Task { @MainActor in try await handler.fetch(url) }
        await broker.answer(broker.fetch())
        Self.spin(until: .acknowledge(1), broker)
        handler.remove()
        let error = await #expect(throws: BusError.self) { try await task.value }
        #expect(error?.code == .removed)
    }
}
