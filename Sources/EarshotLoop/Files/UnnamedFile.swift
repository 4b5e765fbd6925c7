internal import CLinux
internal import Glibc

/// A new file without a name: gone with its process unless it is given one.
public enum UnnamedFile {
    private static let isNameable = unsafe access("/proc/self/fd", X_OK) == 0

    /// Opens one for writing, in the file system of `path`.
    ///
    /// - Parameter folder: what a relative path is relative to.
    /// - Returns: nil where the file system has none, or nothing can be made there.
    public static func open(in path: String, of folder: Int32) -> Int32? {
        guard isNameable else { return nil }
        let flags = linux_o_tmpfile | O_WRONLY | O_CLOEXEC
        let descriptor = unsafe openat(folder, ByteText.path(path), flags, 0o666)
        return descriptor >= 0 ? descriptor : nil
    }

    /// Gives the file a name. - Returns: false, with `errno`, where that is impossible or the name is taken.
    public static func name(_ descriptor: Int32, _ name: [CChar], in folder: Int32) -> Bool {
        // Linux before 6.10 wants a capability for a link by descriptor, and answers ENOENT without it. A link through
        // /proc needs none, and takes a third longer.
        if unsafe linkat(descriptor, "", folder, name, linux_at_empty_path) == 0 { return true }
        guard errno == ENOENT else { return false }
        return unsafe linkat(AT_FDCWD, "/proc/self/fd/\(descriptor)", folder, name, AT_SYMLINK_FOLLOW) == 0
    }
}
