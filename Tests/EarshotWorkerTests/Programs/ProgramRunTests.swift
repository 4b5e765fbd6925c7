import EarshotLoop
import EarshotWire
import Foundation
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
        let terms = ProgramWorker.Terms(inlineBytes: 65_536, spool: try SpoolFolder(folder.path))
        let job = Job(attempt: AttemptID(broker: BrokerInstance(rawValue: 1), flight: 1, attempt: 1), url: "x:1")
        return try ProgramRun(job, nil, options, terms, loop: loop) { _ in }
    }

    /// A PROGRESS timer can note a job while a thread hashes its complete body.
    @Test func `a body whose hash is running is not sealed again`() throws {
        let length = 8 << 20
        let run = try run("head -c \(length) /dev/zero")
        var finished: [PartHasher.Task] = []
        let hasher = try PartHasher(loop)
        var buffer = [UInt8](repeating: 0, count: Limits.pieceBytes)
        var refusal: Refusal?
        #expect(
            try loop.run(for: .seconds(10)) {
                do throws(Refusal) { _ = try run.take(into: &buffer) } catch { refusal = error }
                return run.exit != nil || refusal != nil
            })
        try #require(refusal == nil)
        #expect(try run.seal(on: hasher))
        #expect(try run.seal(on: hasher))
        #expect(
            try loop.run(for: .seconds(10)) {
                finished += hasher.takeFinished()
                return !finished.isEmpty
            })
        let task = try #require(finished.first)
        #expect(run.hashed(task))
        #expect(try !run.seal(on: hasher))
        #expect(try run.complete(contentType: nil).completion.length == length)
        #expect(finished.count == 1 && hasher.takeFinished().isEmpty)
    }
}
