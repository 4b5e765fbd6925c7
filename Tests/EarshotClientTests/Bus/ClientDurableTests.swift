import Testing

@testable import EarshotClient

/// Durable requests over a bus of the built program that is killed and restarted.
@Suite(.timeLimit(.minutes(10)), .serialized) struct ClientDurableTests {
    @Test func `what was submitted is claimed in the next life of all, until it is acknowledged`() async throws {
        let origin = try ThreadOrigin()
        let kept = try KeptBus()
        do {
            let bus = try await kept.connect()
            for number in 1...3 {
                try await bus.submit(origin.url("\(number * 50_000)"), under: "reports", id: "\(number)")
            }
            // Submission is idempotent.
            try await bus.submit(origin.url("50000"), under: "reports", id: "1")
            let other = await #expect(throws: BusError.self) {
                try await bus.submit(origin.url("7"), under: "reports", id: "1")
            }
            #expect(other?.code == .idInUse)
            await bus.close()
        }
        kept.kill()
        do {
            let bus = try await kept.connect()
            var reader = try await bus.claim("reports").makeAsyncIterator()
            var counts: Set<Int> = []
            for _ in 1...3 {
                let ended = try #require(try await reader.next())
                counts.insert(try await ended.result.get().body.bytes().count)
                // Only the first is acknowledged, so the others are delivered again.
                if counts.count == 1 { try await ended.acknowledge() }
            }
            #expect(counts == [50_000, 100_000, 150_000])
            // Stored after the deletion of the acknowledged row, which the broker orders without waiting for the disk.
            try await bus.submit(origin.url("7"), under: "later", id: "1")
        }
        kept.kill()
        let bus = try await kept.connect()
        var reader = try await bus.claim("reports").makeAsyncIterator()
        for _ in 1...2 { try await #require(try await reader.next()).acknowledge() }
        #expect(try await bus.remove("reports") == 0)
        await bus.close()
    }

    @Test func `a removal takes what was submitted from the disk`() async throws {
        let origin = try ThreadOrigin()
        let kept = try KeptBus()
        let bus = try await kept.connect()
        try await bus.submit(origin.url("hang"), under: "reports/1", id: "1")
        try await bus.submit(origin.url("hang2"), under: "reports/2", id: "1")
        #expect(try await bus.remove("reports/") == 2)
        #expect(try await bus.remove("reports/") == 0)
        // The ID is free again, also for other content.
        try await bus.submit(origin.url("10"), under: "reports/1", id: "1")
        var reader = try await bus.claim("reports/").makeAsyncIterator()
        let ended = try #require(try await reader.next())
        #expect(try await ended.result.get().body.bytes().count == 10)
        try await ended.acknowledge()
        await bus.close()
    }

    @Test func `a warm request fills the cache, and the form of a body is as asked`() async throws {
        let origin = try ThreadOrigin()
        let options = PrivateBrokerOptions(program: try StormTests.program, maximumWorkers: 1)
        let bus = try await Bus.connect(to: .privateBroker(options), timeout: .seconds(300), lease: .seconds(10))
        let handler = bus.handler()
        var fetch = FetchOptions()
        fetch.bodyForm = .inFile
        let small = try await handler.fetch(origin.url("10"), fetch)
        #expect(small.body.path != nil)
        fetch.bodyForm = .inMemory
        #expect(try await handler.fetch(origin.url("1000"), fetch).body.path == nil)
        let error = await #expect(throws: BusError.self) { try await handler.fetch(origin.url("100000"), fetch) }
        #expect(error?.code == .tooLarge)
        fetch = FetchOptions()
        fetch.isWarm = true
        let warm = try await handler.fetch(origin.url("200"), fetch)
        #expect(warm.status == 200 && warm.body.count == 0)
        let refused = await #expect(throws: BusError.self) {
            try await bus.submit(origin.url("10"), under: "reports", id: "1")
        }
        #expect(refused?.code == .notStored)
        await bus.close()
    }
}
