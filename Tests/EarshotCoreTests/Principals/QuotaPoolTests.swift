import EarshotWire
import Testing

@testable import EarshotCore

/// The quota of transfers and the pools of own workers.
struct QuotaPoolTests {
    @Test(arguments: [1, 3])
    func `requests that wait for the quota of their user fail when the pool of their scheme closes`(_ waiting: Int) {
        var limits = CoreLimits()
        limits.maximumTransfersPerUser = 1
        var rig = CoreRig(limits: limits)
        let client = ClientID(rawValue: 1)
        rig.connect(client, user: PrincipalName("uid:1"))
        rig.send(.hello(Hello()), by: client)
        _ = rig.worker(1)
        let own = rig.worker(2, schemes: ["x"])
        rig.pass { $0.fetch("h", "web", "http://o/", by: client) }
        #expect(rig.jobs.map(\.url) == ["http://o/"])
        rig.pass { rig in for request in 1...waiting { rig.fetch("h", "\(request)", "x:\(request)", by: client) } }
        #expect(rig.jobs.isEmpty && rig.core.records.quotaUse.currentUse(by: 1).transfers == 1)
        rig.pass { $0.core.workerLost(own, now: $0.now) }
        #expect(rig.terminals(for: client).isEmpty)
        rig.wait(milliseconds: limits.emptyPoolGraceMilliseconds)
        // The transfer of http still runs, and the user has no room for another one.
        #expect(rig.terminals(for: client) == (1...waiting).map { "h \($0) unsupported-scheme" })
        #expect(rig.core.audit() == [])
    }
}
