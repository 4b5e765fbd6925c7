internal import EarshotLoop
internal import Glibc
internal import LibCrypto

/// The bodies that are files: one for each content, named by its SHA-256, and never changed.
///
/// They are other links to the files of a spool where both are on one file system, and copies where not. So neither
/// side has to ask the other before it removes its own.
public final class BodyFolder {
    /// What changes when somebody writes to a file, or puts another in its place.
    private struct Identity: Equatable {
        let inode: UInt
        let length: Int
        let seconds: Int
        let nanoseconds: Int

        init(_ status: stat) {
            inode = status.st_ino
            length = status.st_size
            seconds = status.st_mtim.tv_sec
            nanoseconds = status.st_mtim.tv_nsec
        }
    }

    private let folder: Int32
    /// Files of which it is known that they are what their name says, as they were then.
    private var intact: [String: Identity] = [:]

    /// Opens a folder that is there.
    /// - Throws: `StoreError`.
    public init(_ path: String) throws(StoreError) {
        folder = unsafe Glibc.open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard folder >= 0 else { throw StoreError("cannot open the folder \(path)") }
    }

    deinit { close(folder) }

    /// Takes a whole file, given by a descriptor, under its sum, which was made while it was written.
    ///
    /// - Parameter isForGood: whether its content is to be on the disk before this returns; `flush` is for its name.
    /// - Returns: whether it is there now.
    public func take(_ file: Int32, as sha256: String, isForGood: Bool = false) -> Bool {
        // What is there by that name may have been spoiled.
        if isThere(sha256) { return true }
        if unsafe linkat(AT_FDCWD, "/proc/self/fd/\(file)", folder, sha256, AT_SYMLINK_FOLLOW) == 0 {
            guard !isForGood || fsync(file) == 0 else {
                // The next one who brings it is not to take it for flushed.
                remove(sha256)
                return false
            }
            noteIntact(file, sha256)
            return true
        }
        // Another file system, or a file that has no name any more.
        let part = "\(getpid()).part"
        unsafe unlinkat(folder, part, 0)
        let copy = unsafe openat(folder, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o400)
        guard copy >= 0 else { return false }
        defer { close(copy) }
        guard Self.copy(file, to: copy), !isForGood || fsync(copy) == 0,
            unsafe renameat(folder, part, folder, sha256) == 0
        else {
            unsafe unlinkat(folder, part, 0)
            return false
        }
        noteIntact(copy, sha256)
        return true
    }

    private func isThere(_ sha256: String) -> Bool {
        guard let file = openIntact(sha256, length: nil) else { return false }
        close(file)
        return true
    }

    /// Puts a body into a spool under a name of its own.
    /// - Returns: whether it is there, as it was.
    public func give(_ sha256: String, length: Int, to spool: Int32, as part: String) -> Bool {
        guard let file = openIntact(sha256, length: length) else { return false }
        defer { close(file) }
        if unsafe linkat(folder, sha256, spool, part, 0) == 0 { return true }
        let copy = unsafe openat(spool, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o400)
        guard copy >= 0 else { return false }
        defer { close(copy) }
        if Self.copy(file, to: copy) { return true }
        unsafe unlinkat(spool, part, 0)
        return false
    }

    /// Nothing happens if it is not there.
    public func remove(_ name: String) {
        intact[name] = nil
        unsafe unlinkat(folder, name, 0)
    }

    // MARK: Whether they are what they were

    /// Opens a body that is what its name says; what is not is removed, so that it can be kept anew. One that was
    /// written or put there since it was looked at is read for that: O(bytes).
    private func openIntact(_ sha256: String, length: Int?) -> Int32? {
        guard let file = open(sha256) else {
            // A link is spoiled; too few descriptors or a disk that fails are nobody's fault, and pass.
            if errno == ELOOP { remove(sha256) }
            return nil
        }
        var status = stat()
        if unsafe fstat(file, &status) == 0, status.st_mode & S_IFMT == S_IFREG,
            status.st_size == length ?? status.st_size
        {
            if intact[sha256] == Identity(status) { return file }
            if Self.digest(of: file, length: status.st_size) == sha256 {
                intact[sha256] = Identity(status)
                return file
            }
        }
        close(file)
        remove(sha256)
        return nil
    }

    private func noteIntact(_ file: Int32, _ sha256: String) {
        var status = stat()
        if unsafe fstat(file, &status) == 0 { intact[sha256] = Identity(status) }
    }

    /// The sum of a file of that length; nil if it has another.
    public static func digest(of file: Int32, length: Int) -> String? {
        var digest = SHA256()
        var piece = [UInt8](repeating: 0, count: 1 << 16)
        var total = 0
        while true {
            let count = unsafe pread(file, &piece, piece.count, total)
            guard count > 0 else { return count == 0 && total == length ? digest.finalize().hex : nil }
            total += count
            digest.update(piece.span.extracting(0..<count))
        }
    }

    /// Has the names of all that was taken on the disk.
    /// - Returns: whether they are.
    public func flush() -> Bool { fsync(folder) == 0 }

    // MARK: Reading

    /// Opens a body to read.
    public func open(_ name: String) -> Int32? {
        let file = unsafe openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
        return file >= 0 ? file : nil
    }

    /// Names and lengths of all that is there, unfinished copies included.
    /// - Throws: `StoreError` when not all can be read: what is missing in the list counts as lost.
    public func list() throws(StoreError) -> [(name: String, length: Int)] {
        let copy = unsafe openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard copy >= 0, let stream = unsafe fdopendir(copy) else {
            throw StoreError("cannot read the folder of bodies: \(SystemError("open", number: errno))")
        }
        defer { unsafe closedir(stream) }
        var found: [(name: String, length: Int)] = []
        while true {
            errno = 0
            guard let entry = unsafe readdir(stream) else { break }
            let name = unsafe withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
                unsafe String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
            }
            var status = stat()
            guard unsafe fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0, status.st_mode & S_IFMT != S_IFDIR
            else { continue }
            found.append((name, status.st_size))
        }
        guard errno == 0 else {
            throw StoreError("cannot read the folder of bodies: \(SystemError("readdir", number: errno))")
        }
        return found
    }

    private static func copy(_ file: Int32, to copy: Int32) -> Bool {
        var offset: off_t = 0
        while true {
            let count = unsafe sendfile(copy, file, &offset, 1 << 20)
            if count == 0 { return true }
            if count < 0, errno != EINTR { return false }
        }
    }
}
