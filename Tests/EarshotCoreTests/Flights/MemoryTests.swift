import EarshotWire
import Testing

@testable import EarshotCore

/// The bound of the queue by the memory that the kernel leaves to the process.
struct MemoryTests {
    private static let enough = 1 << 30

    @Test func `while memory is short no request is added, and those that wait go on`() {
        var rig = CoreRig()
        let worker = rig.worker()
        let a = rig.client(1)
        rig.core.availableMemoryChanged(bytes: Self.enough)
        rig.pass { rig in for n in 1...3 { rig.fetch("h", "\(n)", "http://h\(n)/", by: a) } }
        #expect(rig.jobs.count == 3)
        let jobs = rig.jobs
        rig.core.availableMemoryChanged(bytes: rig.core.limits.memoryReserveBytes - 1)
        rig.pass { $0.fetch("h", "4", "http://h4/", by: a) }
        #expect(rig.terminals(for: a) == ["h 4 queue-full"] && rig.jobs.isEmpty)
        rig.pass { rig in for job in jobs { rig.done(job, by: worker) } }
        #expect(rig.terminals(for: a).count == 3)
        rig.core.availableMemoryChanged(bytes: Self.enough)
        rig.pass { $0.fetch("h", "5", "http://h5/", by: a) }
        #expect(rig.jobs.count == 1)
        #expect(rig.core.audit() == [])
    }

    @Test func `the reserve grows with the requests, and without a limit there is none`() {
        var rig = CoreRig()
        let a = rig.client(1)
        let room = rig.core.limits.memoryReserveBytes + 20_000
        rig.core.availableMemoryChanged(bytes: room)
        rig.pass { rig in for n in 1...100 { rig.fetch("h", "\(n)", "http://h\(n)/", by: a) } }
        #expect(rig.core.ledger.requests.pending == 100)
        rig.core.availableMemoryChanged(bytes: room)
        rig.pass { $0.fetch("h", "101", "http://h101/", by: a) }
        #expect(rig.terminals(for: a) == ["h 101 queue-full"])
        rig.core.availableMemoryChanged(bytes: nil)
        rig.pass { $0.fetch("h", "102", "http://h102/", by: a) }
        #expect(rig.core.ledger.requests.pending == 101)
    }
}
