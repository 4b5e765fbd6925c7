internal import EarshotCore
internal import EarshotDisk
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import LibCrypto
internal import ZMTP

/// Folder of body files: one file for each content, named by its SHA-256.
///
/// Workers write unfinished files, each in a folder of its own: the sandbox of a worker permits no other one, so it
/// cannot read or change bodies of other workers, nor finished ones. Only this type renames files, so that no two
/// renames race. `SpoolName` has the names. They are used relative to an opened folder, without following links.
final class SpoolFiles {
    /// Closes descriptors on a thread.
    private final class FileCloser: StoreBackend {
        func carryOut(_ files: [Int32]) { for file in files { close(file) } }
    }

    /// Minimum size of a file whose blocks are freed by a thread, in bytes: their removal takes about a millisecond.
    private static let largeFileBytes = 16 << 20

    /// Bytes read ahead for the next READs of a client.
    private static let readAheadBytes = 4 * WireLimits.dataBytes

    private static let lockName = "broker.lock"
    /// Number of times that the lock is tried, 50 ms apart.
    private static let lockAttempts = 10

    let path: String
    private var folderDescriptor: Int32
    private var lock: LockFile
    /// Whether an earlier broker left unfinished files, as one that dies does.
    private(set) var hadUnfinishedFiles = false
    /// Whether its disk had too little free space at the last look.
    private(set) var isShortOfFreeSpace = false
    /// Processes that have a folder for their files.
    private var workerPids: Set<Int32> = []
    private lazy var closingThread = StoreThread("spool") { FileCloser() }
    /// Whether this folder replaced an earlier one. Attempts that started before wrote to the earlier folder.
    private var hasReplacedFolder = false

    /// Opens the folder, creates it if necessary, and removes files of an earlier broker.
    ///
    /// - Parameters:
    ///   - kept: Names of content files that durable results still use.
    ///   - recover: Moves partial bodies of an earlier broker out of the folder, before they are removed.
    /// - Throws: `BrokerError` if another broker uses the folder, `FolderError` if others can write to it, or
    ///   `SystemError`.
    init(_ path: String, keeping kept: Set<String> = [], recover: () -> Void = {}) throws {
        self.path = path
        (folderDescriptor, lock) = try Self.openFolder(path, lockAttempts: Self.lockAttempts)
        hadUnfinishedFiles = unfinishedFiles().contains { $0.attempt != nil }
        recover()
        try removeStaleFiles(keeping: kept)
    }

    /// Path of the lock file. It is watched, because removing the folder removes it first.
    var lockPath: String { "\(path)/\(Self.lockName)" }

    /// Whether the path still refers to the open folder, this process still holds its lock, and no folder of a worker
    /// is missing.
    var isInPlace: Bool {
        isFolderInPlace
            && workerPids.allSatisfy {
                unsafe faccessat(folderDescriptor, SpoolName.workerFolder(pid: $0), F_OK, 0) == 0
            }
    }

    private var isFolderInPlace: Bool {
        FileIdentity(path: path) == FileIdentity(descriptor: folderDescriptor) && lock.isInPlace(at: lockPath)
    }

    /// Creates the folder in which a worker's process writes, unless it exists.
    ///
    /// - Returns: Its path, even if it cannot be created: the worker then reports the reason.
    func makeFolder(of pid: Int32) -> String {
        workerPids.insert(pid)
        let name = SpoolName.workerFolder(pid: pid)
        unsafe mkdirat(folderDescriptor, name, 0o700)
        return "\(path)/\(name)"
    }

    /// Reason why workers cannot create files here, such as a file system that became read-only; nil if they can.
    var unwritableReason: String? {
        guard unsafe faccessat(folderDescriptor, ".", W_OK | X_OK, AT_EACCESS) != 0 else { return nil }
        return SystemError("write to the spool", number: errno).description
    }

    /// Free bytes of its disk; nil if they are unknown.
    var freeBytes: Int? {
        var status = statvfs()
        guard unsafe fstatvfs(folderDescriptor, &status) == 0 else { return nil }
        let free = Int(clamping: status.f_bavail).multipliedReportingOverflow(by: Int(clamping: status.f_frsize))
        return free.overflow ? .max : free.partialValue
    }

    /// Checks whether its disk has less than `minimumBytes` free.
    ///
    /// - Returns: The free bytes if it has, and had more at the last check; nil otherwise.
    func newFreeSpaceShortage(below minimumBytes: Int) -> Int? {
        let (free, wasShort) = (freeBytes ?? .max, isShortOfFreeSpace)
        isShortOfFreeSpace = free < minimumBytes
        return isShortOfFreeSpace && !wasShort ? free : nil
    }

    /// Opens the folder at the path again, after the folder was removed, moved or replaced, or its lock file was
    /// removed. The files of a lost folder are lost.
    ///
    /// - Throws: As `init`. The state is then unchanged.
    func reopenFolder() throws {
        defer { for pid in workerPids { _ = makeFolder(of: pid) } }
        guard !isFolderInPlace else { return }
        let (folder, lock) = try Self.openFolder(path)
        let isSame = FileIdentity(descriptor: folder) == FileIdentity(descriptor: self.folderDescriptor)
        close(self.folderDescriptor)
        self.folderDescriptor = folder
        self.lock = lock
        guard !isSame else { return }
        hasReplacedFolder = true
        try removeStaleFiles(keeping: [])
    }

    /// Returns whether a file is missing, possibly because its folder was removed.
    func mayHaveLostFile(_ name: String) -> Bool { (hasReplacedFolder || !isInPlace) && length(of: name) == nil }

    private static func openFolder(_ path: String, lockAttempts: Int = 1) throws -> (folder: Int32, lock: LockFile) {
        try PrivateFolder.makeOrCheckStore(path)
        try PrivateFolder.checkFiles([lockName], in: path)
        guard let lock = try acquireLock(path, attempts: lockAttempts) else {
            throw BrokerError("the spool \(path) belongs to another broker; choose one with --spool")
        }
        let folder = unsafe Glibc.open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard folder >= 0 else { throw SystemError("open the spool \(path)", number: errno) }
        return (folder, lock)
    }

    /// Takes the lock. Another bus of the user may have it for some milliseconds, to take over partial bodies. Waits
    /// only at the start, before there is a loop.
    private static func acquireLock(_ path: String, attempts: Int) throws(SystemError) -> LockFile? {
        for attempt in 1...attempts {
            if let lock = try LockFile.acquire("\(path)/\(lockName)") { return lock }
            if attempt < attempts { usleep(50_000) }
        }
        return nil
    }

    private func removeStaleFiles(keeping kept: Set<String>) throws {
        for name in try entryNames()
        where SpoolName.isContentAddressed(name) && !kept.contains(name) || SpoolName.isKeptPart(name)
            || SpoolName.isTakenFile(name)
        {
            remove(name)
        }
        removeFilesOfEndedProcesses { _ in false }
    }

    deinit {
        close(folderDescriptor)
    }

    /// Renames a worker's finished file to its content's name.
    ///
    /// - Parameter isLinked: Whether the cache may have a second link to the file.
    /// - Returns: false if the file is missing, has another length, or is a link.
    func adopt(_ name: String, as other: String, length: Int, isLinked: Bool = false) -> Bool {
        var status = stat()
        guard isOwnFile(name, &status), status.st_size == length, isLinked || status.st_nlink == 1 else { return false }
        guard rename(name, to: other) else { return false }
        // rename(2) does nothing for two links to one file, so the old name is removed.
        if isLinked { remove(name) }
        return true
    }

    /// Takes a partial body back from the worker that wrote it.
    ///
    /// - Returns: Its length in bytes; nil unless it is a non-empty regular file of this user with one link.
    func reclaimPart(_ name: String, as kept: String) -> Int? {
        var status = stat()
        guard isOwnFile(name, &status), status.st_nlink == 1, status.st_size > 0 else { return nil }
        return rename(name, to: kept) ? status.st_size : nil
    }

    /// Renames a file.
    ///
    /// - Returns: Whether the file existed.
    @discardableResult
    func rename(_ name: String, to other: String) -> Bool {
        let (oldPath, newPath) = (SpoolName.relativePath(of: name), SpoolName.relativePath(of: other))
        return unsafe renameat(folderDescriptor, oldPath, folderDescriptor, newPath) == 0
    }

    /// Renames a file that its receiver owns from then on.
    ///
    /// - Returns: Whether that happened: the file is there, and has no other link.
    func renameForReceiver(_ name: String, to other: String) -> Bool {
        var status = stat()
        return isOwnFile(name, &status) && status.st_nlink == 1 && rename(name, to: other)
    }

    /// Writes a file under the name of its content.
    ///
    /// - Parameter expected: Name that a worker reported; nil for none.
    /// - Returns: That name; nil if the report is wrong, or if the disk does not accept the file.
    func writeContent(_ bytes: [UInt8], expectedName expected: String? = nil) -> String? {
        let name = SHA256.digest(of: bytes.span).hex
        guard name == expected ?? name else { return nil }
        let part = SpoolName.temporaryFile(for: "copy", pid: getpid())
        let file = unsafe openat(folderDescriptor, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o400)
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

    /// Reads a whole file; nil if it is missing or longer than `limit` bytes.
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

    /// Reads a part of a file. Opens the file each time, so that a reader holds no descriptor between its READs.
    ///
    /// - Returns: At most `count` bytes; fewer at the end of the file, none if it is missing.
    func read(_ name: String, from offset: Int, count: Int) -> [UInt8] {
        guard let file = open(name) else { return [] }
        defer { close(file) }
        let bytes = unsafe [UInt8](unsafeUninitializedCapacity: count) { target, taken in
            while taken < count {
                let rest = unsafe UnsafeMutableRawBufferPointer(
                    rebasing: UnsafeMutableRawBufferPointer(target)[taken...])
                let read = unsafe pread(file, rest.baseAddress, rest.count, offset + taken)
                guard read > 0 || (read < 0 && errno == EINTR) else { break }
                taken += max(0, read)
            }
        }
        return bytes
    }

    /// Opens a part of a file for sending, and has the kernel read the bytes after it ahead. The file is opened for
    /// each part, so that a reader holds no descriptor between its READs.
    ///
    /// - Returns: At most `byteCount` bytes from `offset`; nil if there are none.
    func openFilePart(of name: String, fromOffset offset: Int, byteCount: Int) -> FilePart? {
        guard let file = open(name) else { return nil }
        var status = stat()
        guard unsafe fstat(file, &status) == 0, status.st_mode & S_IFMT == S_IFREG, status.st_size > offset else {
            close(file)
            return nil
        }
        let part = FilePart(file, offset: offset, count: min(byteCount, status.st_size - offset))
        if part.count == byteCount { posix_fadvise(file, offset + byteCount, Self.readAheadBytes, POSIX_FADV_WILLNEED) }
        return part
    }

    /// Creates an unlinked file of the broker, which disappears when it is closed. The caller must close it.
    func makeUnnamedFile() throws(SystemError) -> Int32 {
        let name = SpoolName.temporaryFile(for: "waiting", pid: getpid())
        let file = unsafe openat(folderDescriptor, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
        guard file >= 0 else { throw SystemError("make a spool file", number: errno) }
        remove(name)
        return file
    }

    /// Opens a file for reading; nil if it is missing. The caller must close it.
    func open(_ name: String) -> Int32? {
        let file = unsafe openat(folderDescriptor, SpoolName.relativePath(of: name), O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
        return file >= 0 ? file : nil
    }

    /// Length in bytes of a regular file of this user; nil if there is none.
    func length(of name: String) -> Int? {
        var status = stat()
        return isOwnFile(name, &status) ? status.st_size : nil
    }

    /// Reads the status of a file.
    ///
    /// - Returns: Whether it is a regular file of this user without set-user-ID and set-group-ID.
    private func isOwnFile(_ name: String, _ status: inout stat) -> Bool {
        unsafe fstatat(folderDescriptor, SpoolName.relativePath(of: name), &status, AT_SYMLINK_NOFOLLOW) == 0
            && status.st_mode & S_IFMT == S_IFREG && status.st_mode & (S_ISUID | S_ISGID) == 0
            && status.st_uid == getuid()
    }

    /// Removes a file. The last close of a large file frees its blocks, so a thread closes it.
    func remove(_ name: String) {
        let path = SpoolName.relativePath(of: name)
        var status = stat()
        // A file that a client took is no longer here.
        guard unsafe fstatat(folderDescriptor, path, &status, AT_SYMLINK_NOFOLLOW) == 0 else { return }
        let file = status.st_size >= Self.largeFileBytes ? open(name) : nil
        unsafe unlinkat(folderDescriptor, path, 0)
        if let file { closingThread.submit(file) }
    }

    /// Removes unfinished files of attempts that are not `isHeld`, and other files of ended processes. O(files).
    ///
    /// A held attempt's file stays even if its worker is dead, because the worker's last messages may be unread.
    func removeUnfinishedFiles(isHeld: (AttemptID) -> Bool) {
        for part in unfinishedFiles()
        where part.attempt.map({ !isHeld($0) }) ?? ProcessDescriptor.hasEnded(pid: part.pid) {
            remove(part.path)
        }
        removeEmptyWorkerFolders()
    }

    /// Removes files of ended processes, except files of `isHeld` attempts. Those are taken back when the end of their
    /// worker is reported.
    func removeFilesOfEndedProcesses(isHeld: (AttemptID) -> Bool) {
        for part in unfinishedFiles()
        where ProcessDescriptor.hasEnded(pid: part.pid) && !(part.attempt.map(isHeld) ?? false) { remove(part.path) }
        removeEmptyWorkerFolders()
    }

    /// Removes the empty folders of ended processes.
    private func removeEmptyWorkerFolders() {
        for name in (try? entryNames()) ?? [] {
            guard let pid = SpoolName.workerPID(ofFolder: name), ProcessDescriptor.hasEnded(pid: pid) else { continue }
            workerPids.remove(pid)
            unsafe unlinkat(folderDescriptor, name, AT_REMOVEDIR)
        }
    }

    /// Living processes that have unfinished files here. O(files).
    func liveWriterPids() -> Set<Int32> {
        Set(unfinishedFiles().map(\.pid)).filter { !ProcessDescriptor.hasEnded(pid: $0) }
    }

    /// Unfinished files by their paths, each with its process and attempt; without an attempt for files of the broker's
    /// own, and for others in the folders of workers.
    private func unfinishedFiles() -> [(path: String, pid: Int32, attempt: AttemptID?)] {
        ((try? entryNames()) ?? []).flatMap { name -> [(path: String, pid: Int32, attempt: AttemptID?)] in
            guard let pid = SpoolName.workerPID(ofFolder: name) else {
                // A worker of an earlier version wrote here.
                return SpoolName.writer(of: name).map { [("./\(name)", $0.pid, $0.attempt)] } ?? []
            }
            return ((try? entryNames(in: name)) ?? []).map { ("\(name)/\($0)", pid, SpoolName.writer(of: $0)?.attempt) }
        }
    }

    private func entryNames(in path: String = ".") throws -> [String] {
        let opened = unsafe openat(folderDescriptor, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard let stream = unsafe fdopendir(opened) else {
            if opened >= 0 { close(opened) }
            throw SystemError("read the spool", number: errno)
        }
        defer { unsafe closedir(stream) }
        var names: [String] = []
        while let entry = unsafe readdir(stream) {
            let name = unsafe withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
                unsafe String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
            }
            if name != ".", name != ".." { names.append(name) }
        }
        return names
    }
}
