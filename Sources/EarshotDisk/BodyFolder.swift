internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import LibCrypto
internal import Synchronization

/// Content-addressed store of body files: each is named by its SHA-256 and never changed.
///
/// A body is a hard link to a file of the spool if both are on one file system, otherwise a copy. Either side can
/// therefore remove its own file independently.
public final class BodyFolder {
    /// Attributes that change when a file is written or replaced.
    private struct FileStamp: Equatable {
        let inode: UInt
        let length: Int
        let modificationSeconds: Int
        let modificationNanoseconds: Int

        init(_ status: stat) {
            inode = status.st_ino
            length = status.st_size
            modificationSeconds = status.st_mtim.tv_sec
            modificationNanoseconds = status.st_mtim.tv_nsec
        }
    }

    private let folderDescriptor: Int32
    /// Attributes of files whose contents were verified against their names.
    private var verifiedFiles: [String: FileStamp] = [:]
    /// Number of files that this process has begun in spools.
    private static let createdSpoolFileCount = Atomic<UInt64>(0)

    /// Opens an existing folder.
    /// - Throws: `StoreError`.
    public init(_ path: String) throws(StoreError) {
        folderDescriptor = unsafe Glibc.open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard folderDescriptor >= 0 else { throw StoreError("cannot open the folder \(path)") }
    }

    deinit { close(folderDescriptor) }

    /// Stores a complete file, passed as a descriptor, under the digest that was computed while it was written.
    ///
    /// - Parameter isFlushed: Whether to flush its contents to disk before returning; `flush` does so for its name.
    /// - Returns: Whether the body is stored.
    public func storeFile(_ file: Int32, as sha256: String, isFlushed: Bool = false) -> Bool {
        // An existing file of that name may be corrupt.
        if hasBody(sha256) { return true }
        if unsafe linkat(AT_FDCWD, "/proc/self/fd/\(file)", folderDescriptor, sha256, AT_SYMLINK_FOLLOW) == 0 {
            guard !isFlushed || fsync(file) == 0 else {
                // A later request for this body must not treat it as flushed.
                remove(sha256)
                return false
            }
            recordVerifiedFile(file, sha256)
            return true
        }
        // Another file system, or a file without a name.
        let part = "\(getpid()).part"
        unsafe unlinkat(folderDescriptor, part, 0)
        let copy = unsafe openat(folderDescriptor, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o400)
        guard copy >= 0 else { return false }
        defer { close(copy) }
        guard Self.copyBytes(file, 0..<Int.max, to: copy), !isFlushed || fsync(copy) == 0,
            unsafe renameat(folderDescriptor, part, folderDescriptor, sha256) == 0
        else {
            unsafe unlinkat(folderDescriptor, part, 0)
            return false
        }
        recordVerifiedFile(copy, sha256)
        return true
    }

    private func hasBody(_ sha256: String) -> Bool {
        guard let file = openVerifiedBody(sha256, length: nil) else { return false }
        close(file)
        return true
    }

    /// Links or copies a body into a spool.
    ///
    /// - Parameters:
    ///   - path: Path of the spool. Opened each time, because the broker recreates a spool that was removed.
    ///   - purpose: Purpose in the name of the file.
    /// - Returns: The name of the file; nil if it is not there with unchanged contents. A file that is never taken is
    ///   removed after this process has ended, whose ID is in the name.
    public func linkOrCopyBody(_ sha256: String, length: Int, toSpool path: String, for purpose: String) -> String? {
        guard let file = openVerifiedBody(sha256, length: length) else { return nil }
        defer { close(file) }
        return createSpoolFile(inSpool: path, for: purpose) { spool, part in
            if unsafe linkat(folderDescriptor, sha256, spool, part, 0) == 0 { return true }
            return Self.copyBytes(file, 0..<length, toSpool: spool, as: part)
        }
    }

    /// Copies a range of a body into a spool.
    ///
    /// - Returns: The name of the file, as from `linkOrCopyBody`, and the SHA-256 of the range.
    public func copyBodyRange(
        _ range: Range<Int>, of sha256: String, length: Int, toSpool path: String, for purpose: String
    ) -> (name: String, sha256: String)? {
        guard let file = openVerifiedBody(sha256, length: length) else { return nil }
        defer { close(file) }
        guard let digest = Self.digest(of: file, range) else { return nil }
        let name = createSpoolFile(inSpool: path, for: purpose) { Self.copyBytes(file, range, toSpool: $0, as: $1) }
        return name.map { ($0, digest) }
    }

    /// Returns a range of a body.
    public func readBytes(of sha256: String, length: Int, range: Range<Int>) -> [UInt8]? {
        guard let file = openVerifiedBody(sha256, length: length) else { return nil }
        defer { close(file) }
        var bytes = [UInt8](repeating: 0, count: range.count)
        return unsafe pread(file, &bytes, bytes.count, range.lowerBound) == range.count ? bytes : nil
    }

    /// Creates a file of a new name in a spool.
    private func createSpoolFile(
        inSpool path: String, for purpose: String, _ write: (Int32, String) -> Bool
    ) -> String? {
        let spool = unsafe Glibc.open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard spool >= 0 else { return nil }
        defer { close(spool) }
        let number = Self.createdSpoolFileCount.add(1, ordering: .relaxed).newValue
        let part = SpoolName.temporaryFile(for: "\(purpose).\(number)", pid: getpid())
        return write(spool, part) ? part : nil
    }

    private static func copyBytes(_ file: Int32, _ range: Range<Int>, toSpool spool: Int32, as part: String) -> Bool {
        let target = unsafe openat(spool, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o400)
        guard target >= 0 else { return false }
        defer { close(target) }
        if copyBytes(file, range, to: target) { return true }
        unsafe unlinkat(spool, part, 0)
        return false
    }

    /// Removes a body. No effect if it does not exist.
    public func remove(_ name: String) {
        verifiedFiles[name] = nil
        unsafe unlinkat(folderDescriptor, name, 0)
    }

    // MARK: Verification

    /// Opens a body whose contents match its name. A corrupt one is removed, so that it can be stored again. A body
    /// changed since its last verification is read again: O(bytes).
    private func openVerifiedBody(_ sha256: String, length: Int?) -> Int32? {
        guard let file = open(sha256) else {
            // A symbolic link is removed. A shortage of descriptors or a disk error is temporary.
            if errno == ELOOP { remove(sha256) }
            return nil
        }
        var status = stat()
        if unsafe fstat(file, &status) == 0, status.st_mode & S_IFMT == S_IFREG,
            status.st_size == length ?? status.st_size
        {
            if verifiedFiles[sha256] == FileStamp(status) { return file }
            if Self.digest(of: file, length: status.st_size) == sha256 {
                verifiedFiles[sha256] = FileStamp(status)
                return file
            }
        }
        close(file)
        remove(sha256)
        return nil
    }

    private func recordVerifiedFile(_ file: Int32, _ sha256: String) {
        var status = stat()
        if unsafe fstat(file, &status) == 0 { verifiedFiles[sha256] = FileStamp(status) }
    }

    /// Returns the digest of a file; nil if its length is not `length`.
    public static func digest(of file: Int32, length: Int) -> String? {
        var next: UInt8 = 0
        guard unsafe pread(file, &next, 1, length) == 0 else { return nil }
        return digest(of: file, 0..<length)
    }

    /// Returns the digest of a range of a file; nil if the file is shorter.
    private static func digest(of file: Int32, _ range: Range<Int>) -> String? {
        var digest = SHA256()
        var piece = [UInt8](repeating: 0, count: 1 << 16)
        var offset = range.lowerBound
        while offset < range.upperBound {
            let count = unsafe pread(file, &piece, min(piece.count, range.upperBound - offset), offset)
            guard count > 0 else { return nil }
            offset += count
            digest.update(piece.span.extracting(0..<count))
        }
        return digest.finalize().hex
    }

    /// Flushes the names of all stored bodies to disk.
    /// - Returns: Whether it succeeded.
    public func flush() -> Bool { fsync(folderDescriptor) == 0 }

    // MARK: Reading

    /// Opens a body for reading.
    public func open(_ name: String) -> Int32? {
        let file = unsafe openat(folderDescriptor, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
        return file >= 0 ? file : nil
    }

    /// Returns names and lengths of all files, including unfinished copies.
    /// - Throws: `StoreError` if the list is incomplete, because missing bodies would count as lost.
    public func list() throws(StoreError) -> [(name: String, length: Int)] {
        let copy = unsafe openat(folderDescriptor, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
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
            guard unsafe fstatat(folderDescriptor, name, &status, AT_SYMLINK_NOFOLLOW) == 0,
                status.st_mode & S_IFMT != S_IFDIR
            else { continue }
            found.append((name, status.st_size))
        }
        guard errno == 0 else {
            throw StoreError("cannot read the folder of bodies: \(SystemError("readdir", number: errno))")
        }
        return found
    }

    /// Copies a range of a file, at most to its end.
    private static func copyBytes(_ file: Int32, _ range: Range<Int>, to copy: Int32) -> Bool {
        var offset: off_t = range.lowerBound
        while offset < range.upperBound {
            let count = unsafe sendfile(copy, file, &offset, min(1 << 20, range.upperBound - offset))
            if count == 0 { return true }
            if count < 0, errno != EINTR { return false }
        }
        return true
    }
}
