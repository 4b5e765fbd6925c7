import EarshotWire
import Testing

@testable import EarshotCore

/// Turns of requests that wait for a full origin.
struct FairnessTests {
    @Test(arguments: 2...6)
    func `each of several clients that wait for one origin has its turns`(count: Int) {
        var limits = CoreLimits()
        limits.originRules.defaultMaximumTransfers = 1
        var rig = CoreRig(limits: limits)
        let worker = rig.worker(slots: 64)
        let clients = (1...UInt64(count)).map { rig.client($0) }
        rig.pass { rig in
            for (number, client) in clients.enumerated() {
                for n in 1...20 { rig.fetch("h\(number)", "\(n)", "http://one/\(number)/\(n)", by: client) }
            }
        }
        var turns: [Substring: Int] = [:]
        for _ in 0..<(5 * count) {
            let job = rig.jobs[0]
            turns[job.url.dropFirst("http://one/".count).prefix(1), default: 0] += 1
            rig.pass { $0.done(job, by: worker) }
        }
        #expect(turns.values.allSatisfy { (4...6).contains($0) } && turns.count == count, "\(turns)")
    }

    /// Serves the visible rows of a scrolling list first. The oldest request is the likeliest to be replaced.
    @Test func `what replaced goes before what waited longer, the newest first, but for one turn in four`() {
        var limits = CoreLimits()
        limits.originRules.defaultMaximumTransfers = 1
        var rig = CoreRig(limits: limits)
        let worker = rig.worker(slots: 64)
        let client = rig.client(1)
        rig.pass { rig in for n in 0..<9 { rig.fetch("app/list", "\(n)", "http://one/list/\(n)", by: client) } }
        var job = rig.jobs[0]
        rig.pass { rig in
            for n in 0..<9 {
                rig.fetch("app/row/\(n)", "1", "http://one/row/\(n)", by: client) { $0.options.replacesHandler = true }
            }
        }
        var order: [String] = []
        while order.count < 14 {
            rig.pass { $0.done(job, by: worker) }
            job = rig.jobs[0]
            order.append(String(job.url.dropFirst("http://one/".count)))
        }
        let expected = [
            "row/8", "row/7", "row/6", "list/1", "row/5", "row/4", "row/3", "list/2", "row/2", "row/1", "row/0",
            "list/3",
            "list/4", "list/5",
        ]
        #expect(order == expected)
        for fault in rig.core.audit() { Issue.record("\(fault)") }
    }

    @Test func `a row that was replaced again and again is served once, and leaves nothing behind`() {
        var limits = CoreLimits()
        limits.originRules.defaultMaximumTransfers = 1
        var rig = CoreRig(limits: limits)
        let worker = rig.worker(slots: 64)
        let client = rig.client(1)
        rig.pass { $0.fetch("app/first", "1", "http://one/first", by: client) }
        var job = rig.jobs[0]
        for n in 0..<20 {
            rig.pass { rig in
                rig.fetch("app/row/\(n % 3)", "\(n)", "http://one/row/\(n)", by: client) {
                    $0.options.replacesHandler = true
                }
            }
        }
        var order: [String] = []
        for _ in 0..<3 {
            rig.pass { $0.done(job, by: worker) }
            job = rig.jobs[0]
            order.append(job.url)
        }
        #expect(order == ["http://one/row/19", "http://one/row/18", "http://one/row/17"])
        rig.pass { $0.done(job, by: worker) }
        #expect(rig.jobs.isEmpty)
        rig.pass { $0.core.clientLost(client, now: $0.now) }
        #expect(rig.core.isIdle)
    }
}
