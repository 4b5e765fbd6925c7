internal import Glibc

/// Files of bodies, as named by ``DeliveredTerminal`` and by reports of progress.
package enum BodyFile {
    /// Folder of links to the open files of this process, proc(5).
    private static let ownFiles = "/proc/self/fd/"
    /// Path of a file that is missing.
    static let missing = ownFiles + "missing"

    /// Returns the path of an open file of this process.
    static func path(of descriptor: Int32) -> String { "\(ownFiles)\(descriptor)" }

    /// Returns whether a path names a file that this process received from the broker.
    ///
    /// - Parameter path: path of a body.
    /// - Returns: false for a file of the broker's spool.
    package static func isReceived(_ path: String) -> Bool { path.hasPrefix(ownFiles) }

    /// Opens the file of a body for reading, without following links.
    ///
    /// - Parameter path: path of the body.
    /// - Returns: a descriptor that the caller closes; -1 with the reason in `errno`.
    package static func open(_ path: String) -> Int32 {
        let flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK
        guard isReceived(path) else { return unsafe Glibc.open(path, flags | O_NOFOLLOW) }
        let opened = unsafe Glibc.open(path, flags)
        guard opened < 0, errno == ENOENT, let number = Int32(path.dropFirst(ownFiles.utf8.count)) else {
            return opened
        }
        // Without /proc. A copy of the descriptor shares the offset, which only readers change.
        let copy = fcntl(number, F_DUPFD_CLOEXEC, 0)
        if copy >= 0 { lseek(copy, 0, SEEK_SET) }
        return copy
    }
}
