internal import Glibc

/// The bodies that are files: one for each content, named by its SHA-256, and never changed.
///
/// They are other links to the files of a spool where both are on one file system, and copies where not. So neither side
/// has to ask the other before it removes its own.
public final class BodyFolder {
    private let folder: Int32

    /// Opens a folder that is there.
    /// - Throws: `StoreError`.
    public init(_ path: String) throws(StoreError) {
        folder = unsafe Glibc.open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard folder >= 0 else { throw StoreError("cannot open the folder \(path)") }
    }

    deinit { close(folder) }

    /// Takes a whole file, given by a descriptor, under its sum.
    ///
    /// - Parameter isForGood: whether its content is to be on the disk before this returns; `flush` is for its name.
    /// - Returns: whether it is there now.
    public func take(_ file: Int32, as sha256: String, isForGood: Bool = false) -> Bool {
        if unsafe linkat(AT_FDCWD, "/proc/self/fd/\(file)", folder, sha256, AT_SYMLINK_FOLLOW) == 0 {
            return !isForGood || fsync(file) == 0
        }
        if errno == EEXIST { return true }
        // Another file system, or a file that has no name any more.
        let part = "\(getpid()).part"
        unsafe unlinkat(folder, part, 0)
        let copy = unsafe openat(folder, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o400)
        guard copy >= 0 else { return false }
        defer { close(copy) }
        guard Self.copy(file, to: copy), !isForGood || fsync(copy) == 0, unsafe renameat(folder, part, folder, sha256) == 0 else {
            unsafe unlinkat(folder, part, 0)
            return false
        }
        return true
    }

    /// Puts a body into a spool under a name of its own.
    /// - Returns: whether it is there, of that length.
    public func give(_ sha256: String, length: Int, to spool: Int32, as part: String) -> Bool {
        let file = unsafe openat(folder, sha256, O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
        guard file >= 0 else { return false }
        defer { close(file) }
        var status = stat()
        guard unsafe fstat(file, &status) == 0, status.st_mode & S_IFMT == S_IFREG, status.st_size == length else {
            return false
        }
        if unsafe linkat(folder, sha256, spool, part, 0) == 0 { return true }
        let copy = unsafe openat(spool, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o400)
        guard copy >= 0 else { return false }
        defer { close(copy) }
        if Self.copy(file, to: copy) { return true }
        unsafe unlinkat(spool, part, 0)
        return false
    }

    /// Nothing happens if it is not there.
    public func remove(_ name: String) { unsafe unlinkat(folder, name, 0) }

    /// Has the names of all that was taken on the disk.
    /// - Returns: whether they are.
    public func flush() -> Bool { fsync(folder) == 0 }

    /// Opens a body to read.
    public func open(_ name: String) -> Int32? {
        let file = unsafe openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
        return file >= 0 ? file : nil
    }

    /// Names and lengths of all that is there, unfinished copies included.
    public func list() -> [(name: String, length: Int)] {
        let copy = unsafe openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard copy >= 0, let stream = unsafe fdopendir(copy) else { return [] }
        defer { unsafe closedir(stream) }
        var found: [(name: String, length: Int)] = []
        while let entry = unsafe readdir(stream) {
            let name = unsafe withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
                unsafe String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
            }
            var status = stat()
            guard unsafe fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0, status.st_mode & S_IFMT != S_IFDIR
            else { continue }
            found.append((name, status.st_size))
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
