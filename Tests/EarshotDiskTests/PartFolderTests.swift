import EarshotLoop
import EarshotWire
import Foundation
import Glibc
import LibCrypto
import Synchronization
import Testing

@testable import EarshotDisk

/// The folder of partial bodies: moves, descriptions, what a crash leaves, bounds, and files that do not belong there.
@Suite final class PartFolderTests {
    private let base = FileManager.default.temporaryDirectory.path + "/parts-\(UUID().uuidString)"
    private let parts: PartFolder
    private let spool: String
    private let attempt = AttemptID(broker: BrokerInstance(rawValue: 1), flight: 1, attempt: 1)
    private static let mebibyte = 1 << 20

    init() throws {
        spool = base + "/spool"
        try FileManager.default.createDirectory(
            atPath: spool + "/worker-7", withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        parts = try PartFolder(base + "/parts")
    }

    deinit { try? FileManager.default.removeItem(atPath: base) }

    private func keys(_ text: String = "http://a.example/x\n") -> PartKeys {
        PartKeys(keyTexts: [text], owner: nil)
    }

    private func description(_ checkpoint: Checkpoint? = nil) -> PartDescription {
        PartDescription(
            validator: "\"a\"", totalBytes: 5 << 20, httpFields: Array("etag: \"a\"\nset-cookie: secret".utf8),
            generation: attempt, checkpoint: checkpoint, isKnownToClient: true)
    }

    /// Writes a body where a worker would, and returns its path.
    private func body(_ count: Int = mebibyte, attempt number: Int = 1, byte: UInt8 = 1) throws -> String {
        let id = AttemptID(broker: BrokerInstance(rawValue: 1), flight: 1, attempt: UInt32(number))
        let path = "\(spool)/worker-7/\(SpoolName.partFile(of: id, pid: 7))"
        let data = Data(repeating: byte, count: count)
        #expect(
            FileManager.default.createFile(atPath: path, contents: data, attributes: [.posixPermissions: 0o600]))
        return path
    }

    private func head(_ path: String, _ keys: PartKeys? = nil, _ checkpoint: Checkpoint? = nil) throws -> PartHead {
        try #require(parts.makeHead(of: description(checkpoint), keys: keys ?? self.keys(), at: path))
    }

    private func stored(_ text: String = "http://a.example/x\n", _ checkpoint: Checkpoint? = nil) throws {
        #expect(parts.storePart(try head(try body(), keys(text), checkpoint)))
    }

    private func assign(_ text: String = "http://a.example/x\n", maximumBodyBytes: Int? = nil) -> PartFolder
        .AssignedPart?
    {
        parts.assignPart(
            named: parts.partNames(for: keys(text)), maximumBytes: maximumBodyBytes, to: "\(spool)/worker-7/next",
            as: "next")
    }

    private var files: Set<String> {
        Set((try? FileManager.default.subpathsOfDirectory(atPath: parts.path)) ?? []).subtracting(["growing", "salt"])
    }

    /// Replaces a text in all descriptions.
    private func rewrite(_ text: String, _ other: String) throws {
        for name in files where name.hasSuffix(".head") || name.hasPrefix("growing/") {
            let path = "\(parts.path)/\(name)"
            let content = try String(contentsOfFile: path, encoding: .utf8)
            try content.replacingOccurrences(of: text, with: other).write(
                toFile: path, atomically: false, encoding: .utf8)
        }
    }

    // MARK: Moves

    @Test func `a part is lent once, with its description and without secrets`() throws {
        try stored()
        #expect(files.count == 2)
        let assigned = try #require(assign())
        #expect(assigned.usableBytes == Self.mebibyte && assigned.sha256 == nil)
        #expect(assigned.head.part.validator == "\"a\"" && assigned.head.part.generation == attempt)
        #expect(assigned.head.part.isKnownToClient)
        #expect(String(decoding: assigned.head.part.httpFields, as: UTF8.self) == "etag: \"a\"")
        #expect(FileManager.default.fileExists(atPath: "\(spool)/worker-7/next"))
        #expect(files == ["growing/next"])
        #expect(assign() == nil)
    }

    @Test func `another key, and another secret, find nothing`() throws {
        try stored()
        #expect(assign("http://a.example/x\nauthorization: me") == nil)
        let other = try PartFolder(base + "/other")
        #expect(other.partNames(for: keys()) != parts.partNames(for: keys()))
        #expect(try PartFolder(base + "/parts").partNames(for: keys()) == parts.partNames(for: keys()))
    }

    @Test func `brokers that start at once share a new folder`() async throws {
        for round in 0..<300 {
            let path = "\(base)/new-\(round)"
            try FileManager.default.createDirectory(
                atPath: path, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
            let other = Task.detached { [key = keys()] in try PartFolder(path).partNames(for: key) }
            // The other broker is a little further in each round when this one looks.
            for _ in 0..<round * 10 { _ = getppid() }
            let names = try PartFolder(path).partNames(for: keys())
            #expect(try await other.value == names)
        }
    }

    @Test func `a part has two names after a redirect`() throws {
        let both = PartKeys(keyTexts: ["http://b.example/signed?1\n", "http://a.example/x\n"], owner: nil)
        #expect(parts.storePart(try head(try body(), both)))
        #expect(files.count == 3)
        #expect(assign()?.usableBytes == Self.mebibyte)
        #expect(files == ["growing/next"])
    }

    @Test func `a second name whose description is older than the body finds nothing`() throws {
        let (own, first) = ("http://b.example/x\n", "redirected\nhttp://a.example/x\n")
        let both = PartKeys(keyTexts: [own, first], owner: nil)
        #expect(parts.storePart(try head(try body(), both)))
        #expect(parts.storePart(try head(try body(attempt: 2), keys(own))))
        #expect(assign(first) == nil)
        #expect(assign(own)?.usableBytes == Self.mebibyte)
    }

    @Test func `a read-only body, which was complete in its worker, can be written again`() throws {
        let path = try body()
        unsafe chmod(path, 0o400)
        #expect(parts.storePart(try head(path)))
        #expect(assign() != nil)
        var status = stat()
        unsafe #expect(stat("\(spool)/worker-7/next", &status) == 0 && status.st_mode & 0o777 == 0o600)
    }

    @Test func `a small body is not stored, and a large one not lent to an attempt that accepts less`() throws {
        #expect(!parts.storePart(try head(try body(Self.mebibyte - 1))))
        try stored()
        #expect(assign(maximumBodyBytes: Self.mebibyte - 1) == nil)
        #expect(assign(maximumBodyBytes: Self.mebibyte) != nil)
    }

    @Test func `of two brokers with one folder only one gets a part`() throws {
        for _ in 0..<50 {
            try stored()
            let names = parts.partNames(for: keys())
            let (parts, spool) = (parts, spool)
            let winners = Atomic(0)
            DispatchQueue.concurrentPerform(iterations: 4) { index in
                let path = "\(spool)/worker-7/\(index)"
                guard parts.assignPart(named: names, maximumBytes: nil, to: path, as: "\(index)") != nil else { return }
                winners.add(1, ordering: .relaxed)
            }
            #expect(winners.load(ordering: .relaxed) == 1)
        }
    }

    // MARK: Another boot

    @Test func `after a boot only the bytes of the checkpoint count, with their hash`() throws {
        let hash = SHA256.digest(of: [UInt8](repeating: 1, count: Self.mebibyte).span).hex
        let path = try body(2 * Self.mebibyte)
        #expect(parts.storePart(try head(path, nil, Checkpoint(byteCount: Self.mebibyte, sha256: hash))))
        try rewrite(parts.bootID, "another-boot")
        let assigned = try #require(assign())
        #expect(assigned.usableBytes == Self.mebibyte && assigned.sha256 == hash)
    }

    @Test(arguments: [true, false])
    func `after a boot a part without a checkpoint, or shorter than it, is dropped`(hasCheckpoint: Bool) throws {
        let checkpoint = Checkpoint(byteCount: 2 * Self.mebibyte, sha256: String(repeating: "ab", count: 32))
        try stored("http://a.example/x\n", hasCheckpoint ? checkpoint : nil)
        try rewrite(parts.bootID, "another-boot")
        #expect(assign() == nil)
        #expect(files.isEmpty)
    }

    // MARK: Files that do not belong there

    @Test(arguments: ["replaced", "linked", "readable", "symbolic", "missing", "directory"])
    func `a body that is not as its description says is not used`(kind: String) throws {
        try stored()
        let name = try #require(files.first { $0.hasSuffix(".body") })
        let path = "\(parts.path)/\(name)"
        switch kind {
        case "replaced":
            try Data(count: Self.mebibyte).write(to: URL(filePath: base + "/new"))
            unsafe chmod(base + "/new", 0o600)
            unsafe rename(base + "/new", path)
        case "linked": unsafe link(path, base + "/second")
        case "readable": unsafe chmod(path, 0o644)
        case "symbolic":
            unsafe unlink(path)
            unsafe symlink("/etc/passwd", path)
        case "missing": unsafe unlink(path)
        default:
            unsafe unlink(path)
            unsafe mkdir(path, 0o700)
        }
        #expect(assign() == nil)
    }

    @Test(arguments: ["PART 1", "PART 2", "path: /", "names: ", "generation: "])
    func `a damaged description, or one of a newer version, is not used`(word: String) throws {
        try stored()
        try rewrite(word, word == "PART 1" ? "PART 9" : "x")
        if word != "PART 2" { #expect(assign() == nil) }
    }

    // MARK: After a crash

    private func recorded(_ path: String, as id: String = "one") throws {
        #expect(parts.recordHead(try head(path), as: id))
    }

    @Test func `a body that an ended broker left is recovered, but not while a worker has it`() throws {
        let path = try body()
        try recorded(path)
        let file = unsafe open(path, O_RDONLY | O_CLOEXEC)
        #expect(flock(file, LOCK_EX | LOCK_NB) == 0)
        #expect(parts.recoverBodies(fromSpool: spool) == 1)
        #expect(files == ["growing/one"])
        close(file)
        #expect(parts.recoverBodies(fromSpool: spool) == 0)
        #expect(!FileManager.default.fileExists(atPath: path))
        #expect(assign()?.usableBytes == Self.mebibyte)
    }

    @Test func `bodies of another broker are recovered once its spool is unlocked`() throws {
        try recorded(try body())
        var lock = try LockFile.acquire(spool + "/broker.lock")
        #expect(lock != nil)
        #expect(parts.recoverBodies(fromSpool: nil) == 0)
        #expect(files == ["growing/one"])
        lock = nil
        // The spool of a private bus has its supervisor's lock beside it.
        lock = try LockFile.acquire(base + "/lock")
        #expect(parts.recoverBodies(fromSpool: nil) == 0)
        #expect(files == ["growing/one"])
        lock = nil
        #expect(parts.recoverBodies(fromSpool: nil) == 0)
        #expect(files.count == 2)
    }

    @Test func `descriptions of this broker stay, and those of bodies that are gone are removed`() throws {
        let path = try body()
        try recorded(path, as: "own")
        #expect(parts.recoverBodies(fromSpool: spool, except: ["own"]) == 0)
        #expect(files == ["growing/own"])
        try recorded(path, as: "gone")
        unsafe unlink(path)
        #expect(parts.recoverBodies(fromSpool: spool, except: ["own"]) == 0)
        #expect(files == ["growing/own"])
    }

    @Test func `the spool of a private bus whose processes were killed becomes parts and goes`() throws {
        let folder = base + "/private-x0"
        try FileManager.default.createDirectory(
            atPath: folder + "/spool/worker-7", withIntermediateDirectories: true,
            attributes: [.posixPermissions: 0o700])
        let path = "\(folder)/spool/worker-7/\(SpoolName.partFile(of: attempt, pid: 7))"
        try FileManager.default.moveItem(atPath: try body(), toPath: path)
        try recorded(path)
        let photos = base + "/private-photos-2024"
        try FileManager.default.createDirectory(atPath: photos, withIntermediateDirectories: true)
        parts.removePrivateSpools()
        #expect(FileManager.default.fileExists(atPath: folder), "it has no lock of a supervisor")
        var lock = try LockFile.acquire(folder + "/lock")
        #expect(lock != nil)
        parts.removePrivateSpools()
        #expect(FileManager.default.fileExists(atPath: folder), "its supervisor lives")
        lock = nil
        parts.removePrivateSpools()
        #expect(FileManager.default.fileExists(atPath: photos))
        #expect(!FileManager.default.fileExists(atPath: folder))
        #expect(assign()?.usableBytes == Self.mebibyte)
    }

    // MARK: Bounds

    @Test func `the oldest parts go first, of the principal that has most bytes`() throws {
        for (number, owner) in [nil, "a", "a", "b"].enumerated() {
            let keys = PartKeys(
                keyTexts: ["\(number)"], owner: owner.flatMap { PrincipalName("key:\($0)") })
            let path = try body(attempt: number + 1)
            #expect(parts.storePart(try head(path, keys)))
            let name = try #require(parts.partNames(for: keys).first)
            let times = [timespec(tv_sec: time(nil) - 4_000 + 1_000 * number, tv_nsec: 0)]
            unsafe utimensat(AT_FDCWD, "\(parts.path)/\(name).body", [times[0], times[0]], 0)
        }
        var totals = parts.enforceBounds(maximumBytes: 3 * Self.mebibyte, maximumAgeSeconds: 100_000)
        #expect(totals.partCount == 3 && totals.bodyBytes == 3 * Self.mebibyte)
        #expect(assign("1") == nil, "the older one of a")
        totals = parts.enforceBounds(maximumBytes: 1 << 40, maximumAgeSeconds: 3_500)
        #expect(totals.partCount == 2)
        #expect(assign("0") == nil && assign("3") != nil)
    }

    @Test func `remainders go once they are old`() throws {
        let (a, b) = (String(repeating: "a", count: 64), String(repeating: "b", count: 64))
        for name in ["\(a).body", "\(b).head", "\(a).1.new", "growing/d", "letter.body"] {
            try Data(count: 3).write(to: URL(filePath: "\(parts.path)/\(name)"))
        }
        try stored()
        _ = parts.enforceBounds(maximumBytes: 1 << 40, maximumAgeSeconds: 1_000)
        _ = parts.recoverBodies(fromSpool: nil)
        #expect(files.count == 7)
        let old = timespec(tv_sec: time(nil) - 700, tv_nsec: 0)
        for name in files { unsafe utimensat(AT_FDCWD, "\(parts.path)/\(name)", [old, old], 0) }
        #expect(parts.enforceBounds(maximumBytes: 1 << 40, maximumAgeSeconds: 1_000).partCount == 2)
        _ = parts.recoverBodies(fromSpool: nil)
        #expect(files.count == 3 && files.contains("letter.body"), "another program's file stays")
        #expect(assign() != nil)
    }

    // MARK: Without a broker

    @Test func `a missing folder has no parts`() throws {
        let folder = base + "/none"
        #expect(try PartFolder.totals(of: folder).partCount == 0)
        #expect(try PartFolder.removeAllParts(of: folder) == 0)
        #expect(!FileManager.default.fileExists(atPath: folder))
    }

    @Test func `parts are counted, and removed with their descriptions`() throws {
        try stored()
        try recorded(try body(attempt: 2))
        #expect(parts.hasParts)
        #expect(try PartFolder.totals(of: parts.path).bodyBytes == Self.mebibyte)
        #expect(try PartFolder.removeAllParts(of: parts.path) == 1)
        #expect(try PartFolder.totals(of: parts.path).partCount == 0)
        #expect(files == ["growing/one"])
        #expect(!parts.hasParts)
    }

    @Test func `a folder with other files is refused`() throws {
        let folder = base + "/letters"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        _ = try PartFolder(folder + "/empty")
        #expect(throws: StoreError.self) { try PartFolder(folder) }
    }

    @Test func `a spool on another file system is not accepted`() throws {
        #expect(parts.sharesFileSystem(withSpool: spool))
        #expect(!parts.sharesFileSystem(withSpool: "/proc"))
        #expect(files.isEmpty)
    }

    @Test func `a folder to which others can write is refused`() throws {
        unsafe chmod(parts.path, 0o777)
        #expect(throws: StoreError.self) { try PartFolder.totals(of: parts.path) }
        #expect(throws: StoreError.self) { try PartFolder.removeAllParts(of: parts.path) }
        #expect(throws: StoreError.self) { try PartFolder(parts.path) }
    }
}
