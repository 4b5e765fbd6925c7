internal import CLinux
internal import Glibc

/// A lock on a path, held as long as this object lives or the process does: open file description locks, fcntl(2).
/// It survives no crash and needs no cleaning up; the file itself stays.
public final class LockFile: Sendable {
    private let descriptor: Int32

    private init(descriptor: Int32) {
        self.descriptor = descriptor
    }

    /// Gives it up at once, also where a program that is about to be started has the descriptor until it is loaded.
    deinit {
        var request = Self.wholeFile
        request.l_type = Int16(F_UNLCK)
        _ = unsafe fcntl(descriptor, linux_f_ofd_setlk, &request)
        close(descriptor)
    }

    /// Takes the lock, making the file (0600) if need be.
    ///
    /// - Returns: nil when somebody else holds it, be it another process or another opening in this one.
    public static func take(_ path: String) throws(SystemError) -> LockFile? {
        let descriptor = unsafe open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw SystemError("open lock file") }
        let lock = LockFile(descriptor: descriptor)
        var request = wholeFile
        guard unsafe fcntl(descriptor, linux_f_ofd_setlk, &request) != 0 else { return lock }
        let error = SystemError("lock file")
        guard error.number == EAGAIN || error.number == EACCES else { throw error }
        return nil
    }

    /// Returns whether the path still names the file of this lock, so that nobody else can lock it there.
    public func isAt(_ path: String) -> Bool { FileIdentity(path: path) == FileIdentity(descriptor: descriptor) }

    /// Whether somebody holds the lock, asked without taking it even for a moment. False if there is no such file.
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
