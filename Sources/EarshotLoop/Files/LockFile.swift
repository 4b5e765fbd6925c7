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
        var request = Self.wholeFileRange
        request.l_type = Int16(F_UNLCK)
        _ = unsafe fcntl(descriptor, linux_f_ofd_setlk, &request)
        close(descriptor)
    }

    /// Acquires the lock once its holder has ended.
    ///
    /// A killed process loses its memory before its files, and then hides them from other processes. So the process
    /// that the file names counts as the holder.
    ///
    /// - Parameter milliseconds: Maximum time to wait for the end of the process that holds the lock.
    /// - Returns: nil if that process goes on, or if the file does not name it.
    public static func acquire(
        _ path: String, maximumWaitMilliseconds milliseconds: Int32
    ) throws(SystemError) -> LockFile? {
        if let lock = try acquire(path) { return lock }
        try namedProcess(inLock: path)?.process.awaitEnd(milliseconds: milliseconds)
        return try acquire(path)
    }

    /// Acquires the lock. Creates the file with mode 0600 if it does not exist.
    ///
    /// - Returns: nil if another process, or another descriptor of this process, holds the lock.
    public static func acquire(_ path: String) throws(SystemError) -> LockFile? {
        let descriptor = unsafe open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw SystemError("open lock file") }
        let lock = LockFile(descriptor: descriptor)
        var request = wholeFileRange
        guard unsafe fcntl(descriptor, linux_f_ofd_setlk, &request) != 0 else {
            writeProcessID(descriptor)
            return lock
        }
        let error = SystemError("lock file")
        guard error.number == EAGAIN || error.number == EACCES else { throw error }
        return nil
    }

    /// Returns whether the path still names this lock's file. If so, no other process can lock that path.
    public func isInPlace(at path: String) -> Bool { FileIdentity(path: path) == FileIdentity(descriptor: descriptor) }

    /// Returns whether the lock is held, without acquiring it. False if the file does not exist.
    public static func isHeld(_ path: String) throws(SystemError) -> Bool {
        let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
        guard descriptor >= 0 else {
            let error = SystemError("open lock file")
            if error.number == ENOENT { return false }
            throw error
        }
        defer { close(descriptor) }
        var request = wholeFileRange
        guard unsafe fcntl(descriptor, linux_f_ofd_getlk, &request) == 0 else { throw SystemError("query lock file") }
        return request.l_type != Int16(F_UNLCK)
    }

    private static var wholeFileRange: flock {
        flock(l_type: Int16(F_WRLCK), l_whence: Int16(SEEK_SET), l_start: 0, l_len: 0, l_pid: 0)
    }
}

extension LockFile {
    /// Maximum length of a process ID in the file, in bytes.
    private static let maximumProcessIDBytes = 16

    /// Writes the ID of this process into the file, for ``holder(ofLock:)``. On a full disk the file may stay empty.
    static func writeProcessID(_ descriptor: Int32) {
        let bytes = Array("\(getpid())\n".utf8)
        _ = unsafe pwrite(descriptor, bytes, bytes.count, 0)
    }

    /// Opens the process that holds a lock.
    ///
    /// The file names the process. An earlier holder may have written it, so the process must also have the file open.
    ///
    /// - Returns: nil if no process holds the lock, or the file does not name the holder.
    public static func holder(ofLock path: String) throws(SystemError) -> ProcessDescriptor? {
        guard try isHeld(path), let (process, pid, file) = try namedProcess(inLock: path) else { return nil }
        return isFileOpen(file, pid: pid) && !process.hasEnded ? process : nil
    }

    /// Opens the process whose ID is in a lock file.
    ///
    /// - Returns: nil if there is no such process, or if the file has no ID.
    static func namedProcess(
        inLock path: String
    ) throws(SystemError) -> (process: ProcessDescriptor, pid: Int32, file: FileIdentity?)? {
        let file = unsafe open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
        guard file >= 0 else { throw SystemError("open lock file") }
        defer { close(file) }
        var bytes = [UInt8](repeating: 0, count: maximumProcessIDBytes)
        let count = unsafe pread(file, &bytes, bytes.count, 0)
        guard count > 0 else { return nil }
        let digits = String(decoding: bytes.prefix(count).prefix { $0 != UInt8(ascii: "\n") }, as: UTF8.self)
        guard let pid = Int32(digits), pid > 0 else { return nil }
        do throws(SystemError) {
            return (try ProcessDescriptor(pid: pid), pid, FileIdentity(descriptor: file))
        } catch {
            if error.number == ESRCH { return nil }
            throw error
        }
    }

    /// Whether a process has a file open, proc(5). False if another user's process hides it.
    private static func isFileOpen(_ file: FileIdentity?, pid: Int32) -> Bool {
        let folder = "/proc/\(pid)/fd"
        guard let file, let entries = unsafe opendir(folder) else { return false }
        defer { unsafe closedir(entries) }
        while let entry = unsafe readdir(entries) {
            let name = unsafe withUnsafeBytes(of: entry.pointee.d_name) { bytes in
                unsafe String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
            }
            if Int32(name) != nil, FileIdentity(followingLink: "\(folder)/\(name)") == file { return true }
        }
        return false
    }
}
