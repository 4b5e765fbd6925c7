internal import CLinux
internal import Glibc

/// New file without a name (`O_TMPFILE`), deleted with its last descriptor unless it is linked.
public enum UnnamedFile {
    private static let canBeLinked = unsafe access("/proc/self/fd", X_OK) == 0

    /// Opens an unnamed file for writing, in the file system of `path`.
    ///
    /// - Parameter folder: Folder that a relative `path` is relative to.
    /// - Returns: nil if the file system does not support it, or the folder is not writable.
    public static func open(in path: String, relativeTo folder: Int32) -> Int32? {
        guard canBeLinked else { return nil }
        let flags = linux_o_tmpfile | O_WRONLY | O_CLOEXEC
        let descriptor = unsafe openat(folder, ByteText.cString(path), flags, 0o666)
        return descriptor >= 0 ? descriptor : nil
    }

    /// Opens an unnamed file for reading and writing, which only this user can open.
    ///
    /// - Returns: nil without write access to the folder, with the reason in `errno`. Where the file system has no
    ///   unnamed files, the file had a name for a moment, and cannot be linked.
    public static func openPrivate(in folder: String) -> Int32? {
        let flags = O_RDWR | O_CLOEXEC
        var descriptor = unsafe Glibc.open(ByteText.cString(folder), linux_o_tmpfile | flags, 0o600)
        if descriptor < 0, [EOPNOTSUPP, EISDIR, EINVAL].contains(errno) {
            let name = ByteText.cString("\(folder)/.earshot-\(String(UInt64.random(in: 0 ... .max), radix: 36)).part")
            descriptor = unsafe Glibc.open(name, flags | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600)
            if descriptor >= 0 { unsafe unlink(name) }
        }
        return descriptor >= 0 ? descriptor : nil
    }

    /// Links the file as `name`. Returns false on failure, such as an existing name, with the reason in `errno`.
    public static func name(_ descriptor: Int32, _ name: [CChar], in folder: Int32) -> Bool {
        // Linux before 6.10 requires a capability for a link by descriptor, and returns ENOENT without it. A link
        // through /proc requires none, and takes a third longer.
        if unsafe linkat(descriptor, "", folder, name, linux_at_empty_path) == 0 { return true }
        guard errno == ENOENT else { return false }
        return unsafe linkat(AT_FDCWD, "/proc/self/fd/\(descriptor)", folder, name, AT_SYMLINK_FOLLOW) == 0
    }
}
