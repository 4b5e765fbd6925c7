internal import EarshotLoop
internal import Glibc

/// The spool folder, held open. Files are created relative to its descriptor, so a replaced path has no effect.
final class SpoolFolder {
    /// Error for a write that would leave less free space than the setting `spool-free`.
    static let reserveReached = SystemError("keep the setting spool-free", number: ENOSPC)

    private let descriptor: Int32
    /// Minimum free space to leave on the disk, in bytes.
    private let minimumFreeBytes: Int

    /// - Throws: `SystemError` if the folder is missing or a symbolic link. `EPERM` if another user owns it or can
    ///   write to it.
    init(_ path: String, minimumFreeBytes: Int = 0) throws(SystemError) {
        self.minimumFreeBytes = minimumFreeBytes
        let descriptor = unsafe open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard descriptor >= 0 else { throw SystemError("open spool", number: errno) }
        self.descriptor = descriptor
        do throws(FolderError) {
            try PrivateFolder.checkStore(descriptor: descriptor, path: path)
        } catch {
            throw SystemError("\(error)", number: EPERM)
        }
    }

    deinit { close(descriptor) }

    /// Creates and locks a new file for reading and writing with mode 0600. Throws if the name exists.
    func create(_ name: String) throws(SystemError) -> Int32 {
        while true {
            let file = unsafe openat(descriptor, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
            guard file < 0 else {
                do throws(SystemError) { try lock(file) } catch {
                    delete(name)
                    throw error
                }
                return file
            }
            let number = errno
            guard number == EINTR else { throw SystemError("create spool file", number: number) }
        }
    }

    /// Opens and locks an existing file, and truncates it to `truncatedTo` bytes. It must be a regular file of this
    /// user with one link, and no shorter.
    func reopenFile(_ name: String, truncatedTo: Int) throws(SystemError) -> Int32 {
        let file = unsafe openat(descriptor, name, O_RDWR | O_APPEND | O_NOFOLLOW | O_CLOEXEC)
        guard file >= 0 else { throw SystemError("open spool file", number: errno) }
        try lock(file)
        var status = stat()
        guard unsafe fstat(file, &status) == 0, status.st_mode & S_IFMT == S_IFREG, status.st_uid == geteuid(),
            status.st_nlink == 1, status.st_size >= truncatedTo
        else {
            close(file)
            throw SystemError("a spool file is not as it was left", number: EINVAL)
        }
        guard ftruncate(file, truncatedTo) == 0 else {
            let number = errno
            close(file)
            throw SystemError("truncate spool file", number: number)
        }
        return file
    }

    /// Locks a file, because a broker takes one without a lock. Closes it if another process has locked it.
    private func lock(_ file: Int32) throws(SystemError) {
        // Without locks on its file system, a body ends with its broker.
        guard flock(file, LOCK_EX | LOCK_NB) != 0, case let number = errno, number == EWOULDBLOCK else { return }
        close(file)
        throw SystemError("lock spool file", number: number)
    }

    /// Returns the number of bytes that can be written before the next check, at most `Limits.spaceCheckIntervalBytes`
    /// or `bytes`.
    ///
    /// - Throws: `reserveReached` if `bytes` more would leave too little free space.
    func writableBytes(for bytes: Int) throws(SystemError) -> Int {
        var status = statvfs()
        guard unsafe fstatvfs(descriptor, &status) == 0 else { throw SystemError("statvfs spool", number: errno) }
        let free = Int(clamping: status.f_bavail).multipliedReportingOverflow(by: Int(clamping: status.f_frsize))
        let room = free.overflow ? Int.max : max(0, free.partialValue - minimumFreeBytes)
        guard room >= bytes else { throw Self.reserveReached }
        return min(room, max(bytes, Limits.spaceCheckIntervalBytes))
    }

    /// Deletes a file, if it exists.
    func delete(_ name: String) {
        unsafe unlinkat(descriptor, name, 0)
    }
}
