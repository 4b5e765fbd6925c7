import EarshotHTTP
import EarshotWire
import Synchronization
import Testing

@testable import EarshotCore

/// Adoption: flights of a broker take over transfers that workers started for an earlier one.
struct AdoptionTests {
    private let url = "http://a.example/x"

    /// A broker with an instance number. Different numbers are different brokers.
    private func life(_ number: UInt64, limits: CoreLimits = CoreLimits()) -> CoreRig {
        var rig = CoreRig(limits: limits, broker: number)
        rig.core.facilities.identify = { bytes in
            // FNV-1a twice suffices, since it has no collisions in these tests.
            func hash(_ start: UInt64) -> UInt64 { bytes.reduce(start) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 } }
            return FlightIdentity(high: hash(0xcbf2_9ce4_8422_2325), low: hash(1))
        }
        rig.core.beginAdoption(now: rig.now)
        return rig
    }

    /// The HOLDS of a worker about a JOB that an earlier broker assigned for this request.
    private func held(_ change: (inout Fetch) -> Void = { _ in }) throws -> HeldAttempt {
        var earlier = life(9)
        let client = earlier.client(1)
        _ = earlier.worker()
        earlier.pass { $0.fetch("h", "1", url, by: client, change) }
        let job = try #require(earlier.jobs.first)
        var held = HeldAttempt(attempt: job.attempt, url: job.url)
        held.flight = job.flight
        held.maxBytes = job.maxBytes
        return held
    }

    private func bring(
        _ held: HeldAttempt, _ number: UInt64 = 3, slots: Int = 8, to rig: inout CoreRig
    ) -> WorkerID {
        let worker = rig.worker(number, slots: slots, holds: [held.attempt], tellsHolds: true)
        rig.core.workerSaid(.holds(held), body: nil, by: worker, now: rig.now)
        return worker
    }

    private func job(of held: HeldAttempt) -> Job { Job(attempt: held.attempt, url: held.url) }

    private func orphans(_ rig: CoreRig) -> Int { rig.core.adoption.orphans.count }

    @Test func `the text that makes a flight's identity is the same in every process`() throws {
        var rig = CoreRig(broker: 1)
        // Compares the text itself, since an identity is only a 128-bit hash.
        let texts = Mutex<[String]>([])
        rig.core.facilities.identify = { bytes in
            texts.withLock { $0.append(String(decoding: bytes, as: UTF8.self)) }
            return FlightIdentity(high: 0, low: 0)
        }
        let client = rig.client(1)
        _ = rig.worker()
        rig.pass { rig in
            rig.fetch("h", "1", url, by: client)
            rig.fetch("a/b", "2", "https://user@b.example/y?z", by: client) {
                $0.options.method = "HEAD"
                $0.options.redirect = .error
                $0.options.cache = .noStore
                $0.options.key = "own"
                $0.options.usesCookies = true
                $0.options.route.proxy = "none"
                $0.options.route.clientCertificate = "/c"
                $0.httpFields = Array("X-B:  2\naccept: */*\nx-a: 1\nX-b: 3".utf8)
            }
        }
        #expect(
            texts.withLock { $0.sorted() } == [
                """
                7 default18 http://a.example/x0\u{20}
                """,
                """
                8 no-store26 https://user@b.example/y?z83 HEAD error own

                a

                proxy: none
                client-certificate: /c
                accept:*/*
                x-a:1
                x-b:2
                x-b:3
                X-B:  2
                accept: */*
                x-a: 1
                X-b: 3
                pragma: no-cache
                cache-control: no-cache
                """,
            ])
    }

    @Test func `the timer of an earlier back-off does not shorten the present one`() throws {
        let held = try held()
        var rig = life(1)
        let (client, first) = (rig.client(1), rig.worker(1))
        rig.pass { $0.fetch("h", "1", url, by: client) { $0.options.retries = 5 } }
        let job = try #require(rig.jobs.first)
        rig.pass { $0.failed(job, "reset", by: first) }
        let end = try #require(rig.core.flights.pauses.values.first)
        var second: WorkerID?
        rig.pass { second = bring(held, to: &$0) }
        #expect(rig.core.flights.pauses.isEmpty, "it adopts the transfer")
        let known = try #require(second)
        rig.now = end.advanced(byMilliseconds: -1)
        rig.pass { $0.failed(self.job(of: held), "reset", by: known) }
        #expect(try #require(rig.core.flights.pauses.values.first) > end)
        rig.now = end
        rig.pass()
        #expect(rig.jobs.isEmpty)
        rig.now = try #require(rig.core.flights.pauses.values.first)
        rig.pass()
        #expect(rig.jobs.count == 1)
        #expect(rig.core.audit() == [])
    }

    @Test(arguments: [true, false])
    func `a request goes on with what a worker fetches for the same, whoever comes first`(workerFirst: Bool) throws {
        let held = try held()
        var rig = life(1)
        rig.core.awaitWorkers(1, until: rig.now.advanced(byMilliseconds: 1_000))
        let client = rig.client(1)
        var worker: WorkerID?
        rig.pass { if workerFirst { worker = bring(held, to: &$0) } }
        rig.pass { $0.fetch("h", "1", url, by: client) { $0.options.progressMilliseconds = 1 } }
        rig.pass { if !workerFirst { worker = bring(held, to: &$0) } }
        #expect(rig.jobs.isEmpty && rig.cancellations.isEmpty)
        let known = try #require(worker)
        rig.pass {
            $0.core.workerSaid(
                .progress(held.attempt, received: 5, total: 9), body: nil, by: known, now: $0.now)
        }
        let told = rig.replies(to: client)
        #expect(told.contains { if case .progress(let progress) = $0 { progress.received == 5 } else { false } })
        rig.pass { $0.done(job(of: held), by: known) }
        #expect(rig.terminals(for: client) == ["h 1 200"])
        #expect(rig.core.ledger.flights.adopted == 1 && rig.core.ledger.flights.assigned == 0)
        #expect(rig.core.audit() == [])
    }

    @Test func `an answer that came before anybody asked waits for who does`() throws {
        let held = try held()
        var rig = life(1)
        let client = rig.client(1)
        let worker = bring(held, to: &rig)
        rig.pass { $0.done(job(of: held), by: worker) }
        #expect(rig.core.audit() == [] && rig.releasedBodies == 0)
        rig.pass { rig in
            rig.fetch("h", "1", url, by: client)
            rig.fetch("h", "2", url, by: client)
        }
        #expect(rig.jobs.isEmpty && rig.terminals(for: client) == ["h 1 200", "h 2 200"])
        #expect(rig.core.audit() == [])
    }

    @Test func `a failure or an error page that nobody heard of is forgotten`() throws {
        let held = try held()
        for isPage in [true, false] {
            var rig = life(1)
            let client = rig.client(1)
            let worker = bring(held, to: &rig)
            rig.pass {
                if isPage {
                    $0.done(job(of: held), by: worker, status: 404)
                } else {
                    $0.failed(job(of: held), "reset", by: worker)
                }
            }
            #expect(orphans(rig) == 0 && rig.releasedBodies == (isPage ? 1 : 0))
            rig.pass { $0.fetch("h", "1", url, by: client) }
            #expect(rig.jobs.count == 1)
            #expect(rig.core.audit() == [])
        }
    }

    @Test func `what nobody asks for in time is stopped or dropped, and the spool swept`() throws {
        let held = try held()
        var other = try self.held { $0.url = "http://a.example/other" }
        other.attempt.flight = 77
        var rig = life(1)
        let first = bring(held, 3, to: &rig)
        let second = bring(other, 4, to: &rig)
        rig.pass { $0.done(job(of: other), by: second) }
        rig.wait(milliseconds: rig.core.limits.adoptionMilliseconds - 1)
        #expect(rig.cancellations == [] && orphans(rig) == 2)
        rig.wait(milliseconds: 1)
        #expect(rig.cancellations == [held.attempt] && rig.releasedBodies == 1)
        #expect(rig.actions.contains(.spool(.sweep)))
        rig.pass { $0.failed(job(of: held), "cancelled", by: first) }
        #expect(rig.core.isIdle && rig.core.audit() == [])
        // From here on the adoption is over.
        rig.pass { _ = bring(held, 5, to: &$0) }
        #expect(rig.cancellations.contains(held.attempt))
    }

    @Test func `an orphan takes its slot and its origin's place`() throws {
        let held = try held()
        var limits = CoreLimits()
        limits.origins.limit = 1
        var rig = life(1, limits: limits)
        let client = rig.client(1)
        let worker = bring(held, slots: 2, to: &rig)
        rig.pass { rig in
            rig.fetch("h", "1", "http://a.example/other", by: client)
            rig.fetch("h", "2", "http://b.example/1", by: client)
            rig.fetch("h", "3", "http://c.example/1", by: client)
        }
        #expect(rig.jobs.map(\.url) == ["http://b.example/1"])
        #expect(rig.core.audit() == [])
        rig.pass { $0.failed(job(of: held), "reset", by: worker) }
        #expect(rig.jobs.count == 1)
        #expect(rig.core.audit() == [])
    }

    @Test func `who may not share a flight does not adopt its attempt`() throws {
        let held = try held { $0.httpFields = Array("authorization: Bearer a".utf8) }
        var limits = CoreLimits()
        limits.origins.limit = 20
        var rig = life(1, limits: limits)
        let client = rig.client(1)
        _ = bring(held, to: &rig)
        rig.pass { rig in
            rig.fetch("h", "1", url, by: client)
            rig.fetch("h", "2", url, by: client) { $0.httpFields = Array("authorization: Bearer b".utf8) }
            rig.fetch("h", "3", url, by: client) { $0.options.method = "HEAD" }
            rig.fetch("h", "4", url, by: client) { $0.options.redirect = .manual }
            rig.fetch("h", "5", url, by: client) { $0.options.key = "own" }
        }
        #expect(rig.jobs.count == 5 && orphans(rig) == 1)
        rig.pass { $0.fetch("h", "6", url, by: client) { $0.httpFields = Array("authorization: Bearer a".utf8) } }
        #expect(rig.jobs.isEmpty && orphans(rig) == 0)
    }

    @Test func `what is for one request alone, or goes on with kept bytes, has no identity`() throws {
        #expect(try held().flight != nil)
        #expect(try held { $0.options.coalesces = false }.flight == nil)
        let post = try held {
            $0.options.coalesces = false
            $0.options.method = "POST"
        }
        #expect(post.flight == nil)
        var rig = life(1)
        rig.pass { _ = bring(post, to: &$0) }
        #expect(rig.cancellations == [post.attempt] && orphans(rig) == 0)
    }

    @Test func `an attempt of what runs already is cancelled, and so is a second one of an orphan`() throws {
        let held = try held()
        var late = held
        late.attempt.flight = 50
        var rig = life(1)
        let client = rig.client(1)
        _ = rig.worker(7)
        rig.pass { $0.fetch("h", "1", url, by: client) }
        #expect(rig.jobs.count == 1)
        rig.pass { _ = bring(held, to: &$0) }
        #expect(rig.cancellations == [held.attempt])
        var other = life(2)
        other.pass { _ = bring(held, 3, to: &$0) }
        other.pass { _ = bring(late, 4, to: &$0) }
        #expect(other.cancellations == [late.attempt])
        let client2 = other.client(2)
        other.pass { $0.fetch("h", "1", url, by: client2) }
        #expect(other.jobs.isEmpty)
        late.attempt.flight = 51
        other.pass { _ = bring(late, 5, to: &$0) }
        #expect(other.cancellations == [late.attempt], "what was adopted runs as well")
        #expect(rig.core.audit() == [] && other.core.audit() == [])
    }

    @Test func `an adopted attempt is raised, cancelled and lost like any other`() throws {
        let held = try held { $0.options.maxBytes = 10 }
        var rig = life(1)
        let client = rig.client(1)
        let worker = bring(held, to: &rig)
        rig.pass { $0.fetch("h", "1", url, by: client) { $0.options.maxBytes = 20 } }
        #expect(rig.actions.contains(.worker(.send(worker, .raise(held.attempt, maxBytes: 20)))))
        var removed = rig
        removed.pass { $0.remove("h", by: client) }
        #expect(removed.cancellations == [held.attempt])
        removed.pass { $0.failed(job(of: held), "cancelled", by: worker) }
        #expect(removed.core.ledger.flights.stale == 0 && removed.core.audit() == [])
        rig.pass { rig in
            _ = rig.worker(8)
            rig.core.workerLost(worker, now: rig.now)
        }
        #expect(rig.jobs.map(\.attempt.attempt) == [2], "the adopted one was its first")
        #expect(rig.core.audit() == [])
    }

    @Test func `the generation stays over brokers' lives, and what is left goes to the next attempt`() throws {
        var held = try held()
        held.receivedBytes = 10
        held.part = BodyPart(file: "3-\(held.attempt).part", httpFields: Array("etag: \"a\"\ncontent-length: 90".utf8))
        var rig = life(1)
        let client = rig.client(1)
        let worker = bring(held, to: &rig)
        rig.pass { $0.fetch("h", "1", url, by: client) { $0.options.streams = true } }
        let told = rig.replies(to: client).compactMap { if case .progress(let progress) = $0 { progress } else { nil } }
        #expect(told.map(\.generation) == [Generation(held.attempt)] && told.first?.received == 10)
        #expect(rig.core.part(of: held.attempt, by: worker) == "3-\(held.attempt).part")
        rig.pass { rig in
            _ = rig.worker(8)
            rig.core.partKept(of: held.attempt, bytes: 40, by: worker)
            rig.core.workerLost(worker, now: rig.now)
        }
        #expect(rig.jobs.first?.resume?.bytes == 40)
        #expect(rig.jobs.first?.flight == nil)
        #expect(rig.core.audit() == [])
    }

    @Test func `a worker that dies takes its orphans along`() throws {
        let held = try held()
        var rig = life(1)
        let client = rig.client(1)
        let worker = bring(held, to: &rig)
        rig.pass { $0.core.workerLost(worker, now: $0.now) }
        #expect(orphans(rig) == 0 && rig.core.audit() == [])
        rig.pass { rig in
            _ = rig.worker(8)
            rig.fetch("h", "1", url, by: client)
        }
        #expect(rig.jobs.count == 1)
    }

    @Test func `a broker that drains takes nothing over and cancels nothing`() throws {
        let held = try held()
        var rig = life(1)
        rig.pass { rig in
            rig.core.drain()
            _ = bring(held, to: &rig)
        }
        rig.wait(milliseconds: rig.core.limits.adoptionMilliseconds)
        #expect(rig.cancellations == [] && orphans(rig) == 0 && rig.core.runningAttempts == 0)
    }

    @Test func `answers that wait for nobody in memory are bounded`() throws {
        var limits = CoreLimits()
        limits.orphanBytes = 2
        let held = try held()
        var rig = life(1, limits: limits)
        let worker = bring(held, to: &rig)
        rig.pass { $0.done(job(of: held), by: worker, length: 3) }
        #expect(rig.releasedBodies == 1 && orphans(rig) == 0 && rig.core.audit() == [])
    }

    @Test func `an attempt that READY did not name, or whose URL is none, is not taken over`() throws {
        let held = try held()
        var broken = held
        broken.url = "nonsense"
        var rig = life(1)
        rig.pass { _ = bring(broken, to: &$0) }
        #expect(rig.cancellations == [held.attempt] && orphans(rig) == 0)
        rig.pass { rig in
            let worker = rig.worker(9, tellsHolds: true)
            rig.core.workerSaid(.holds(held), body: nil, by: worker, now: rig.now)
        }
        #expect(rig.cancellations == [] && orphans(rig) == 0 && rig.core.audit() == [])
    }

    // MARK: Responses older than a request

    /// Reports an attempt that an earlier broker started 10 s ago and that ended 3 s later.
    private func bringEnded(
        _ held: HeldAttempt, to rig: inout CoreRig, fields: String = "", endsLater: Bool = false
    ) -> WorkerID {
        var held = held
        held.elapsedMilliseconds = 10_000
        let worker = bring(held, to: &rig)
        var completion = Completion(attempt: held.attempt, status: 200)
        completion.length = 3
        completion.sha256 = String(repeating: "ab", count: 32)
        completion.elapsedMilliseconds = endsLater ? 10_001 : 3_000
        completion.httpFields = Array(fields.utf8)
        if endsLater { rig.now = rig.now.advanced(byMilliseconds: 1) }
        rig.core.workerSaid(.done(completion), body: rig.nextBody, by: worker, now: rig.now)
        return worker
    }

    @Test func `a duration longer than any clock runs means that the response ended now`() throws {
        var held = try held()
        held.elapsedMilliseconds = 10_000
        var rig = life(1)
        let client = rig.client(1)
        rig.pass { $0.fetch("h", "1", url, by: client) }
        let worker = bring(held, to: &rig)
        var completion = Completion(attempt: held.attempt, status: 200)
        completion.length = 3
        completion.sha256 = String(repeating: "ab", count: 32)
        completion.elapsedMilliseconds = 9_223_372_036_855
        rig.pass { $0.core.workerSaid(.done(completion), body: $0.nextBody, by: worker, now: $0.now) }
        #expect(rig.terminals(for: client) == ["h 1 200"])
    }

    @Test(arguments: [CacheMode.default, .noStore, .reload, .noCache], [true, false])
    func `an answer that ended before a request was made does not serve it`(mode: CacheMode, isFirst: Bool) throws {
        let held = try held { $0.options.cache = mode }
        var rig = life(1)
        rig.core.awaitWorkers(1, until: rig.now.advanced(byMilliseconds: 1_000))
        let client = rig.client(1)
        if isFirst { rig.pass { _ = bringEnded(held, to: &$0) } }
        rig.pass { rig in
            rig.fetch("h", "1", url, by: client) {
                $0.options.cache = mode
                // The attempt ended 7 s ago.
                $0.options.askedMilliseconds = 6_999
            }
            if !isFirst { _ = bringEnded(held, to: &rig) }
        }
        #expect(rig.terminals(for: client) == [])
        #expect(rig.jobs.count == 1 && rig.releasedBodies == 1 && orphans(rig) == 0)
        #expect(rig.core.audit() == [])
    }

    @Test(arguments: [CacheMode.default, .noStore], [true, false])
    func `an answer that ended after a request was first made serves it`(mode: CacheMode, isFirst: Bool) throws {
        let held = try held { $0.options.cache = mode }
        var rig = life(1)
        rig.core.awaitWorkers(1, until: rig.now.advanced(byMilliseconds: 1_000))
        let client = rig.client(1)
        if isFirst { rig.pass { _ = bringEnded(held, to: &$0) } }
        rig.pass { rig in
            rig.fetch("h", "1", url, by: client) {
                $0.options.cache = mode
                $0.options.askedMilliseconds = 7_000
            }
            if !isFirst { _ = bringEnded(held, to: &rig) }
        }
        #expect(rig.jobs.isEmpty && rig.terminals(for: client) == ["h 1 200"])
        #expect(rig.core.audit() == [])
    }

    @Test func `a transfer that runs when its worker tells of it is shared, whenever the request was made`() throws {
        let held = try held { $0.options.cache = .noStore }
        var rig = life(1)
        rig.core.awaitWorkers(1, until: rig.now.advanced(byMilliseconds: 1_000))
        let client = rig.client(1)
        rig.pass { rig in
            rig.fetch("h", "1", url, by: client) { $0.options.cache = .noStore }
            _ = bringEnded(held, to: &rig, endsLater: true)
        }
        #expect(rig.jobs.isEmpty && rig.terminals(for: client) == ["h 1 200"])
        #expect(rig.core.audit() == [])
    }

    @Test func `a cache takes an answer that is too old for a request, and is asked for it`() throws {
        let held = try held()
        var rig = life(1)
        rig.core.facilities.isCaching = true
        rig.core.calendarSeconds = 1_000_000
        let client = rig.client(1)
        let fields = "cache-control: max-age=60\ndate: Mon, 12 Jan 1970 13:46:33 GMT\n"
        rig.pass { _ = bringEnded(held, to: &$0, fields: fields) }
        rig.pass { $0.fetch("h", "1", url, by: client) }
        let lookUp = try #require(
            rig.actions.compactMap { if case .cache(.lookUp(let name, _, _)) = $0 { name } else { nil } }.first)
        rig.pass { $0.core.cacheAnswered(lookUp, [], now: $0.now) }
        let stored = try #require(
            rig.actions.compactMap { if case .cache(.store(_, let variant, _, _, _)) = $0 { variant } else { nil } }
                .first)
        #expect(stored.response.responseTime == 1_000_000 - 7)
        #expect(rig.jobs.isEmpty)
        let again = try #require(
            rig.actions.compactMap { if case .cache(.lookUp(let name, _, _)) = $0 { name } else { nil } }.first)
        rig.pass { $0.core.cacheAnswered(again, [stored], now: $0.now) }
        #expect(rig.actions.contains { if case .cache(.read) = $0 { true } else { false } })
        rig.pass { $0.core.cacheRead(again, .inline($0.nextBody), now: $0.now) }
        #expect(rig.terminals(for: client) == ["h 1 200"])
        #expect(rig.core.audit() == [])
    }

    // MARK: Late workers

    @Test func `a worker gets nothing before it has told what it holds, until the adoption ends`() throws {
        let held = try held()
        var rig = life(1)
        let client = rig.client(1)
        let late = rig.worker(3, holds: [held.attempt], tellsHolds: true)
        rig.pass { $0.fetch("h", "1", url, by: client) }
        #expect(rig.jobs.isEmpty)
        rig.pass { $0.core.workerSaid(.holds(held), body: nil, by: late, now: $0.now) }
        #expect(rig.jobs.isEmpty && rig.cancellations.isEmpty && rig.core.ledger.flights.adopted == 1)
        #expect(rig.core.audit() == [])

        var other = life(2)
        let asker = other.client(1)
        _ = other.worker(3, holds: [held.attempt], tellsHolds: true)
        other.pass { $0.fetch("h", "1", url, by: asker) }
        other.wait(milliseconds: other.core.limits.adoptionMilliseconds - 1)
        #expect(other.jobs.isEmpty)
        other.wait(milliseconds: 1)
        #expect(other.cancellations == [held.attempt] && other.jobs.count == 1)
        #expect(other.core.audit() == [])
    }
}
