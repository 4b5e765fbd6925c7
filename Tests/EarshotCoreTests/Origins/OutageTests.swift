import EarshotWire
import Testing

@testable import EarshotCore

/// Responses with 503 and without `Retry-After`: the fault of their URL, or of their origin.
struct OutageTests {
    private var rig = CoreRig()

    @Test mutating func `URLs that answer 503 do not pause their neighbours, and are retried alone`() {
        let worker = rig.worker(slots: 64)
        let a = rig.client(1)
        rig.pass { rig in for n in 1...300 { rig.fetch("h", "\(n)", "http://list/\(n)", by: a) } }
        var ends: [String] = []
        var waited = 0
        while ends.count < 300, waited < 10_000 {
            let jobs = rig.jobs
            guard !jobs.isEmpty else {
                rig.wait(milliseconds: 50)
                waited += 50
                ends += rig.terminals(for: a)
                continue
            }
            // One after the other stands in the list, so ten answers in a row are refusals.
            rig.pass { rig in
                for job in jobs {
                    let number = Int(job.url.split(separator: "/").last ?? "") ?? 0
                    rig.done(job, by: worker, status: (291...300).contains(number) ? 503 : 200)
                }
            }
            ends += rig.terminals(for: a)
            rig.send(.acknowledge(UInt64(ends.count)), by: a)
        }
        #expect(ends.count { $0.hasSuffix(" 200") } == 290 && ends.count { $0.hasSuffix(" http-status") } == 10)
        #expect(rig.core.ledger.flights.originCoolDowns == 0)
        // Two retries, after at most 0.25 and 0.5 s.
        #expect(waited <= 800, "\(waited) ms")
        #expect(rig.core.audit() == [])
    }

    @Test(arguments: 1...20)
    func `no request fails in an outage of three seconds, and nothing but probes starts meanwhile`(seed: Int) {
        var rig = CoreRig()
        let worker = rig.worker(slots: 64)
        let a = rig.client(1)
        rig.pass { rig in for n in 1...200 { rig.fetch("h", "\(n)", "http://down/\(n)", by: a) } }
        var ends: [String] = []
        var refused = 0
        var probes: [String] = []
        for _ in 0..<2_000 where ends.count < 200 {
            let isDown = rig.now.nanoseconds < 3_000_000_000 + Int64(seed) * 7_000_000
            let jobs = rig.jobs
            if isDown, rig.core.ledger.flights.originCoolDowns > 0 {
                #expect(jobs.count <= 1, "the origin cools down")
                probes += jobs.map(\.url)
            }
            rig.pass { rig in for job in jobs { rig.done(job, by: worker, status: isDown ? 503 : 200) } }
            if isDown { refused += jobs.count }
            ends += rig.terminals(for: a)
            rig.send(.acknowledge(UInt64(ends.count)), by: a)
            if rig.jobs.isEmpty {
                rig.wait(milliseconds: 20)
                ends += rig.terminals(for: a)
            }
        }
        #expect(ends.count == 200 && ends.allSatisfy { $0.hasSuffix(" 200") })
        #expect(refused <= 16 + 5 + 4, "\(refused) transfers before and during the cool-down")
        #expect(Set(probes).count == probes.count, "each probe is another request")
        #expect(rig.core.audit() == [])
    }

    @Test(arguments: [429, 503])
    mutating func `a probe that is refused waits behind the others`(status: Int) {
        let worker = rig.worker(slots: 64)
        let a = rig.client(1)
        rig.pass { rig in for n in 1...8 { rig.fetch("h", "\(n)", "http://busy/\(n)", by: a) } }
        for job in rig.jobs { rig.pass { $0.done(job, by: worker, status: status, fields: "retry-after: 1") } }
        var probes: [String] = []
        for _ in 0..<6 {
            while rig.jobs.isEmpty { rig.wait(milliseconds: 100) }
            let probe = rig.jobs[0]
            probes.append(probe.url)
            rig.pass { $0.done(probe, by: worker, status: status, fields: "retry-after: 1") }
        }
        #expect(Set(probes).count == 6)
    }

    @Test mutating func `another answer ends a row of 503, and the row begins anew`() {
        let worker = rig.worker(slots: 64)
        let a = rig.client(1)
        for round in 1...3 {
            for n in 1...15 {
                rig.pass { $0.fetch("h", "\(round)-\(n)", "http://h/\(round)-\(n)", by: a) { $0.options.retries = 0 } }
                let job = rig.jobs[0]
                rig.pass { $0.done(job, by: worker, status: 503) }
            }
            rig.pass { $0.fetch("h", "good-\(round)", "http://h/good", by: a) }
            let job = rig.jobs[0]
            rig.pass { $0.done(job, by: worker) }
        }
        #expect(rig.core.ledger.flights.originCoolDowns == 0)
        #expect(rig.core.audit() == [])
    }
}
