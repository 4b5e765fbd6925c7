import EarshotWire
import Testing

@testable import EarshotCore

/// A rig with a disk, for tests of durable requests.
struct DurableBed {
    var rig: CoreRig
    var disk = FakeDisk()
    /// Everything said in this pass and the passes that the disk's answers were.
    var said: [Action] = []

    init(limits: CoreLimits = CoreLimits()) {
        rig = CoreRig(limits: limits)
        rig.core.isKeeping = true
        rig.core.calendarSeconds = 1_000_000
    }

    /// A pass, and all that the disk makes of it.
    mutating func pass(_ body: (inout CoreRig) -> Void = { _ in }) {
        said = []
        rig.pass(body)
        said += rig.actions
        disk.take(rig.actions)
        for _ in 0..<4 {
            var disk = disk
            rig.pass { disk.work(&$0.core, now: $0.now) }
            self.disk = disk
            self.disk.take(rig.actions)
            said += rig.actions
        }
        rig.actions = said
        for fault in rig.core.audit() { Issue.record("\(fault)") }
    }

    /// The broker is killed; the next one has the same disk.
    mutating func restart(after seconds: Int64 = 0) {
        let calendar = rig.core.calendarSeconds
        let limits = rig.core.limits
        disk.lose()
        rig = CoreRig(limits: limits)
        rig.core.isKeeping = true
        rig.core.calendarSeconds = calendar + seconds
        let disk = disk
        pass { disk.restore(&$0.core, now: $0.now) }
    }

    mutating func finishJobs(_ worker: WorkerID) {
        let jobs = rig.jobs
        pass { rig in for job in jobs { rig.done(job, by: worker) } }
    }
}
