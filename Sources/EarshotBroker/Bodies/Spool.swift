internal import EarshotCore
internal import EarshotDisk
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import LibCrypto

/// The folder of bodies that are files: one file for each content, named by its SHA-256.
///
/// Workers write `PID-INSTANCE.FLIGHT.ATTEMPT.part`; only this type gives files their content's name and removes them,
/// so that the two never race. What is left of an attempt that broke off is `INSTANCE.FLIGHT.ATTEMPT.kept`, and a body
/// that may be given away is `INSTANCE.FLIGHT.ATTEMPT.taken`. Names are used relative to an opened folder and without
/// following links.
final class Spool {
    /// Closes descriptors.
    private final class Closer: StoreKeeper {
        func carryOut(_ files: [Int32]) { for file in files { close(file) } }
    }

    /// To remove a file of so many bytes takes a millisecond.
    private static let largeBytes = 16 << 20

    private static let lockName = "broker.lock"

    let path: String
    private var folder: Int32
    private var lock: LockFile
    private lazy var closing = StoreThread("spool") { Closer() }
    /// Whether the folder is not the first one of this broker: attempts that began before wrote into another one.
    private var isReplaced = false

    /// Opens the folder, makes it if need be, and removes what an earlier broker left.
    /// - Parameter kept: files by the names of their content that are somebody's still.
    /// - Throws: `BrokerError`, `FolderError`, a `SystemError` of the call that failed.
    init(_ path: String, keeping kept: Set<String> = []) throws {
        self.path = path
        (folder, lock) = try Self.open(path)
        try sweep(keeping: kept)
    }

    /// The file whose removal tells of the folder's: it is removed first.
    var lockPath: String { "\(path)/\(Self.lockName)" }

    /// Whether the path still leads to the folder that is open, and nobody else can lock it.
    var isInPlace: Bool { FileIdentity(path: path) == FileIdentity(descriptor: folder) && lock.isAt(lockPath) }

    /// Opens the folder at the path after it was removed, moved or replaced, whose files are lost, or after its lock
    /// was removed.
    /// - Throws: as `init`; then everything is as before.
    func openAgain() throws {
        let (folder, lock) = try Self.open(path)
        let isSame = FileIdentity(descriptor: folder) == FileIdentity(descriptor: self.folder)
        close(self.folder)
        self.folder = folder
        self.lock = lock
        guard !isSame else { return }
        isReplaced = true
        try sweep(keeping: [])
    }

    /// Whether a file is missing, perhaps because it was in a folder that was removed.
    func mayHaveLost(_ name: String) -> Bool { (isReplaced || !isInPlace) && length(of: name) == nil }

    private static func open(_ path: String) throws -> (folder: Int32, lock: LockFile) {
        try PrivateFolder.makeStore(path)
        try PrivateFolder.checkFiles([lockName], in: path)
        guard let lock = try LockFile.take("\(path)/\(lockName)") else {
            throw BrokerError("the spool \(path) belongs to another broker; choose one with --spool")
        }
        let folder = unsafe Glibc.open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard folder >= 0 else { throw SystemError("open the spool \(path)", number: errno) }
        return (folder, lock)
    }

    private func sweep(keeping kept: Set<String>) throws {
        for name in try names()
        where isContent(name) && !kept.contains(name) || name.hasSuffix(".kept") || BrokerCore.isOwnName(name) {
            remove(name)
        }
        sweepEndedParts { _ in false }
    }

    deinit {
        close(folder)
    }

    /// What a worker's process calls the file of an attempt while it writes it.
    static func partName(of attempt: AttemptID, pid: Int32) -> String { "\(pid)-\(attempt).part" }

    /// Gives a worker's finished file the name of its content, or one of its own.
    ///
    /// - Parameter isLinked: whether the cache may have it under another name.
    /// - Returns: whether the file was what the worker said: not missing, not of another length, no link.
    func adopt(_ name: String, as other: String, length: Int, isLinked: Bool = false) -> Bool {
        var status = stat()
        guard unsafe fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0, status.st_mode & S_IFMT == S_IFREG,
            status.st_uid == getuid(), status.st_size == length, isLinked || status.st_nlink == 1
        else { return false }
        guard rename(name, to: other) else { return false }
        // rename(2): of two links to one file it leaves both.
        if isLinked { remove(name) }
        return true
    }

    /// The files an attempt may write: for a body it began, and for one it began in place of what it was given.
    static func isPart(_ name: String, of attempt: AttemptID, pid: Int32) -> Bool {
        name == partName(of: attempt, pid: pid) || name == "\(pid)-\(attempt).anew.part"
    }

    /// Takes a part of a body back from the worker that wrote it.
    /// - Returns: its bytes; nil if there is no such file, or it is not a plain one of this user with one name.
    func keep(_ name: String, as kept: String) -> Int? {
        var status = stat()
        guard unsafe fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0, status.st_mode & S_IFMT == S_IFREG,
            status.st_uid == getuid(), status.st_nlink == 1, status.st_size > 0
        else { return nil }
        return rename(name, to: kept) ? status.st_size : nil
    }

    /// - Returns: whether the file was there.
    @discardableResult
    func rename(_ name: String, to other: String) -> Bool {
        unsafe renameat(folder, name, folder, other) == 0
    }

    /// Writes a file under the name of its content.
    /// - Returns: that name; nil if the disk does not take it.
    func write(_ bytes: [UInt8]) -> String? {
        let name = SHA256.digest(of: bytes.span).hex
        let part = "\(getpid())-copy.part"
        let file = unsafe openat(folder, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o400)
        guard file >= 0 else { return nil }
        defer { close(file) }
        var written = 0
        while written < bytes.count {
            let count = unsafe bytes[written...].withUnsafeBytes { unsafe Glibc.write(file, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { break }
            written += count
        }
        guard written == bytes.count, rename(part, to: name) else {
            remove(part)
            return nil
        }
        return name
    }

    /// Reads a whole file; nil if it is not there, or has more bytes than `limit`.
    func read(_ name: String, limit: Int) -> [UInt8]? {
        guard let file = open(name) else { return nil }
        defer { close(file) }
        var status = stat()
        guard unsafe fstat(file, &status) == 0, status.st_size <= limit else { return nil }
        var bytes = [UInt8](repeating: 0, count: status.st_size)
        var taken = 0
        while taken < bytes.count {
            let count = unsafe bytes.withUnsafeMutableBytes { place in
                unsafe Glibc.read(file, place.baseAddress?.advanced(by: taken), place.count - taken)
            }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { return nil }
            taken += count
        }
        return bytes
    }

    /// A file of the broker's own that is gone when it is closed.
    func unnamedFile() throws(SystemError) -> Int32 {
        let name = "\(getpid())-waiting.part"
        let file = unsafe openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
        guard file >= 0 else { throw SystemError("make a spool file", number: errno) }
        remove(name)
        return file
    }

    /// Opens a file to read; nil if it is not there.
    func open(_ name: String) -> Int32? {
        let file = unsafe openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
        return file >= 0 ? file : nil
    }

    /// Bytes of a plain file of this user; nil if there is none.
    func length(of name: String) -> Int? {
        var status = stat()
        guard unsafe fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0, status.st_mode & S_IFMT == S_IFREG,
            status.st_uid == getuid()
        else { return nil }
        return status.st_size
    }

    /// Removes a file. A file system frees a large one's blocks when it is closed by the last: a thread does that.
    func remove(_ name: String) {
        var status = stat()
        // One that was given away is somewhere else by now.
        guard unsafe fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0 else { return }
        let file = status.st_size >= Self.largeBytes ? open(name) : nil
        unsafe unlinkat(folder, name, 0)
        if let file { closing.ask(file) }
    }

    /// Removes unfinished files of attempts that are not `held`, and what processes that have ended have left besides.
    /// A held attempt's file stays though its worker is dead: its last words may not have been read. O(files).
    func sweepParts(held: (AttemptID) -> Bool) {
        for (name, pid, attempt) in parts() where attempt.map({ !held($0) }) ?? Self.hasEnded(pid) { remove(name) }
    }

    /// Removes what processes that have ended have left, but for attempts that still count as theirs: what is left of
    /// those is taken back when their worker's end is told.
    func sweepEndedParts(held: (AttemptID) -> Bool) {
        for (name, pid, attempt) in parts() where Self.hasEnded(pid) && !(attempt.map(held) ?? false) { remove(name) }
    }

    /// How many processes that have not ended have files here. O(files).
    func writers() -> Int { Set(parts().map(\.pid)).count { !Self.hasEnded($0) } }

    /// Unfinished files: whose they are and what they are of, nil for files of the broker's own.
    private func parts() -> [(name: String, pid: Int32, attempt: AttemptID?)] {
        ((try? names()) ?? []).compactMap { name in
            guard name.hasSuffix(".part") else { return nil }
            let words = name.split(separator: "-", maxSplits: 1)
            guard words.count == 2, let pid = Int32(words[0]) else { return nil }
            let attempt = words[1].split(separator: ".").prefix(3).joined(separator: ".")
            return (name, pid, AttemptID(attempt))
        }
    }

    /// A process that has ended and was not reaped yet counts as gone.
    private static func hasEnded(_ pid: Int32) -> Bool { (try? ProcessDescriptor(pid: pid))?.hasEnded ?? true }

    private func isContent(_ name: String) -> Bool {
        name.utf8.count == 64 && name.utf8.allSatisfy { (0x30...0x39).contains($0) || (0x61...0x66).contains($0) }
    }

    private func names() throws -> [String] {
        let copy = dup(folder)
        guard let stream = unsafe fdopendir(copy) else {
            if copy >= 0 { close(copy) }
            throw SystemError("read the spool", number: errno)
        }
        defer { unsafe closedir(stream) }
        unsafe rewinddir(stream)
        var names: [String] = []
        while let entry = unsafe readdir(stream) {
            names.append(
                unsafe withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
                    unsafe String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
                })
        }
        return names
    }
}
