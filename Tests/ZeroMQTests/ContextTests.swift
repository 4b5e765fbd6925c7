import Foundation
import Glibc
import Testing
import ZeroMQ

@Suite struct ContextTests {
    @Test(.enabled(if: sched_getscheduler(0) == SCHED_OTHER, "a process has the policy that somebody chose for it"))
    func `I/O threads do not take the processor from the thread that wakes them`() throws {
        let context = try Context.make()
        let endpoint = Endpoint()
        let router = try context.socket(.router)
        try router.bind(endpoint.name)
        let dealer = try context.socket(.dealer)
        try dealer.connect(endpoint.name)
        try dealer.awaitSend([0])
        // A thread that moved a message has the name and the policy that it gives itself at first.
        _ = try router.awaitReceive()
        let policies = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/task").compactMap { task in
            let name = FileManager.default.contents(atPath: "/proc/self/task/\(task)/comm") ?? Data()
            return name.starts(with: Data("ZMQbg/IO".utf8)) ? sched_getscheduler(pid_t(task) ?? -1) : nil
        }
        let batch: Int32 = 3
        #expect(policies.contains(batch))
        // Another test's thread may have ended meanwhile.
        #expect(policies.allSatisfy { $0 == batch || $0 == -1 })
        #expect(sched_getscheduler(0) == SCHED_OTHER)
    }
}
