internal import Glibc

/// Notices that files or folders are removed, moved or unmounted: inotify(7).
///
/// A notice says that something happened to one of them, not which; the owner then looks at all of its places.
public final class RemovalWatch {
    /// Bytes of notices read at a time: some hundred.
    private static let bufferBytes = 1 << 14

    /// Readable when there are notices.
    public let descriptor: Int32

    /// - Throws: `SystemError`, `EMFILE` when this user has as many instances as the system allows.
    public init() throws(SystemError) {
        descriptor = inotify_init1(Int32(IN_CLOEXEC) | Int32(IN_NONBLOCK))
        guard descriptor >= 0 else { throw SystemError("inotify_init1") }
    }

    deinit { close(descriptor) }

    /// Watches for the removal of entries of a folder, and of the folder itself.
    public func watchEntries(of folder: String) {
        add(folder, IN_DELETE | IN_MOVED_FROM | IN_DELETE_SELF | IN_MOVE_SELF)
    }

    /// Watches a file for its removal: the end of a name changes its link count.
    public func watchFile(_ path: String) { add(path, IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF) }

    /// Watches a folder and those above it, as far as they can be read, for a move.
    public func watchMoves(of folder: String) {
        var path = Substring(folder)
        while !path.isEmpty {
            add(String(path), IN_DELETE_SELF | IN_MOVE_SELF)
            path = path.lastIndex(of: "/").map { path[..<$0] } ?? ""
        }
    }

    /// What cannot be watched is not: its loss is noticed when it is used.
    private func add(_ path: String, _ events: Int32) {
        let mask = events | IN_DONT_FOLLOW | IN_MASK_ADD
        _ = unsafe inotify_add_watch(descriptor, path, UInt32(bitPattern: Int32(mask)))
    }

    /// Takes all notices.
    public func takeNotices() {
        var buffer = [UInt8](repeating: 0, count: Self.bufferBytes)
        while unsafe read(descriptor, &buffer, buffer.count) > 0 {}
    }
}
