import EarshotWire
import Testing

@testable import EarshotCore

/// Requests of one flight that end in several passes, because there are many.
struct EndSliceTests {
    private var rig: CoreRig
    private let url = "http://h/"

    init() {
        var limits = CoreLimits()
        limits.maximumFlightRequestEndsPerPass = 2
        rig = CoreRig(limits: limits)
    }

    /// Starts one transfer for requests `0` to `count - 1` of handler `h`.
    private mutating func begin(_ count: Int, by client: ClientID, at worker: WorkerID) -> Job? {
        rig.pass { rig in for number in 0..<count { rig.fetch("h", "\(number)", url, by: client) } }
        return rig.jobs.first
    }

    /// Runs passes until all requests of ended flights have ended.
    ///
    /// - Returns: the terminals of each pass.
    private mutating func finish(for client: ClientID) -> [[String]] {
        var passes: [[String]] = []
        while rig.core.isEndingRequests {
            #expect(rig.core.nextTimer == MonotonicTime(nanoseconds: .min), "the next pass follows at once")
            rig.pass()
            passes.append(rig.terminals(for: client))
            #expect(rig.core.audit() == [])
        }
        return passes
    }

    @Test mutating func `a transfer with many requests ends in slices`() throws {
        let (a, worker) = (rig.client(1), rig.worker())
        let job = try #require(begin(7, by: a, at: worker))
        rig.pass { $0.done(job, by: worker) }
        // The pass of the response ends one slice with the response, and one with the pass.
        #expect(rig.terminals(for: a) == ["h 0 200", "h 1 200", "h 2 200", "h 3 200"])
        #expect(rig.core.audit() == [])
        #expect(!rig.core.isDrained)
        #expect(finish(for: a) == [["h 4 200", "h 5 200"], ["h 6 200"]])
        #expect(rig.core.ledger.requests.answered == 7)
        #expect(rig.core.nextTimer != MonotonicTime(nanoseconds: .min))
    }

    // Its sender may have changed the resource because of a result of the first slice.
    @Test mutating func `a request that arrives meanwhile gets a new fetch`() throws {
        let (a, worker) = (rig.client(1), rig.worker())
        let job = try #require(begin(7, by: a, at: worker))
        rig.pass { $0.done(job, by: worker) }
        rig.pass { rig in rig.fetch("h", "new", url, by: a) }
        let next = try #require(rig.jobs.first)
        #expect(next.attempt != job.attempt)
        #expect(finish(for: a) == [["h 6 200"]])
        rig.pass { $0.done(next, by: worker) }
        #expect(rig.terminals(for: a) == ["h new 200"])
    }

    @Test mutating func `a removal of the rest ends the flight, and releases the body once`() throws {
        let (a, worker) = (rig.client(1), rig.worker())
        let job = try #require(begin(7, by: a, at: worker))
        rig.pass { $0.done(job, by: worker) }
        rig.pass { $0.remove("h", by: a) }
        #expect(rig.terminals(for: a) == [] && rig.releasedBodies == 0, "four terminals are not acknowledged")
        #expect(rig.core.records.flights.count == 0 && !rig.core.isEndingRequests)
        rig.pass { $0.send(.acknowledge(4), by: a) }
        #expect(rig.releasedBodies == 1)
        #expect(rig.core.audit() == [])
    }

    @Test mutating func `a request whose deadline passes meanwhile ends with it`() throws {
        let (a, worker) = (rig.client(1), rig.worker())
        rig.pass { rig in
            for number in 0..<6 { rig.fetch("h", "\(number)", url, by: a) }
            rig.fetch("h", "late", url, by: a) { $0.options.deadlineMilliseconds = 50 }
        }
        let job = try #require(rig.jobs.first)
        rig.pass { $0.done(job, by: worker) }
        rig.wait(milliseconds: 60)
        #expect(rig.terminals(for: a) == ["h late deadline", "h 4 200", "h 5 200"])
        #expect(rig.core.records.flights.count == 0 && rig.core.audit() == [])
    }

    @Test mutating func `requests of redirected flights end in slices, too`() throws {
        let (a, worker) = (rig.client(1), rig.worker())
        rig.pass { rig in
            for number in 0..<4 { rig.fetch("h", "first-\(number)", "http://h/a", by: a) }
            for number in 0..<3 { rig.fetch("h", "other-\(number)", "http://h/b", by: a) }
        }
        let redirected = rig.jobs
        rig.pass { rig in
            for job in redirected { rig.done(job, by: worker, status: 302, fields: "location: /end") }
        }
        let job = try #require(rig.jobs.first)
        rig.pass { $0.done(job, by: worker) }
        let all = rig.terminals(for: a) + finish(for: a).flatMap(\.self)
        #expect(all.count == 7 && all.allSatisfy { $0.hasSuffix(" 200") })
        #expect(rig.core.records.flights.count == 0)
    }

    @Test mutating func `flights that end at the same time take turns`() throws {
        let (a, worker) = (rig.client(1), rig.worker())
        rig.pass { rig in
            for number in 0..<7 { rig.fetch("x", "\(number)", "http://h/x", by: a) }
            for number in 0..<7 { rig.fetch("y", "\(number)", "http://h/y", by: a) }
        }
        let jobs = rig.jobs
        rig.pass { rig in for job in jobs { rig.done(job, by: worker) } }
        let handlers = finish(for: a).map { Set($0.map { $0.prefix(1) }) }
        #expect(handlers == [["y"], ["x"], ["y"], ["x"], ["y"]])
    }
}
