internal import Glibc

/// Detects that files or folders are removed, moved or unmounted: inotify(7).
///
/// An event does not name the path that changed, so the owner checks all of its paths.
public final class RemovalWatch {
    /// Size of the read buffer in bytes: some hundred events.
    private static let bufferBytes = 1 << 14

    /// Readable while events are pending.
    public let descriptor: Int32

    /// - Throws: `SystemError`; `EMFILE` at the user's limit of inotify instances.
    public init() throws(SystemError) {
        descriptor = inotify_init1(Int32(IN_CLOEXEC) | Int32(IN_NONBLOCK))
        guard descriptor >= 0 else { throw SystemError("inotify_init1") }
    }

    deinit { close(descriptor) }

    /// Watches for the removal of entries of a folder, and of the folder itself.
    public func watchEntries(of folder: String) {
        addWatch(folder, events: IN_DELETE | IN_MOVED_FROM | IN_DELETE_SELF | IN_MOVE_SELF)
    }

    /// Watches a file for removal: unlinking a name changes the link count.
    public func watchFile(_ path: String) { addWatch(path, events: IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF) }

    /// Watches for moves of a folder and of its readable ancestors.
    public func watchMoves(of folder: String) {
        var path = Substring(folder)
        while !path.isEmpty {
            addWatch(String(path), events: IN_DELETE_SELF | IN_MOVE_SELF)
            path = path.lastIndex(of: "/").map { path[..<$0] } ?? ""
        }
    }

    /// Ignores failures: the loss of an unwatched path is noticed at its next use.
    private func addWatch(_ path: String, events: Int32) {
        let mask = events | IN_DONT_FOLLOW | IN_MASK_ADD
        _ = unsafe inotify_add_watch(descriptor, path, UInt32(bitPattern: Int32(mask)))
    }

    /// Discards all pending events.
    public func discardPendingEvents() {
        var buffer = [UInt8](repeating: 0, count: Self.bufferBytes)
        while unsafe read(descriptor, &buffer, buffer.count) > 0 {}
    }
}
