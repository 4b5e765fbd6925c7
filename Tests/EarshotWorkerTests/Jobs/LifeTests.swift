import EarshotLoop
import EarshotWire
import Foundation
import Testing

@testable import EarshotWorker
@testable import TestPeers

/// Cancellation, progress, loss and return of the broker, and the worker's own end.
@Suite struct LifeTests {
    /// Head of a response whose body the test sends later.
    static let started = LoopbackOrigin.Reply(
        "HTTP/1.1 200 OK\r\nContent-Length: 6000\r\n\r\n", body: [UInt8](repeating: 1, count: 5000))
    static let rest = [UInt8](repeating: 1, count: 1000)

    @Test func `a cancelled job's socket is closed and its file deleted before it is answered`() throws {
        let bed = try Bed(inlineBytes: 100) { _ in Self.started }
        let job = bed.job()
        #expect(try bed.meet())
        try bed.broker.send(.job(job))
        #expect(try bed.run { !bed.spool.isEmpty })
        try bed.broker.send(.cancelAttempt(job.attempt))
        #expect(try bed.run { bed.broker.failure(job.attempt) == "cancelled" })
        #expect(bed.spool.isEmpty)
        #expect(bed.worker.jobKind.pool.runningTransferCount == 0)
        #expect(try bed.run { bed.origin.closedByPeer == 1 })
    }

    @Test func `of a cancelled job it is told what came when the word may have been there`() throws {
        let bed = try Bed { _ in Self.started }
        let job = bed.job()
        #expect(try bed.meet())
        try bed.broker.send(.job(job))
        #expect(try bed.run { bed.worker.jobs.runs[job.attempt]?.receivedBytes == 5000 })
        // No bytes arrive in the pass that reads the CANCEL.
        #expect(try bed.barrier())
        try bed.broker.send(.cancelAttempt(job.attempt))
        #expect(try bed.run { bed.broker.hasEnded(job.attempt) })
        #expect(bed.broker.unwantedBytes(job.attempt) == 0)
        // Bytes of the same pass may have arrived after the CANCEL.
        let late = bed.job()
        try bed.broker.send(.job(late))
        #expect(try bed.run { bed.worker.jobs.runs[late.attempt]?.receivedBytes == 5000 })
        #expect(try bed.barrier())
        bed.origin.send([1, 1])
        #expect(try bed.run { bed.worker.jobs.runs[late.attempt]?.receivedBytes == 5002 })
        bed.worker.handle(.cancelAttempt(late.attempt), body: nil)
        #expect(try bed.run { bed.broker.hasEnded(late.attempt) })
        #expect(bed.broker.unwantedBytes(late.attempt) == 2)
    }

    @Test func `a job that waits for its name can be cancelled`() throws {
        let bed = try Bed(names: .silence) { _ in .ok([]) }
        let job = bed.job("http://host.example/")
        #expect(try bed.meet())
        try bed.broker.send(.job(job))
        try bed.broker.send(.cancelAttempt(job.attempt))
        #expect(try bed.run { bed.broker.failure(job.attempt) == "cancelled" })
    }

    @Test func `cancelling what has ended or never was is not answered`() throws {
        let bed = try Bed { _ in .ok([1]) }
        let job = bed.job()
        #expect(try bed.fetch(job))
        let count = bed.broker.sent.count
        try bed.broker.send(.cancelAttempt(job.attempt))
        try bed.broker.send(.cancelAttempt(bed.job().attempt))
        #expect(try bed.barrier())
        #expect(bed.broker.sent.count == count + 1)
    }

    @Test func `messages that are none are passed over`() throws {
        let bed = try Bed { _ in .ok([1]) }
        #expect(try bed.meet())
        let count = bed.broker.sent.count
        for head in ["", "NONSENSE", "JOB", "JOB x y", "CANCEL", "LIMITS", "LIMITS\nbroker: 1", "\u{0}\n\n\n"] {
            try bed.broker.send(head: Array(head.utf8))
        }
        try bed.broker.send(head: Array("PING".utf8), more: [[1], [2], [3]])
        try bed.broker.send(.error(code: "limit", detail: "\u{1b}[31m"))
        #expect(try bed.barrier())
        #expect(bed.broker.sent.count == count + 1)
        #expect(try bed.fetch(bed.job()))
    }

    @Test func `progress is told when it was asked for, and when bytes came`() throws {
        let bed = try Bed { _ in Self.started }
        var job = bed.job()
        job.progressIntervalMilliseconds = 1
        #expect(try bed.meet())
        try bed.broker.send(.job(job))
        #expect(try bed.run { bed.broker.count(of: .progress(job.attempt, received: 5000, total: 6000)) == 1 })
        bed.origin.send([1, 1])
        #expect(try bed.run { bed.broker.count(of: .progress(job.attempt, received: 5002, total: 6000)) == 1 })
    }

    @Test func `the growth of a large body is told at once`() throws {
        let bed = try Bed(inlineBytes: 1000) { _ in .ok([UInt8](repeating: 7, count: 3_500_000)) }
        var job = bed.job()
        job.progressIntervalMilliseconds = 600_000
        #expect(try bed.fetch(job))
        let reported = bed.broker.sent.compactMap { sent in
            if case .progress(job.attempt, let received, _, _, _) = sent.message { received } else { nil }
        }
        // In one piece or in several: the interval alone would have allowed none.
        #expect(reported.first ?? 0 >= Limits.unreportedGrowthBytes, "\(reported)")
    }

    @Test func `bytes that decode to nothing are no progress`() throws {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\nContent-Encoding: gzip\r\n\r\n"
        let bed = try Bed { _ in LoopbackOrigin.Reply(head) }
        var job = bed.job()
        job.progressIntervalMilliseconds = 1
        #expect(try bed.meet())
        try bed.broker.send(.job(job))
        #expect(try bed.run { bed.origin.requests.count == 1 })
        // From now on a PROGRESS is due with the first bytes.
        let began = bed.loop.now
        while bed.loop.now.since(began) < .milliseconds(2) { #expect(try bed.barrier()) }
        bed.origin.send([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3])
        for _ in 0..<3 { #expect(try bed.barrier()) }
        // A stored block of three bytes that is not the last block.
        bed.origin.send([0, 3, 0, 0xfc, 0xff, 1, 2, 3])
        #expect(try bed.run { bed.broker.count(of: .progress(job.attempt, received: 3, total: nil)) == 1 })
        #expect(bed.broker.count(of: .progress(job.attempt, received: 0, total: nil)) == 0)
    }

    @Test(arguments: [
        (true, 5000, 0), (true, Limits.minimumPartialBodyBytes, 2), (false, Limits.minimumPartialBodyBytes, 0),
    ])
    func `a worker that loses its broker ends its transfers before it says READY to the next one`(
        isResumable: Bool, count: Int, left: Int
    ) throws {
        let validator = isResumable ? "ETag: \"a\"\r\n" : ""
        let bed = try Bed(inlineBytes: 100) { _ in
            LoopbackOrigin.Reply(
                "HTTP/1.1 200 OK\r\nContent-Length: \(count + 1)\r\n\(validator)\r\n",
                body: [UInt8](repeating: 1, count: count))
        }
        #expect(try bed.meet())
        try bed.broker.send(.job(bed.job()))
        try bed.broker.send(.job(bed.job(bed.origin.url("/other"))))
        #expect(try bed.run { bed.worker.jobs.runs.values.count { $0.receivedBytes == count } == 2 })
        #expect(bed.spool.count == 2)
        try bed.endBroker()
        #expect(try bed.run { !bed.worker.jobs.link.isAccepted })
        #expect(bed.worker.jobs.runs.isEmpty)
        try bed.startBroker(instance: 2)
        #expect(try bed.run { bed.broker.readies.count == 1 && bed.origin.closedByPeer == 2 })
        // A broker may let a later attempt continue these files.
        #expect(bed.spool.count == left)
        #expect(bed.worker.jobs.link.queuedTerminalCount == 0)
    }

    @Test func `a terminal is for the broker of its job alone`() throws {
        let bed = try Bed { _ in Self.started }
        #expect(try bed.meet())
        try bed.broker.send(.job(bed.job()))
        #expect(try bed.run { bed.origin.requests.count == 1 })
        try bed.endBroker()
        #expect(try bed.run { !bed.worker.jobs.link.isAccepted })
        try bed.startBroker(instance: 2)
        #expect(try bed.run { bed.broker.readies.count == 1 })
        #expect(try bed.barrier())
        let terminals = bed.broker.sent.count { sent in
            switch sent.message {
            case .completed, .failed: true
            default: false
            }
        }
        #expect(terminals == 0 && bed.worker.jobs.runs.isEmpty && bed.worker.jobs.link.queuedTerminalCount == 0)
    }

    @Test func `the broker's wish for slots is followed and told, and what runs beyond it goes on`() throws {
        let bed = try Bed(slots: 1) { _ in Self.started }
        #expect(try bed.meet())
        #expect(bed.broker.readies.first?.slots == 1)
        var limits = WorkerLimits(broker: bed.broker.instance, spoolPath: bed.folder.appending(path: "spool").path)
        limits.slots = 3
        try bed.broker.send(.limits(limits))
        #expect(try bed.run { bed.broker.count(of: .slots(3)) == 1 })
        let jobs = [bed.job(), bed.job(), bed.job()]
        for job in jobs { try bed.broker.send(.job(job)) }
        #expect(try bed.run { bed.origin.requests.count == 3 })
        limits.slots = 2
        try bed.broker.send(.limits(limits))
        #expect(try bed.run { bed.broker.count(of: .slots(2)) == 1 })
        #expect(bed.worker.jobs.runs.count == 3)
        #expect(try bed.failure(bed.job()) == "worker-lost")
        try bed.broker.send(.cancelAttempt(jobs[0].attempt))
        try bed.broker.send(.cancelAttempt(jobs[1].attempt))
        let next = bed.job()
        try bed.broker.send(.job(next))
        #expect(try bed.run { bed.origin.requests.count == 4 })
        #expect(!bed.broker.hasEnded(next.attempt) && !bed.broker.hasEnded(jobs[2].attempt))
    }

    @Test func `a draining worker finishes what runs, refuses more, and says goodbye`() throws {
        let bed = try Bed { _ in Self.started }
        let job = bed.job()
        #expect(try bed.meet())
        try bed.broker.send(.job(job))
        #expect(try bed.run { bed.origin.requests.count == 1 })
        try bed.broker.send(.drain)
        #expect(try bed.failure(bed.job()) == "worker-lost")
        #expect(!bed.broker.hasEnded(job.attempt))
        bed.origin.send(Self.rest)
        // The worker stops the loop while its last message is on its way.
        #expect(try !bed.run { false })
        #expect(bed.worker.phase == .stopped)
        #expect(try bed.run { bed.broker.count(of: .bye) == 1 })
        #expect(bed.broker.completion(job.attempt)?.completion.bodyByteCount == 6000)
    }

    @Test func `a worker that is stopped deletes what it had begun`() throws {
        let bed = try Bed(inlineBytes: 100) { _ in Self.started }
        #expect(try bed.meet())
        try bed.broker.send(.job(bed.job()))
        #expect(try bed.run { !bed.spool.isEmpty })
        bed.loop.setTimer(after: .zero) { bed.worker.stop() }
        #expect(try !bed.run { false })
        #expect(bed.spool.isEmpty)
        #expect(try bed.run { bed.origin.closedByPeer == 1 && bed.broker.count(of: .bye) == 1 })
    }

    @Test func `an idle worker sleeps until something happens`() throws {
        let bed = try Bed { _ in .ok([1]) }
        #expect(try bed.fetch(bed.job()))
        #expect(try bed.barrier())
        var passes = 0
        let hook = bed.loop.addHook {
            passes += 1
            return .untilEvent
        }
        #expect(try !bed.loop.run(for: .milliseconds(300)) { false })
        bed.loop.removeHook(hook)
        #expect(passes < 5)
    }
}
