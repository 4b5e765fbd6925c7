internal import EarshotLoop
public import EarshotWire
internal import Glibc
internal import LibCrypto

/// Folder of partial bodies that outlive their flights, their broker and the machine's uptime. Several brokers of one
/// user use it at once.
///
/// | name | file |
/// | --- | --- |
/// | `salt` | secret for the names |
/// | `NAME.body`, `NAME.head` | a partial body that no attempt has, and its description |
/// | `NAME.head` alone | the same description under a second name, that of the first URL of a chain of redirects |
/// | `growing/ID` | description of a body that an attempt has, in the spool of its broker |
///
/// A body is moved by rename(2), so only one process gets it. A description names the inode of its body, so that the
/// two never belong to different bodies.
public final class PartFolder: Sendable {
    /// Least number of bytes that are kept.
    public static let minimumKeptBytes = 1 << 20

    /// Path of the folder, absolute.
    public let path: String
    let folderDescriptor: Int32
    let growingFolderDescriptor: Int32
    private let nameSalt: HMAC
    /// Present boot of the machine.
    let bootID: String

    /// Opens the folder, and creates it if it is missing.
    ///
    /// - Throws: `StoreError`; of kind `writableByOthers` if others can write to the folder.
    public init(_ path: String) throws(StoreError) {
        self.path = path
        do {
            // Before anything is created below a folder that others can change, and in a folder of somebody else.
            if try PrivateFolder.existsStore(path), try !Self.isPartFolder(path) {
                throw StoreError(
                    "\(path) has other files than partial bodies; choose another place with --cache-folder",
                    .incompatible)
            }
            try PrivateFolder.makeOrCheckStore(path)
            try PrivateFolder.makeOrCheckStore(path + "/growing")
            try PrivateFolder.checkFiles(["salt"], in: path)
        } catch let error as FolderError {
            throw StoreError(error)
        } catch {
            throw error as? StoreError ?? StoreError("\(error)")
        }
        nameSalt = HMAC(key: try Salt.read(path + "/salt"))
        bootID = Self.readBootID()
        folderDescriptor = unsafe open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard folderDescriptor >= 0 else {
            throw StoreError("cannot open \(path): \(SystemError("open", number: errno))")
        }
        growingFolderDescriptor = unsafe openat(
            folderDescriptor, "growing", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard growingFolderDescriptor >= 0 else {
            let error = SystemError("open", number: errno)
            close(folderDescriptor)
            throw StoreError("cannot open \(path)/growing: \(error)")
        }
    }

    deinit {
        close(folderDescriptor)
        close(growingFolderDescriptor)
    }

    /// Returns the ID that the kernel has drawn at its start, random(4); if it cannot be read, one that no other
    /// process has.
    private static func readBootID() -> String {
        let file = unsafe open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC)
        defer { close(file) }
        var bytes = [UInt8](repeating: 0, count: 36)
        guard file >= 0, unsafe read(file, &bytes, bytes.count) == bytes.count else {
            return Hex.encode(Secret.randomBytes(16))
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Whether an existing folder is one of parts, or empty.
    private static func isPartFolder(_ path: String) throws(StoreError) -> Bool {
        let opened = unsafe open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard opened >= 0 else { throw StoreError("cannot open \(path): \(SystemError("open", number: errno))") }
        defer { close(opened) }
        func hasSalt() -> Bool { unsafe faccessat(opened, "salt", F_OK, AT_SYMLINK_NOFOLLOW) == 0 }
        // The list of all names takes long with many parts. Another broker may have created the salt, and parts, before
        // the list was read.
        return hasSalt()
            || Self.entryNames(in: opened).allSatisfy { $0 == "growing" || $0.hasPrefix("salt.") }
            || hasSalt()
    }

    /// Returns the names of a part.
    public func partNames(for keys: PartKeys) -> [String] {
        // The version of the texts changes with their meaning.
        keys.keyTexts.map { nameSalt.authenticationCode(of: Array("1\n\($0)".utf8)).hex }
    }

    /// Whether bodies of a spool can be renamed to this folder. Two mounts of one file system have the same device.
    public func sharesFileSystem(withSpool: String) -> Bool {
        let draft = "probe.\(getpid()).new"
        let file = unsafe open("\(withSpool)/\(draft)", O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0o600)
        guard file >= 0 else { return false }
        close(file)
        let isMoved = unsafe renameat(AT_FDCWD, "\(withSpool)/\(draft)", growingFolderDescriptor, draft) == 0
        unsafe unlink("\(withSpool)/\(draft)")
        unsafe unlinkat(growingFolderDescriptor, draft, 0)
        return isMoved
    }

    /// Returns the description of a body that an attempt has.
    public func makeHead(of part: PartDescription, keys: PartKeys, at path: String) -> PartHead? {
        guard let body = BodyStatus(path: path) else { return nil }
        return PartHead(
            part, keyDigests: partNames(for: keys), owner: keys.owner?.description ?? "", bodyPath: path,
            device: body.device, inode: body.inode, bootID: bootID)
    }

    /// A number that differs after a change of the folder, by any process; nil if it cannot be examined. Two changes
    /// within a tick of the file system's clock may count as one.
    public var changeStamp: Int? {
        var status = stat()
        guard unsafe fstat(folderDescriptor, &status) == 0 else { return nil }
        return status.st_mtim.tv_sec &* 1_000_000_000 &+ status.st_mtim.tv_nsec
    }

    /// Whether the folder, or the one of descriptions in it, was removed since it was opened.
    public var isRemoved: Bool { Self.isRemoved(folderDescriptor) || Self.isRemoved(growingFolderDescriptor) }

    private static func isRemoved(_ folder: Int32) -> Bool {
        var status = stat()
        return unsafe fstat(folder, &status) == 0 && status.st_nlink == 0
    }

    // MARK: Bodies that grow

    /// Stores the description of a body that an attempt has, for a broker after this one.
    ///
    /// - Parameter id: Name that no other body has, also not of another broker.
    /// - Returns: Whether the disk took it.
    @discardableResult
    public func recordHead(_ head: PartHead, as id: String) -> Bool {
        guard let bytes = head.encoded() else { return false }
        return replaceFile(bytes, as: id, in: growingFolderDescriptor)
    }

    /// Removes the description of a body that has ended.
    public func removeHead(id: String) { unsafe unlinkat(growingFolderDescriptor, id, 0) }

    // MARK: Bodies that no attempt has

    /// Takes a body out of the spool.
    ///
    /// - Returns: Whether the body is kept. If not, it stays where it is.
    public func storePart(_ head: PartHead) -> Bool {
        guard let body = BodyStatus(path: head.bodyPath), body.matches(head), body.size >= Self.minimumKeptBytes,
            let name = head.keyDigests.first, let bytes = head.encoded()
        else { return false }
        for name in head.keyDigests.reversed() {
            guard replaceFile(bytes, as: "\(name).head", in: folderDescriptor) else { return false }
        }
        // A sweep removes the former body: to free its blocks takes long.
        unsafe renameat(folderDescriptor, "\(name).body", folderDescriptor, "\(name).\(getpid()).new")
        guard unsafe renameat(AT_FDCWD, head.bodyPath, folderDescriptor, "\(name).body") == 0 else { return false }
        unsafe utimensat(folderDescriptor, "\(name).body", nil, AT_SYMLINK_NOFOLLOW)
        return true
    }

    /// A part that was moved to an attempt.
    public struct AssignedPart: Sendable {
        public var head: PartHead
        /// Number of bytes that count.
        public var usableBytes: Int
        /// SHA-256 that these bytes must have, of a body that was written before the last boot; nil for another one.
        public var sha256: String?
    }

    /// Moves a body to an attempt, and drops one that does not match its description.
    ///
    /// - Parameters:
    ///   - names: Names to look for, the best first.
    ///   - maximumBytes: Maximum number of bytes that the attempt accepts; nil for any number. A longer part stays.
    ///   - path: Path to which the body moves, on the same file system.
    ///   - id: As for `recordHead`.
    /// - Returns: Nil if there is none.
    public func assignPart(named names: [String], maximumBytes: Int?, to path: String, as id: String) -> AssignedPart? {
        for name in names {
            guard var head = readHead("\(name).head", in: folderDescriptor), head.keyDigests.contains(name) else {
                continue
            }
            // A description under a second name may be older than the body.
            guard name == head.keyDigests[0] || readHead("\(head.keyDigests[0]).head", in: folderDescriptor) == head
            else {
                unsafe unlinkat(folderDescriptor, "\(name).head", 0)
                continue
            }
            let place = "\(head.keyDigests[0]).body"
            // Another broker may be storing the body of this description.
            guard let body = BodyStatus(place, in: folderDescriptor), body.matches(head) else { continue }
            guard let count = usableBytes(of: body, head: head) else {
                removePart(head)
                continue
            }
            guard count.bytes <= maximumBytes ?? .max else { continue }
            head.bodyPath = path
            // Before the move, so that a broker which follows a crash finds the body.
            guard recordHead(head, as: id) else { continue }
            guard unsafe renameat(folderDescriptor, place, AT_FDCWD, path) == 0 else {
                removeHead(id: id)
                continue
            }
            for name in head.keyDigests { unsafe unlinkat(folderDescriptor, "\(name).head", 0) }
            // A complete body, whose DONE was lost, is read-only.
            unsafe fchmodat(AT_FDCWD, path, 0o600, 0)
            // Another broker may have replaced the body since the check.
            guard BodyStatus(path: path)?.matches(head) == true else {
                unsafe unlink(path)
                removeHead(id: id)
                continue
            }
            return AssignedPart(head: head, usableBytes: count.bytes, sha256: count.sha256)
        }
        return nil
    }

    /// Number of the bytes of a body that count. After a boot these are the bytes of the last checkpoint: bytes written
    /// later may not have reached the disk.
    func usableBytes(of body: BodyStatus, head: PartHead) -> (bytes: Int, sha256: String?)? {
        var count: (bytes: Int, sha256: String?) = (body.size, nil)
        if head.bootID != bootID {
            guard let checkpoint = head.part.checkpoint else { return nil }
            count = (checkpoint.byteCount, checkpoint.sha256)
        }
        guard count.bytes >= Self.minimumKeptBytes, count.bytes <= body.size,
            count.bytes <= head.part.totalBytes ?? .max
        else { return nil }
        return count
    }

    private func removePart(_ head: PartHead) {
        for name in head.keyDigests { unsafe unlinkat(folderDescriptor, "\(name).head", 0) }
        unsafe unlinkat(folderDescriptor, "\(head.keyDigests[0]).body", 0)
    }

    // MARK: Files

    /// Status of a body file.
    struct BodyStatus {
        let size: Int
        let device: UInt64
        let inode: UInt64

        /// Nil unless it is a regular file of this user with one link, which no other user can open.
        init?(_ name: String, in folder: Int32) {
            var status = stat()
            guard unsafe fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0,
                status.st_mode & S_IFMT == S_IFREG, status.st_mode & 0o077 == 0, status.st_uid == geteuid(),
                status.st_nlink == 1
            else { return nil }
            size = Int(status.st_size)
            device = UInt64(status.st_dev)
            inode = UInt64(status.st_ino)
        }

        init?(path: String) { self.init(path, in: AT_FDCWD) }

        /// Whether it is the file that a description names. Its device may have another number after a boot.
        func matches(_ head: PartHead) -> Bool { inode == head.inode }
    }

    func readHead(_ name: String, in folder: Int32) -> PartHead? {
        let file = unsafe openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
        guard file >= 0 else { return nil }
        defer { close(file) }
        var status = stat()
        guard unsafe fstat(file, &status) == 0, status.st_mode & S_IFMT == S_IFREG, status.st_uid == geteuid(),
            status.st_mode & 0o077 == 0, status.st_size <= PartHead.maximumBytes
        else { return nil }
        var bytes = [UInt8](repeating: 0, count: status.st_size)
        guard unsafe read(file, &bytes, bytes.count) == bytes.count else { return nil }
        return PartHead(bytes)
    }

    /// Creates or replaces a file. Readers see the former content or the new one.
    private func replaceFile(_ bytes: [UInt8], as name: String, in folder: Int32) -> Bool {
        let draft = "\(name).\(getpid()).new"
        let file = unsafe openat(folder, draft, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0o600)
        guard file >= 0 else { return false }
        let count = unsafe Glibc.write(file, bytes, bytes.count)
        close(file)
        if count == bytes.count, unsafe renameat(folder, draft, folder, name) == 0 { return true }
        unsafe unlinkat(folder, draft, 0)
        return false
    }
}
