internal import EarshotLoop
internal import Glibc

/// Text of a failed system call for a message: the cause, and the next step for common causes.
enum SystemCause {
    /// Next step for a directory at the path of -o.
    static let directoryStep = "give -d for a directory"

    /// - Parameters:
    ///   - number: value of errno.
    ///   - path: path of the failed call; nil for a descriptor without one.
    ///   - directoryStep: next step if the path is that of a directory.
    static func text(
        _ number: Int32, at path: String?, directoryStep: String = SystemCause.directoryStep
    ) -> String {
        var text = unsafe String(cString: strerror(number))
        if number == ENOSPC, let path, let free = free(beside: path) { text += " (\(free))" }
        let step = number == EISDIR ? directoryStep : nextStep(number)
        return text + (step.map { "; \($0)" } ?? "")
    }

    /// Next step after a failed call; nil if the cause suggests none.
    static func nextStep(_ number: Int32) -> String? {
        switch number {
        case ENOSPC, EDQUOT: "free disk space, or choose another directory"
        case EACCES, EPERM, EROFS: "choose a writable path"
        case ENOENT, ENOTDIR: "create its directory first"
        case EFBIG: "raise the limit of file sizes (ulimit -f)"
        case EAGAIN: "raise the limit of processes (ulimit -u)"
        case EMFILE, ENFILE: "raise the limit of open files (ulimit -n)"
        default: nil
        }
    }

    /// Text about the free space of the file system that holds the directory of `path`; nil if it is unknown.
    private static func free(beside path: String) -> String? {
        let slash = path.utf8.lastIndex(of: UInt8(ascii: "/"))
        var status = statvfs()
        guard unsafe statvfs(ByteText.path(slash.map { String(path[...$0]) } ?? "."), &status) == 0 else { return nil }
        // Some file systems have no fixed number of files.
        if status.f_files > 0, status.f_favail == 0 { return "no inodes free" }
        return ByteSize.text(Double(status.f_bavail) * Double(status.f_frsize)) + " free"
    }
}
