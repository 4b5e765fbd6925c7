import EarshotHTTP
import EarshotLoop
import EarshotWire
import Foundation
import LibCrypto
import Logging
import Testing

@testable import EarshotWorker

/// Spool files of a worker: rights, locks and full disks.
@Suite final class WorkerSpoolTests {
    let attempt = AttemptID(broker: BrokerInstance(rawValue: 1), flight: 1, attempt: 1)
    let folder = FileManager.default.temporaryDirectory.appending(path: "earshot-\(UUID().uuidString.prefix(8))")

    init() throws {
        try FileManager.default.createDirectory(
            at: folder, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
    }

    deinit { try? FileManager.default.removeItem(at: folder) }

    private var names: [String] { (try? FileManager.default.contentsOfDirectory(atPath: folder.path)) ?? [] }

    @Test func `a file is deleted with its object unless it was kept`() throws {
        let spool = try SpoolFolder(folder.path)
        var file: SpoolFile? = try SpoolFile("one.part", in: spool)
        #expect(names == ["one.part"])
        file = nil
        #expect(names.isEmpty)
        file = try SpoolFile("two.part", in: spool)
        try file?.completeFile()
        file = nil
        #expect(names == ["two.part"])
        spool.delete("two.part")
        #expect(names.isEmpty)
    }

    @Test func `a file is locked until it is left, even if a thread still reads it`() throws {
        let spool = try SpoolFolder(folder.path)
        let file = try SpoolFile("one.part", in: spool)
        try file.write([1, 2].span)
        let error = #expect(throws: SystemError.self) { try SpoolFile("one.part", in: spool, resumingAt: 1) }
        #expect(error?.number == EWOULDBLOCK)
        let reader = dup(file.descriptor)
        defer { close(reader) }
        file.closeWithoutDeleting()
        #expect(try Data(contentsOf: folder.appending(path: "one.part")).count == 2, "the second one truncated nothing")
        let next = try SpoolFile("one.part", in: spool, resumingAt: 1)
        #expect(flock(reader, LOCK_EX | LOCK_NB) != 0)
        next.closeWithoutDeleting()
        #expect(flock(reader, LOCK_EX | LOCK_NB) == 0)
    }

    @Test func `a name that is taken, be it by a link, is refused`() throws {
        let spool = try SpoolFolder(folder.path)
        try FileManager.default.createSymbolicLink(
            atPath: folder.appending(path: "a.part").path, withDestinationPath: "elsewhere")
        let error = #expect(throws: SystemError.self) { try SpoolFile("a.part", in: spool) }
        #expect(error?.number == EEXIST)
    }

    @Test func `a folder that is a link, or that others may write into, is refused`() throws {
        let link = folder.appending(path: "link").path
        try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: folder.path)
        #expect(throws: SystemError.self) { try SpoolFolder(link) }
        try FileManager.default.setAttributes([.posixPermissions: 0o770], ofItemAtPath: folder.path)
        let error = #expect(throws: SystemError.self) { try SpoolFolder(folder.path) }
        #expect(error?.number == EPERM)
    }

    @Test(arguments: [
        (SystemError("write spool file", number: ENOSPC), FailureCode.spoolFull, "no room"),
        (SystemError("write spool file", number: EDQUOT), .spoolFull, "no room"),
        (SystemError("write spool file", number: EFBIG), .spoolFull, "raise the limit (ulimit -f"),
        (SpoolFolder.reserveReached, .spoolFull, "lower spool-free"),
        (SystemError("create spool file", number: EMFILE), .connectFailed, "file descriptors"),
        (SystemError("create spool file", number: EIO), .spoolFailed, "create spool file"),
    ])
    func `the reason of a body without a file has its code and its next step`(
        error: SystemError, code: FailureCode, step: String
    ) {
        let refusal = Refusal(bodyFault: .spoolFailed(error))
        #expect(refusal.code == code)
        #expect(refusal.detail.contains(step))
    }

    @Test func `a file takes no more than its disk has beside what is to be left free`() throws {
        let spool = try SpoolFolder(folder.path, minimumFreeBytes: .max / 2)
        let file = try SpoolFile("one.part", in: spool)
        let error = #expect(throws: SystemError.self) { try file.write([1].span) }
        #expect(error == SpoolFolder.reserveReached)
        try SpoolFile("two.part", in: try SpoolFolder(folder.path, minimumFreeBytes: 1)).write([1].span)
    }

    @Test func `a body is the same whether it stays in memory or not`() throws {
        for limit in [0, 2, 3, 4] {
            var body = try body(inlineBytes: limit)
            try body.append([1, 2].span)
            try body.append([3, 4].span)
            var completion = Completion(attempt: attempt, status: 200)
            let inline = try body.finish(into: &completion)
            #expect(completion.bodyByteCount == 4)
            #expect(completion.sha256 == SHA256.digest(of: [1, 2, 3, 4].span).hex)
            #expect(inline == (limit == 4 ? [1, 2, 3, 4] : nil))
            #expect(completion.fileName == (limit == 4 ? nil : SpoolName.partFile(of: attempt, pid: getpid())))
            if let file = completion.fileName {
                defer { try? FileManager.default.removeItem(at: folder.appending(path: file)) }
                let content = try Array(Data(contentsOf: folder.appending(path: file)))
                #expect(content == [1, 2, 3, 4])
            }
        }
    }

    @Test func `a body beyond its bound is refused at the first byte too many`() throws {
        #expect(throws: IncomingBody.Fault.tooLarge) {
            var body = try body(inlineBytes: 9)
            try body.append([1, 2, 3, 4].span)
            #expect(body.count == 4)
            try body.append([5].span)
        }
    }

    /// Returns an empty body of at most 4 bytes.
    private func body(inlineBytes: Int) throws -> IncomingBody {
        var limits = WorkerLimits(broker: attempt.broker, spoolPath: folder.path)
        limits.maximumInlineBodyBytes = inlineBytes
        let terms = Terms(limits, spool: try SpoolFolder(folder.path), logger: Logger(label: "test"))
        return IncomingBody(of: attempt, terms, maximumBodyBytes: 4)
    }
}
