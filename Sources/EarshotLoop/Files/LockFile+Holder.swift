internal import Glibc

extension LockFile {
    /// Maximum length of a process ID in the file, in bytes.
    private static let mostBytes = 16

    /// Writes the ID of this process into the file, for ``holder(_:)``. On a full disk the file may stay empty.
    static func writeProcessID(_ descriptor: Int32) {
        let bytes = Array("\(getpid())\n".utf8)
        _ = unsafe pwrite(descriptor, bytes, bytes.count, 0)
    }

    /// Opens the process that holds a lock.
    ///
    /// The file names the process. An earlier holder may have written it, so the process must also have the file open.
    ///
    /// - Returns: nil if no process holds the lock, or the file does not name the holder.
    public static func holder(_ path: String) throws(SystemError) -> ProcessDescriptor? {
        guard try isHeld(path), let (process, pid, file) = try named(path) else { return nil }
        return hasOpen(file, pid: pid) && !process.hasEnded ? process : nil
    }

    /// Opens the process whose ID is in a lock file.
    ///
    /// - Returns: nil if there is no such process, or if the file has no ID.
    static func named(
        _ path: String
    ) throws(SystemError) -> (process: ProcessDescriptor, pid: Int32, file: FileIdentity?)? {
        let file = unsafe open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
        guard file >= 0 else { throw SystemError("open lock file") }
        defer { close(file) }
        var bytes = [UInt8](repeating: 0, count: mostBytes)
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
    private static func hasOpen(_ file: FileIdentity?, pid: Int32) -> Bool {
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
