import EarshotWire
import Testing

@testable import EarshotCore

/// A rig with a fake disk, for tests of durable requests.
struct DurableBed {
    var rig: CoreRig
    var disk = FakeDisk()
    /// Actions of the last pass, and of the passes that processed the disk's replies.
    var sent: [Action] = []

    init(limits: CoreLimits = CoreLimits()) {
        rig = CoreRig(limits: limits)
        rig.core.shellFeatures.isStoringDurableRequests = true
        rig.core.unixTimeSeconds = 1_000_000
    }

    /// Runs a pass, and further passes for the disk's replies.
    mutating func pass(_ body: (inout CoreRig) -> Void = { _ in }) {
        sent = []
        rig.pass(body)
        sent += rig.actions
        disk.take(rig.actions)
        for _ in 0..<4 {
            var disk = disk
            rig.pass { disk.work(&$0.core, now: $0.now) }
            self.disk = disk
            self.disk.take(rig.actions)
            sent += rig.actions
        }
        rig.actions = sent
        for fault in rig.core.audit() { Issue.record("\(fault)") }
    }

    /// Kills the broker and starts another one with the same disk.
    mutating func restart(after seconds: Int64 = 0) {
        let calendar = rig.core.unixTimeSeconds
        let limits = rig.core.limits
        disk.lose()
        rig = CoreRig(limits: limits)
        rig.core.shellFeatures.isStoringDurableRequests = true
        rig.core.unixTimeSeconds = calendar + seconds
        pass { $0.core.beginDurableLoad() }
    }

    mutating func finishJobs(_ worker: WorkerID) {
        let jobs = rig.jobs
        pass { rig in for job in jobs { rig.done(job, by: worker) } }
    }
}
