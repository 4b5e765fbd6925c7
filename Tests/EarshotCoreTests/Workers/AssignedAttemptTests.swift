import EarshotWire
import Testing

@testable import EarshotCore

/// Assignments of attempts in the log.
struct AssignedAttemptTests {
    private func assigned(_ rig: CoreRig) -> [AttemptAssignment] {
        rig.actions.compactMap { if case .log(.attemptAssigned(let assigned)) = $0 { assigned } else { nil } }
    }

    @Test func `each assignment is logged with its first request, just before its JOB`() throws {
        var rig = CoreRig()
        rig.core.setLogsAttempts(true)
        let (client, worker) = (rig.client(1), rig.worker())
        rig.pass { rig in
            rig.fetch("h", "1", "http://a/", by: client)
            rig.fetch("h", "2", "http://a/", by: client)
        }
        let job = try #require(rig.jobs.first)
        let expected = AttemptAssignment(
            attempt: job.attempt, worker: worker, url: "http://a/", handler: HandlerID("h")!, request: RequestID("1")!)
        #expect(assigned(rig) == [expected])
        let line = try #require(rig.actions.firstIndex(of: .log(.attemptAssigned(expected))))
        #expect(rig.actions.firstIndex(of: .worker(.send(worker, .job(job)))) == line + 1)
    }

    @Test func `no assignment is logged unless attempts are, which may change`() {
        var rig = CoreRig()
        let (client, _) = (rig.client(1), rig.worker())
        for (request, isLogging) in [("1", false), ("2", true), ("3", false)] {
            rig.core.setLogsAttempts(isLogging)
            rig.pass { $0.fetch("h", request, "http://\(request)/", by: client) }
            #expect(rig.jobs.count == 1 && assigned(rig).count == (isLogging ? 1 : 0))
        }
    }
}
