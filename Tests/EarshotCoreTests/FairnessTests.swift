import EarshotWire
import Testing

@testable import EarshotCore

/// Who waits for a full origin is served in turn.
struct FairnessTests {
    @Test(arguments: 2...6)
    func `each of several clients that wait for one origin has its turns`(count: Int) {
        var limits = CoreLimits()
        limits.origins.limit = 1
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
}
