import EarshotWire
import Testing

@testable import EarshotCore

/// Stored results of clients that read, but slowly: all arrive, few of them wait in memory, and none is too many.
struct StoredResultsTests {
    /// Few terminals may wait before stored results do, and the bound of outcomes is far below the number of results.
    private static var limits: CoreLimits {
        var limits = CoreLimits()
        limits.maximumWaitingTerminals = 5
        limits.maximumDeliveredClaimsPerPass = 3
        limits.maximumConcurrentDurableReads = 2
        limits.maximumDueOutcomesPerClient = 12
        return limits
    }

    private static let count = 100

    private static func closes(_ rig: CoreRig) -> Bool {
        rig.actions.contains { if case .client(.close) = $0 { true } else { false } }
    }

    // MARK: Cache

    /// A core with a cache that has responses for all URLs.
    private struct CacheBed {
        var rig = CoreRig(limits: StoredResultsTests.limits)
        var cache = FakeCache()
        let worker: WorkerID

        init() {
            rig.core.shellFeatures.isCaching = true
            rig.core.unixTimeSeconds = 1_000_000
            worker = rig.worker()
            let filler = rig.client(1)
            for number in 0..<StoredResultsTests.count {
                pass { $0.fetch("fill", "\(number)", Self.url(number), by: filler) }
                let jobs = rig.jobs
                pass { [worker] rig in
                    for job in jobs { rig.done(job, by: worker, fields: "cache-control: max-age=100") }
                    rig.send(.acknowledge(UInt64(number + 1)), by: filler)
                }
            }
        }

        static func url(_ number: Int) -> String { "http://o.test/\(number)" }

        /// Runs a pass, and further ones for the replies of the cache.
        mutating func pass(_ body: (inout CoreRig) -> Void = { _ in }) {
            rig.pass(body)
            cache.answer(&rig)
            for fault in rig.core.audit() { Issue.record("\(fault)") }
            #expect(!StoredResultsTests.closes(rig))
        }
    }

    @Test func `a client with window 1 gets very many responses of the cache in order, and few wait in memory`() {
        var bed = CacheBed()
        #expect(bed.cache.count == Self.count)
        let reader = bed.rig.client(2, window: 1)
        bed.pass { rig in for n in 0..<Self.count { rig.fetch("h", "\(n)", CacheBed.url(n), by: reader) } }
        var received: [String] = []
        for sequence in 1...UInt64(Self.count) {
            received += bed.rig.terminals(for: reader)
            #expect(bed.rig.core.records.outcomes.count <= 6)
            bed.pass { $0.send(.acknowledge(sequence), by: reader) }
        }
        #expect(received == (0..<Self.count).map { "h \($0) 200" })
        #expect(bed.rig.core.isIdle && bed.rig.jobs.isEmpty)
    }

    @Test func `a request with room gets the response at once that another's flight waits with`() {
        var bed = CacheBed()
        let slow = bed.rig.client(2, window: 1)
        let other = bed.rig.client(3)
        bed.pass { rig in for n in 0..<20 { rig.fetch("h", "\(n)", CacheBed.url(n), by: slow) } }
        bed.pass { $0.fetch("k", "1", CacheBed.url(19), by: other) }
        #expect(bed.rig.terminals(for: other) == ["k 1 200"])
        // The requests of the slow client leave their flights.
        bed.pass { $0.remove("h", by: slow) }
        bed.pass { $0.send(.acknowledge(1), by: other) }
        bed.pass { $0.core.clientLost(slow, now: $0.now) }
        #expect(bed.rig.core.isIdle)
    }

    @Test func `a request that another session takes over does not wait for the first one's room`() {
        var bed = CacheBed()
        let slow = bed.rig.client(2, window: 1)
        let other = bed.rig.client(3)
        bed.pass { rig in for n in 0..<20 { rig.fetch("h", "\(n)", CacheBed.url(n), by: slow) } }
        bed.pass { $0.fetch("h", "19", CacheBed.url(19), by: other) }
        #expect(bed.rig.terminals(for: other).contains("h 19 200"))
    }

    @Test func `two clients that wait for one response get it when either has room`() {
        var bed = CacheBed()
        let readers = [bed.rig.client(2, window: 1), bed.rig.client(3, window: 1)]
        for (index, reader) in readers.enumerated() {
            bed.pass { rig in
                for n in 0..<10 { rig.fetch("h\(index)", "\(n)", CacheBed.url(n + 10 * index), by: reader) }
            }
        }
        for (index, reader) in readers.enumerated() {
            bed.pass { $0.fetch("s\(index)", "1", CacheBed.url(50), by: reader) }
        }
        var received: [String] = []
        for sequence in 1...11 as ClosedRange<UInt64> {
            bed.pass { $0.send(.acknowledge(sequence), by: readers[1]) }
            received += bed.rig.terminals(for: readers[1])
        }
        #expect(received.contains("s1 1 200"))
    }

    // MARK: Held results

    @Test func `a subscriber with window 1 gets very many held results, none of which expires meanwhile`() {
        var rig = CoreRig(limits: Self.limits)
        let worker = rig.worker()
        let (requester, reader) = (rig.client(1), rig.client(2, window: 1))
        rig.pass { rig in
            for n in 0..<Self.count {
                rig.fetch("h", "\(n)", "http://h\(n)/", by: requester) { $0.options.subscribes = false }
            }
        }
        while !rig.jobs.isEmpty {
            let jobs = rig.jobs
            rig.pass { rig in for job in jobs { rig.done(job, by: worker) } }
        }
        #expect(rig.core.ledger.requests.pending == Self.count)
        rig.pass { $0.send(.subscribe(HandlerPattern("h")!), by: reader) }
        var received = rig.terminals(for: reader)
        rig.wait(milliseconds: 11_000)
        received += rig.terminals(for: reader)
        for sequence in 1...UInt64(Self.count) {
            #expect(
                rig.core.records.clients[1].deliveries.countedOutcomes.count <= 6,
                "five that wait, and the one in the window")
            rig.pass { $0.send(.acknowledge(sequence), by: reader) }
            received += rig.terminals(for: reader)
            #expect(rig.core.audit() == [] && !Self.closes(rig))
        }
        #expect(received == (0..<Self.count).map { "h \($0) 200" })
        #expect(rig.core.ledger.requests.orphaned == 0 && rig.core.isIdle)
    }

    /// Returns a core with the results of 20 requests, and their only subscriber, which has a window of 1.
    private static func claimedResults() -> (CoreRig, ClientID) {
        var rig = CoreRig(limits: Self.limits)
        let worker = rig.worker()
        let (requester, reader) = (rig.client(1), rig.client(2, window: 1))
        rig.pass { rig in
            for n in 0..<20 { rig.fetch("h", "\(n)", "http://h\(n)/", by: requester) { $0.options.subscribes = false } }
        }
        while !rig.jobs.isEmpty {
            let jobs = rig.jobs
            rig.pass { rig in for job in jobs { rig.done(job, by: worker) } }
        }
        rig.pass { $0.send(.subscribe(HandlerPattern("h")!), by: reader) }
        for _ in 0..<5 { rig.pass() }
        return (rig, reader)
    }

    @Test func `held results that wait for room end with their grace once the subscriber has left`() {
        var (rig, reader) = Self.claimedResults()
        #expect(rig.core.ledger.requests.answered == 6 && rig.core.audit() == [])
        rig.pass { $0.core.clientLost(reader, now: $0.now) }
        rig.wait(milliseconds: 20_000)
        #expect(rig.core.ledger.requests.orphaned == 14 && rig.core.isIdle && rig.core.audit() == [])
    }

    @Test func `removed results do not follow the reply, though they were claimed`() {
        var (rig, reader) = Self.claimedResults()
        rig.pass { $0.remove("h", by: reader) }
        #expect(rig.core.ledger.requests.removed == 14)
        rig.pass { $0.send(.acknowledge(1), by: reader) }
        for _ in 0..<5 { rig.pass() }
        #expect(rig.terminals(for: reader) == [] && rig.core.isIdle && rig.core.audit() == [])
    }

    // MARK: Durable results

    /// - Parameter isLate: whether the client subscribes after all results are on disk.
    @Test(arguments: [false, true])
    func `a subscriber with window 1 gets very many durable results, most of which wait on disk`(isLate: Bool) {
        var bed = DurableBed(limits: Self.limits)
        let worker = bed.rig.worker()
        let (requester, reader) = (bed.rig.client(1), bed.rig.client(2, window: 1))
        let pattern = HandlerPattern("h")!
        if !isLate { bed.pass { $0.send(.subscribe(pattern), by: reader) } }
        bed.pass { rig in
            for n in 0..<Self.count {
                rig.fetch("h", "\(n)", "http://h\(n)/", by: requester) {
                    $0.options.isDurable = true
                    $0.options.subscribes = false
                }
            }
        }
        var received = bed.rig.terminals(for: reader)
        func note() {
            received += bed.rig.terminals(for: reader)
            #expect(!Self.closes(bed.rig))
            // Some results are being read when the window is full.
            #expect(bed.rig.core.records.outcomes.count <= 1 + 5 + 2)
        }
        while !bed.rig.jobs.isEmpty {
            bed.finishJobs(worker)
            note()
        }
        if isLate {
            bed.pass { $0.send(.subscribe(pattern), by: reader) }
            note()
        }
        for sequence in 1...UInt64(Self.count) {
            bed.pass { $0.send(.acknowledge(sequence), by: reader) }
            note()
        }
        #expect(received.count == Self.count && Set(received).count == Self.count)
        #expect(bed.disk.rows.isEmpty && bed.rig.core.isIdle)
    }

    @Test func `a failure that its subscribers keep is delivered once, though it had to wait`() {
        var bed = DurableBed(limits: Self.limits)
        let worker = bed.rig.worker()
        let reader = bed.rig.client(1, window: 1) { $0.keepsFailures = true }
        bed.pass { rig in
            for n in 0..<20 {
                rig.fetch("h", "\(n)", "http://h\(n)/", by: reader) {
                    $0.options.isDurable = true
                    $0.options.retries = 0
                }
            }
        }
        var received = bed.rig.terminals(for: reader)
        while !bed.rig.jobs.isEmpty {
            let jobs = bed.rig.jobs
            bed.pass { rig in for job in jobs { rig.failed(job, "unknown-host", by: worker) } }
            received += bed.rig.terminals(for: reader)
        }
        for sequence in 1...20 as ClosedRange<UInt64> {
            bed.pass { $0.send(.acknowledge(sequence), by: reader) }
            received += bed.rig.terminals(for: reader)
        }
        for _ in 0..<5 { bed.pass() }
        received += bed.rig.terminals(for: reader)
        #expect(received.count == 20 && Set(received).count == 20)
        #expect(bed.disk.rows.count == 20, "until a RETRY or a removal")
    }

    // MARK: The component alone

    private static func claim(_ number: Int) -> GenerationalHandle<Interest> {
        GenerationalHandle(record: Handle(slabIndex: number), generation: UInt64(number))
    }

    private static func client(_ number: Int) -> GenerationalHandle<ClientSession> {
        GenerationalHandle(record: Handle(slabIndex: number), generation: UInt64(number))
    }

    @Test func `handlers have turns in the order of their claims, and those that await a read go last`() {
        var results = StoredResults()
        results.claim([Self.claim(1), Self.claim(2)], of: 7)
        results.claim(Self.claim(3), of: 8)
        results.claim([Self.claim(4)], of: 7)
        #expect(results.claimedInterests(of: 7) == [Self.claim(4)], "they replace the earlier ones")
        #expect(results.nextHandlerAndClaim(canRead: true)?.handler == 7)
        results.deferFirstUntilRead()
        #expect(results.nextHandlerAndClaim(canRead: false)?.claim == Self.claim(3))
        results.removeFirstClaim()
        #expect(results.nextHandlerAndClaim(canRead: false)?.claim == nil)
        results.removeClaimsOfFirstHandler()
        #expect(results.nextHandlerAndClaim(canRead: false) == nil && results.checkInvariants() == [])
        #expect(results.nextHandlerAndClaim(canRead: true)?.claim == Self.claim(4))
        results.removeClaimsOfFirstHandler()
        #expect(!results.hasClaims && results.nextHandlerAndClaim(canRead: true) == nil)
    }

    @Test func `a blocked handler gets a turn when one of its clients has room, and only one`() {
        var results = StoredResults()
        results.claim([Self.claim(1)], of: 7)
        results.blockFirstHandler(by: [Self.client(1), Self.client(2)])
        #expect(
            results.nextHandlerAndClaim(canRead: true) == nil
                && results.blockedClients == [Self.client(1), Self.client(2)])
        #expect(
            results.hasWaitingClaims(7, for: [Self.client(2)]) && !results.hasWaitingClaims(7, for: [Self.client(3)]))
        #expect(results.unblockHandler(of: Self.client(2)) == true)
        #expect(results.unblockHandler(of: Self.client(1)) == true)
        #expect(results.unblockHandler(of: Self.client(1)) == false)
        #expect(results.checkInvariants() == [] && results.nextHandlerAndClaim(canRead: true)?.handler == 7)
        results.removeWaiters(Self.client(1), hasEnded: false)
        results.removeWaiters(Self.client(2), hasEnded: true)
        #expect(results.blockedClients == [])
    }

    @Test(arguments: [false, true]) func `a freed handler leaves no claims to the next one in its place`(isReady: Bool)
    {
        var results = StoredResults()
        results.claim([Self.claim(1)], of: 7)
        if !isReady { results.blockFirstHandler(by: [Self.client(1)]) }
        results.removeClaims(ofFreed: 7)
        results.claim(Self.claim(2), of: 7)
        #expect(results.claimedInterests(of: 7) == [Self.claim(2)] && results.checkInvariants() == [])
    }
}
