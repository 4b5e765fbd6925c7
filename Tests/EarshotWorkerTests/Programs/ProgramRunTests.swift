import EarshotHTTP
import EarshotLoop
import EarshotWire
import Foundation
import Logging
import Testing

@testable import EarshotWorker

/// Jobs of programs, without the worker around them.
@Suite final class ProgramRunTests {
    let folder = FileManager.default.temporaryDirectory.appending(path: "earshot-\(UUID().uuidString.prefix(8))")
    let loop: EventLoop

    init() throws {
        loop = try EventLoop()
        try FileManager.default.createDirectory(
            at: folder, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
    }

    deinit { try? FileManager.default.removeItem(at: folder) }

    private func run(_ script: String) throws -> ProgramRun {
        let options = ProgramOptions(
            workPath: "", schemes: ["x"], slots: 1, program: "/bin/sh", arguments: ["sh", "-c", script])
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let limits = WorkerLimits(broker: BrokerInstance(rawValue: 1), spoolPath: folder.path)
        let terms = Terms(limits, spool: try SpoolFolder(folder.path), logger: logger)
        let link = BrokerLink(.unixSocket(folder.appending(path: "work").path), loop: loop, logger: logger)
        let job = Job(attempt: AttemptID(broker: limits.broker, flight: 1, attempt: 1), url: "x:1")
        let jobs = try RunTable<ProgramRun>(link, loop: loop, logger: logger)
        return try ProgramRun(job: job, input: nil, options: options, terms: terms, jobs: jobs) {}
    }

    @Test func `a job that is stopped fails by the first reason, however the program ends`() throws {
        let run = try run("trap 'exit 0' TERM; echo ready; while :; do sleep 1; done")
        var buffer = [UInt8](repeating: 0, count: Limits.programReadBytes)
        #expect(
            try loop.run(for: .seconds(60)) {
                _ = try? run.readOutputAndExit(into: &buffer)
                return run.receivedBytes > 0
            })
        #expect(!run.stop(because: Refusal(.tooLarge)) && !run.stop(because: Refusal(.cancelled)))
        #expect(run.state.isOver && run.receivedBytes == 0)
        #expect(
            try loop.run(for: .seconds(60)) {
                _ = try? run.readOutputAndExit(into: &buffer)
                return run.isAwaitingBodyHash
            })
        #expect(run.stop(because: Refusal(.cancelled)))
        var code: FailureCode?
        do throws(Refusal) { _ = try run.makeCompletion() } catch { code = error.code }
        #expect(code == .tooLarge)
    }

    /// An event can note a job while a thread hashes its complete body.
    @Test func `a body whose hash is running is not hashed again`() throws {
        let length = 8 << 20
        let run = try run("head -c \(length) /dev/zero")
        let hasher = run.jobs.hasher
        var finished: [PartHasher.Task] = []
        var buffer = [UInt8](repeating: 0, count: Limits.programReadBytes)
        var refusal: Refusal?
        #expect(
            try loop.run(for: .seconds(60)) {
                do throws(Refusal) { _ = try run.readOutputAndExit(into: &buffer) } catch { refusal = error }
                return run.isAwaitingBodyHash || refusal != nil
            })
        try #require(refusal == nil)
        try run.startHashing(on: hasher)
        try run.startHashing(on: hasher)
        #expect(run.isAwaitingBodyHash && !run.isBodyHashed)
        #expect(
            try loop.run(for: .seconds(60)) {
                finished += hasher.takeFinishedTasks()
                return !finished.isEmpty
            })
        #expect(run.receiveHash(from: try #require(finished.first)))
        #expect(run.isBodyHashed)
        try run.startHashing(on: hasher)
        #expect(try run.makeCompletion().completion.bodyByteCount == length)
        #expect(finished.count == 1 && hasher.takeFinishedTasks().isEmpty)
    }
}
