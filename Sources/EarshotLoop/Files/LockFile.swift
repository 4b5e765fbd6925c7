internal import CLinux
internal import Glibc

/// Exclusive lock on a file: an open file description lock, fcntl(2).
///
/// The lock lasts as long as this object, and ends with the process. The file stays.
public final class LockFile: Sendable {
    private let descriptor: Int32

    private init(descriptor: Int32) {
        self.descriptor = descriptor
    }

    /// Releases the lock explicitly, because a program being started may share the descriptor until its exec.
    deinit {
        var request = Self.wholeFile
        request.l_type = Int16(F_UNLCK)
        _ = unsafe fcntl(descriptor, linux_f_ofd_setlk, &request)
        close(descriptor)
    }

    /// Acquires the lock once its holder has ended.
    ///
    /// - Parameter milliseconds: Maximum time to wait for the end of the process that holds the lock.
    /// A killed process loses its memory before its files, and then hides them from other processes. So the process
    /// that the file names counts as the holder.
    ///
    /// - Returns: nil if that process goes on, or if the file does not name it.
    public static func take(_ path: String, afterHolder milliseconds: Int32) throws(SystemError) -> LockFile? {
        if let lock = try take(path) { return lock }
        try named(path)?.process.awaitEnd(milliseconds: milliseconds)
        return try take(path)
    }

    /// Acquires the lock. Creates the file with mode 0600 if it does not exist.
    ///
    /// - Returns: nil if another process, or another descriptor of this process, holds the lock.
    public static func take(_ path: String) throws(SystemError) -> LockFile? {
        let descriptor = unsafe open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw SystemError("open lock file") }
        let lock = LockFile(descriptor: descriptor)
        var request = wholeFile
        guard unsafe fcntl(descriptor, linux_f_ofd_setlk, &request) != 0 else {
            writeProcessID(descriptor)
            return lock
        }
        let error = SystemError("lock file")
        guard error.number == EAGAIN || error.number == EACCES else { throw error }
        return nil
    }

    /// Returns whether the path still names this lock's file. If so, no other process can lock that path.
    public func isAt(_ path: String) -> Bool { FileIdentity(path: path) == FileIdentity(descriptor: descriptor) }

    /// Returns whether the lock is held, without acquiring it. False if the file does not exist.
    public static func isHeld(_ path: String) throws(SystemError) -> Bool {
        let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
        guard descriptor >= 0 else {
            let error = SystemError("open lock file")
            if error.number == ENOENT { return false }
            throw error
        }
        defer { close(descriptor) }
        var request = wholeFile
        guard unsafe fcntl(descriptor, linux_f_ofd_getlk, &request) == 0 else { throw SystemError("query lock file") }
        return request.l_type != Int16(F_UNLCK)
    }

    private static var wholeFile: flock {
        flock(l_type: Int16(F_WRLCK), l_whence: Int16(SEEK_SET), l_start: 0, l_len: 0, l_pid: 0)
    }
}
