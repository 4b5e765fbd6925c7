internal import EarshotLoop
public import EarshotWire
internal import Glibc
internal import LibCrypto

/// Folder of partial bodies that outlive their flights, their broker and the machine's uptime. Several brokers of one user
/// use it at once.
///
/// | name | file |
/// | --- | --- |
/// | `salt` | secret for the names |
/// | `NAME.body`, `NAME.head` | a partial body that no attempt has, and its description |
/// | `NAME.head` alone | the same description under a second name, that of the first URL of a chain of redirects |
/// | `growing/ID` | description of a body that an attempt has, in the spool of its broker |
///
/// A body is moved by rename(2), so only one process gets it. A description names the inode of its body, so that the two
/// never belong to different bodies.
public final class PartFolder: Sendable {
    /// Least number of bytes that are kept.
    public static let leastBytes = 1 << 20

    /// Path of the folder, absolute.
    public let path: String
    let folder: Int32
    let growing: Int32
    private let salt: HMAC
    /// Present boot of the machine.
    let boot: String

    /// Opens the folder, and creates it if it is missing.
    ///
    /// - Throws: `StoreError`; of kind `distrusted` if others can write to the folder.
    public init(_ path: String) throws(StoreError) {
        self.path = path
        do {
            // Before anything is created below a folder that others can change, and in a folder of somebody else.
            if try PrivateFolder.isStore(path), try !Self.isOwn(path) {
                throw StoreError(
                    "\(path) has other files than partial bodies; choose another place with --cache-folder", .foreign)
            }
            try PrivateFolder.makeStore(path)
            try PrivateFolder.makeStore(path + "/growing")
            try PrivateFolder.checkFiles(["salt"], in: path)
        } catch let error as FolderError {
            throw StoreError(error)
        } catch {
            throw error as? StoreError ?? StoreError("\(error)")
        }
        salt = HMAC(key: try Salt.read(path + "/salt"))
        boot = Self.readBoot()
        folder = unsafe open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard folder >= 0 else { throw StoreError("cannot open \(path): \(SystemError("open", number: errno))") }
        growing = unsafe openat(folder, "growing", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard growing >= 0 else {
            let error = SystemError("open", number: errno)
            close(folder)
            throw StoreError("cannot open \(path)/growing: \(error)")
        }
    }

    deinit {
        close(folder)
        close(growing)
    }

    /// Returns the ID that the kernel has drawn at its start, random(4); if it cannot be read, one that no other process has.
    private static func readBoot() -> String {
        let file = unsafe open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC)
        defer { close(file) }
        var bytes = [UInt8](repeating: 0, count: 36)
        guard file >= 0, unsafe read(file, &bytes, bytes.count) == bytes.count else {
            return Hex.encode(Secret.randomBytes(16))
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Whether an existing folder is one of parts, or empty.
    private static func isOwn(_ path: String) throws(StoreError) -> Bool {
        let opened = unsafe open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard opened >= 0 else { throw StoreError("cannot open \(path): \(SystemError("open", number: errno))") }
        defer { close(opened) }
        // Not the list of all names, which takes long with many parts.
        return unsafe faccessat(opened, "salt", F_OK, AT_SYMLINK_NOFOLLOW) == 0
            || Self.names(in: opened).allSatisfy { $0 == "growing" || $0.hasPrefix("salt.") }
    }

    /// Returns the names of a part.
    public func names(of keys: PartKeys) -> [String] {
        // The version of the texts changes with their meaning.
        keys.texts.map { salt.code(of: Array("1\n\($0)".utf8)).hex }
    }

    /// Whether bodies of a spool can be renamed to this folder. Two mounts of one file system have the same device.
    public func accepts(spool: String) -> Bool {
        let draft = "probe.\(getpid()).new"
        let file = unsafe open("\(spool)/\(draft)", O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0o600)
        guard file >= 0 else { return false }
        close(file)
        let isMoved = unsafe renameat(AT_FDCWD, "\(spool)/\(draft)", growing, draft) == 0
        unsafe unlink("\(spool)/\(draft)")
        unsafe unlinkat(growing, draft, 0)
        return isMoved
    }

    /// Returns the description of a body that an attempt has.
    public func head(of part: PartDescription, _ keys: PartKeys, at path: String) -> PartHead? {
        guard let body = Body(path: path) else { return nil }
        return PartHead(
            part, names: names(of: keys), owner: keys.owner?.description ?? "", path: path, device: body.device,
            inode: body.inode, boot: boot)
    }

    /// A number that differs after a change of the folder, by any process; nil if it cannot be examined. Two changes within a
    /// tick of the file system's clock may count as one.
    public var changes: Int? {
        var status = stat()
        guard unsafe fstat(folder, &status) == 0 else { return nil }
        return status.st_mtim.tv_sec &* 1_000_000_000 &+ status.st_mtim.tv_nsec
    }

    /// Whether the folder, or the one of descriptions in it, was removed since it was opened.
    public var isRemoved: Bool { Self.isRemoved(folder) || Self.isRemoved(growing) }

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
    public func record(_ head: PartHead, as id: String) -> Bool {
        guard let bytes = head.encoded() else { return false }
        return write(bytes, as: id, in: growing)
    }

    /// Removes the description of a body that has ended.
    public func forget(_ id: String) { unsafe unlinkat(growing, id, 0) }

    // MARK: Bodies that no attempt has

    /// Takes a body out of the spool.
    ///
    /// - Returns: Whether the body is kept. If not, it stays where it is.
    public func store(_ head: PartHead) -> Bool {
        guard let body = Body(path: head.path), body.matches(head), body.size >= Self.leastBytes,
            let name = head.names.first,
            let bytes = head.encoded()
        else { return false }
        for name in head.names.reversed() {
            guard write(bytes, as: "\(name).head", in: folder) else { return false }
        }
        // A sweep removes the former body: to free its blocks takes long.
        unsafe renameat(folder, "\(name).body", folder, "\(name).\(getpid()).new")
        guard unsafe renameat(AT_FDCWD, head.path, folder, "\(name).body") == 0 else { return false }
        unsafe utimensat(folder, "\(name).body", nil, AT_SYMLINK_NOFOLLOW)
        return true
    }

    /// A part that was moved to an attempt.
    public struct AssignedPart: Sendable {
        public var head: PartHead
        /// Number of bytes that count.
        public var bytes: Int
        /// SHA-256 that these bytes must have, of a body that was written before the last boot; nil for another one.
        public var sha256: String?
    }

    /// Moves a body to an attempt, and drops one that is not as its description says.
    ///
    /// - Parameters:
    ///   - names: Names to look for, the best first.
    ///   - maxBytes: Most bytes that the attempt accepts; nil for any number. A longer part stays.
    ///   - path: Path to which the body moves, on the same file system.
    ///   - id: As for `record`.
    /// - Returns: Nil if there is none.
    public func assign(_ names: [String], maxBytes: Int?, to path: String, as id: String) -> AssignedPart? {
        for name in names {
            guard var head = readHead("\(name).head", in: folder), head.names.contains(name) else { continue }
            // A description under a second name may be older than the body.
            guard name == head.names[0] || readHead("\(head.names[0]).head", in: folder) == head else {
                unsafe unlinkat(folder, "\(name).head", 0)
                continue
            }
            let place = "\(head.names[0]).body"
            // Another broker may be storing the body of this description.
            guard let body = Body(place, in: folder), body.matches(head) else { continue }
            guard let count = count(body, head) else {
                drop(head)
                continue
            }
            guard count.bytes <= maxBytes ?? .max else { continue }
            head.path = path
            // Before the move, so that a broker which follows a crash finds the body.
            guard record(head, as: id) else { continue }
            guard unsafe renameat(folder, place, AT_FDCWD, path) == 0 else {
                forget(id)
                continue
            }
            for name in head.names { unsafe unlinkat(folder, "\(name).head", 0) }
            // A complete body, whose DONE was lost, is read-only.
            unsafe fchmodat(AT_FDCWD, path, 0o600, 0)
            // Another broker may have replaced the body since the check.
            guard Body(path: path)?.matches(head) == true else {
                unsafe unlink(path)
                forget(id)
                continue
            }
            return AssignedPart(head: head, bytes: count.bytes, sha256: count.sha256)
        }
        return nil
    }

    /// Number of the bytes of a body that count. After a boot these are the bytes of the last checkpoint: what was written
    /// later may not have reached the disk.
    func count(_ body: Body, _ head: PartHead) -> (bytes: Int, sha256: String?)? {
        var count: (bytes: Int, sha256: String?) = (body.size, nil)
        if head.boot != boot {
            guard let checkpoint = head.part.checkpoint else { return nil }
            count = (checkpoint.bytes, checkpoint.sha256)
        }
        guard count.bytes >= Self.leastBytes, count.bytes <= body.size, count.bytes <= head.part.totalBytes ?? .max
        else { return nil }
        return count
    }

    private func drop(_ head: PartHead) {
        for name in head.names { unsafe unlinkat(folder, "\(name).head", 0) }
        unsafe unlinkat(folder, "\(head.names[0]).body", 0)
    }

    // MARK: Files

    /// Status of a body file.
    struct Body {
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
            status.st_mode & 0o077 == 0, status.st_size <= PartHead.mostBytes
        else { return nil }
        var bytes = [UInt8](repeating: 0, count: status.st_size)
        guard unsafe read(file, &bytes, bytes.count) == bytes.count else { return nil }
        return PartHead(bytes)
    }

    /// Creates or replaces a file. Readers see the former content or the new one.
    private func write(_ bytes: [UInt8], as name: String, in folder: Int32) -> Bool {
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
