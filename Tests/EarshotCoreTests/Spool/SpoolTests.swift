import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// Size limit of the spool.
@Suite struct SpoolTests {
    private var limits: CoreLimits {
        var limits = CoreLimits()
        limits.maximumSpoolBytes = 1_000
        return limits
    }

    private func done(_ job: Job, _ name: String, length: Int, by worker: WorkerID, _ rig: inout CoreRig) {
        rig.pass {
            var completion = Completion(attempt: job.attempt, status: 200)
            completion.bodyByteCount = length
            completion.sha256 = name
            completion.fileName = name
            $0.core.workerMessageReceived(.completed(completion), body: nil, from: worker, now: $0.now)
        }
    }

    private func grow(_ job: Job, _ bytes: Int, by worker: WorkerID, _ rig: inout CoreRig) {
        let part = BodyPart(fileName: "\(worker.rawValue)-\(job.attempt).part", httpFields: Array("etag: \"a\"".utf8))
        rig.pass {
            $0.core.workerMessageReceived(
                .progress(job.attempt, received: bytes, total: nil, part: part), body: nil, from: worker, now: $0.now)
        }
    }

    private func fetch(_ request: String, by client: ClientID, _ rig: inout CoreRig) throws -> Job {
        rig.pass { $0.fetch("h", request, "http://a.example/\(request)", by: client) }
        return try #require(rig.jobs.first)
    }

    @Test func `a body for which there is no room fails, and room is made by acknowledging`() throws {
        var rig = CoreRig(limits: limits)
        let client = rig.client(1)
        let worker = rig.worker(3)
        done(try fetch("1", by: client, &rig), "one", length: 600, by: worker, &rig)
        #expect(rig.terminals(for: client) == ["h 1 200"])
        done(try fetch("2", by: client, &rig), "two", length: 401, by: worker, &rig)
        #expect(rig.terminals(for: client) == ["h 2 spool-full"])
        #expect(rig.actions.contains(.spool(.releaseFile("two"))))
        done(try fetch("3", by: client, &rig), "one", length: 600, by: worker, &rig)
        #expect(rig.terminals(for: client) == ["h 3 200"], "the same content is there once")
        rig.pass { $0.send(.acknowledge(3), by: client) }
        done(try fetch("4", by: client, &rig), "four", length: 1_000, by: worker, &rig)
        #expect(rig.terminals(for: client) == ["h 4 200"])
        #expect(rig.core.audit() == [])
    }

    @Test(arguments: [false, true])
    func `a file is removed after all other actions, unless it has a reference again`(isNeeded: Bool) throws {
        var rig = CoreRig(limits: limits)
        let client = rig.client(1)
        let worker = rig.worker(3)
        done(try fetch("1", by: client, &rig), "one", length: 600, by: worker, &rig)
        let job = try fetch("2", by: client, &rig)
        rig.send(.acknowledge(1), by: client)
        rig.send(.query(.ping), by: client)
        let actions = rig.core.takeActions()
        #expect(!actions.isEmpty && !actions.contains(.spool(.releaseFile("one"))))
        if isNeeded {
            var completion = Completion(attempt: job.attempt, status: 200)
            (completion.bodyByteCount, completion.sha256, completion.fileName) = (600, "one", "one")
            rig.core.workerMessageReceived(.completed(completion), body: nil, from: worker, now: rig.now)
            #expect(!rig.takeActions().contains(.spool(.releaseFile("one"))))
            rig.send(.acknowledge(2), by: client)
        }
        #expect(rig.core.takeActions() == [.spool(.releaseFile("one"))])
        #expect(rig.core.takeActions().isEmpty)
    }

    @Test func `a body that grows too large is cut off, and small ones go on`() throws {
        var rig = CoreRig(limits: limits)
        let client = rig.client(1)
        let worker = rig.worker(3)
        let (first, second) = (try fetch("1", by: client, &rig), try fetch("2", by: client, &rig))
        grow(first, 500, by: worker, &rig)
        grow(second, 500, by: worker, &rig)
        #expect(rig.terminals(for: client).isEmpty)
        grow(second, .max, by: worker, &rig)
        #expect(rig.terminals(for: client) == ["h 2 spool-full"])
        #expect(rig.cancellations == [second.attempt])
        // The partial file of a failed request is not kept.
        rig.pass {
            $0.core.partFileKept(of: second.attempt, bytes: 501, by: worker)
            $0.failed(second, "cancelled", by: worker)
        }
        #expect(rig.actions.contains(.spool(.removePart(SpoolName.keptPart(of: second.attempt)))))
        let small = try fetch("3", by: client, &rig)
        rig.pass { $0.done(small, by: worker) }
        #expect(rig.terminals(for: client) == ["h 3 200"])
        grow(first, 1_000, by: worker, &rig)
        #expect(rig.terminals(for: client).isEmpty)
        #expect(rig.core.audit() == [])
    }
}
