import EarshotLoop
import EarshotWire
import Foundation
import Testing

@testable import EarshotBroker

/// The spool folder: its loss, its sweep, and the names of its files.
@Suite final class SpoolFilesTests {
    let folder = FileManager.default.temporaryDirectory.appending(path: "earshot-\(UUID().uuidString.prefix(8))")
    let spool: SpoolFiles
    let attempt = AttemptID(broker: BrokerInstance(rawValue: 7), flight: 3, attempt: 1)
    let other = AttemptID(broker: BrokerInstance(rawValue: 7), flight: 4, attempt: 1)

    init() throws { spool = try SpoolFiles(folder.path) }

    deinit { try? FileManager.default.removeItem(at: folder) }

    private var parts: Set<String> {
        let paths = (try? FileManager.default.subpathsOfDirectory(atPath: folder.path)) ?? []
        return Set(paths.map { URL(filePath: $0).lastPathComponent }.filter { $0.hasSuffix(".part") })
    }

    private func write(_ names: String...) throws {
        for name in names {
            if let pid = SpoolName.writer(of: name)?.pid { _ = spool.makeFolder(of: pid) }
            try Data("body".utf8).write(to: folder.appending(path: SpoolName.relativePath(of: name)))
        }
    }

    /// Returns the process ID of a process that has ended.
    private func endedProcess() throws -> Int32 {
        let process = Process()
        process.executableURL = URL(filePath: "/bin/true")
        try process.run()
        process.waitUntilExit()
        return process.processIdentifier
    }

    @Test func `a spool that was removed, moved or replaced is opened again`() throws {
        let losses: [() throws -> Void] = [
            { [folder] in try FileManager.default.removeItem(at: folder) },
            { [folder] in try FileManager.default.moveItem(atPath: folder.path, toPath: folder.path + "-moved") },
        ]
        defer { try? FileManager.default.removeItem(atPath: folder.path + "-moved") }
        for lose in losses {
            #expect(spool.isInPlace)
            let name = try #require(spool.writeContent([1, 2, 3]))
            try lose()
            #expect(!spool.isInPlace)
            try spool.reopenFolder()
            #expect(spool.isInPlace)
            #expect(spool.length(of: name) == nil)
            #expect(spool.writeContent([1, 2, 3]) == name)
            #expect(FileManager.default.fileExists(atPath: folder.appending(path: name).path))
        }
    }

    @Test func `a spool whose lock alone was removed keeps its files`() throws {
        let name = try #require(spool.writeContent([1, 2, 3]))
        try FileManager.default.removeItem(at: folder.appending(path: "broker.lock"))
        #expect(!spool.isInPlace)
        try spool.reopenFolder()
        #expect(spool.isInPlace && spool.length(of: name) == 3)
    }

    @Test func `a spool that cannot be opened again is as it was`() throws {
        try FileManager.default.removeItem(at: folder)
        try Data().write(to: folder)
        #expect(throws: FolderError.self) { try spool.reopenFolder() }
        #expect(!spool.isInPlace && spool.writeContent([1]) == nil)
        try FileManager.default.removeItem(at: folder)
        try spool.reopenFolder()
        #expect(spool.isInPlace && spool.writeContent([1]) != nil)
    }

    @Test func `a sweep leaves what a dead worker wrote until its last words were read`() throws {
        let (dead, living) = (try endedProcess(), getpid())
        let deadPart = SpoolName.partFile(of: attempt, pid: dead)
        let livingPart = SpoolName.partFile(of: attempt, pid: living)
        try write(deadPart, livingPart, "\(dead)-copy.part", "\(living)-copy.part")
        try write(SpoolName.partFile(of: other, pid: dead), SpoolName.partFile(of: other, pid: living))
        spool.removeUnfinishedFiles { $0 == attempt }
        #expect(parts == [deadPart, livingPart, "\(living)-copy.part"])
    }

    @Test(arguments: [true, false])
    func `unfinished files of an earlier broker's attempts, and their living writers, are known at the start`(
        isLiving: Bool
    ) throws {
        #expect(!spool.hadUnfinishedFiles && spool.liveWriterPids().isEmpty)
        let home = FileManager.default.temporaryDirectory.appending(path: "earshot-\(UUID().uuidString.prefix(8))")
        defer { try? FileManager.default.removeItem(at: home) }
        let pid = isLiving ? getpid() : try endedProcess()
        try FileManager.default.createDirectory(
            at: home.appending(path: SpoolName.workerFolder(pid: pid)), withIntermediateDirectories: true,
            attributes: [.posixPermissions: 0o700])
        let name = SpoolName.partFile(of: attempt, pid: pid)
        try Data("body".utf8).write(to: home.appending(path: SpoolName.relativePath(of: name)))
        let next = try SpoolFiles(home.path)
        #expect(next.hadUnfinishedFiles && next.liveWriterPids() == (isLiving ? [pid] : []))
    }

    @Test func `what ended processes left goes, but for what counts as a worker's`() throws {
        let (dead, living) = (try endedProcess(), getpid())
        let held = SpoolName.partFile(of: attempt, pid: dead)
        let livingPart = SpoolName.partFile(of: other, pid: living)
        try write(held, SpoolName.partFile(of: other, pid: dead), "\(dead)-copy.part", livingPart)
        spool.removeFilesOfEndedProcesses { $0 == attempt }
        #expect(parts == [held, livingPart])
        spool.removeFilesOfEndedProcesses { _ in false }
        #expect(parts == [livingPart])
    }

    @Test func `a file is adopted only as what was said of it`() throws {
        let name = SpoolName.partFile(of: attempt, pid: getpid())
        let content = String(repeating: "a", count: 64)
        #expect(!spool.adopt(name, as: content, length: 4))
        try write(name)
        #expect(!spool.adopt(name, as: content, length: 5))
        try FileManager.default.linkItem(
            at: folder.appending(path: SpoolName.relativePath(of: name)),
            to: folder.appending(path: "\(getpid())-second.part"))
        #expect(!spool.adopt(name, as: content, length: 4))
        #expect(spool.adopt(name, as: content, length: 4, isLinked: true))
        #expect(spool.length(of: content) == 4)
    }

    @Test(arguments: [S_ISUID, S_ISGID]) func `a file that would run with the rights of its owner is not adopted`(
        bit: mode_t
    ) throws {
        let name = SpoolName.partFile(of: attempt, pid: getpid())
        try write(name)
        #expect(unsafe chmod(folder.appending(path: SpoolName.relativePath(of: name)).path, 0o700 | bit) == 0)
        #expect(!spool.adopt(name, as: String(repeating: "a", count: 64), length: 4))
        #expect(spool.reclaimPart(name, as: SpoolName.keptPart(of: attempt)) == nil)
    }

    @Test func `a worker's file is in its folder until the broker takes it`() throws {
        let name = SpoolName.partFile(of: attempt, pid: getpid())
        let kept = SpoolName.keptPart(of: attempt)
        let workerFolder = spool.makeFolder(of: getpid())
        #expect(workerFolder == folder.path + "/worker-\(getpid())")
        try write(name)
        let place = "\(workerFolder)/\(name)"
        #expect(FileManager.default.fileExists(atPath: place))
        #expect(spool.reclaimPart(name, as: kept) == 4)
        #expect(!FileManager.default.fileExists(atPath: place))
        #expect(FileManager.default.fileExists(atPath: folder.appending(path: kept).path))
        #expect(spool.rename(kept, to: name))
        #expect(FileManager.default.fileExists(atPath: place))
    }

    @Test func `an ended worker's folder is removed with all its files but held ones`() throws {
        let dead = try endedProcess()
        let held = SpoolName.partFile(of: attempt, pid: dead)
        let workerFolder = spool.makeFolder(of: dead)
        try write(held)
        try Data("any".utf8).write(to: URL(filePath: workerFolder + "/other"))
        spool.removeFilesOfEndedProcesses { $0 == attempt }
        #expect(try FileManager.default.contentsOfDirectory(atPath: workerFolder) == [held])
        spool.removeFilesOfEndedProcesses { _ in false }
        #expect(!FileManager.default.fileExists(atPath: workerFolder))
        #expect(spool.isInPlace)
    }

    @Test func `a removed folder of a worker is a fault, and is created again`() throws {
        let workerFolder = spool.makeFolder(of: getpid())
        #expect(spool.isInPlace)
        try FileManager.default.removeItem(atPath: workerFolder)
        #expect(!spool.isInPlace)
        try spool.reopenFolder()
        #expect(spool.isInPlace && FileManager.default.fileExists(atPath: workerFolder))
    }

    @Test func `an unfinished file of an earlier version is removed with its process`() throws {
        let name = SpoolName.partFile(of: attempt, pid: try endedProcess())
        try Data("body".utf8).write(to: folder.appending(path: name))
        spool.removeFilesOfEndedProcesses { _ in false }
        #expect(parts == [])
    }
}
