internal import CLinux
internal import Glibc

/// Open descriptor of a folder, for creating and renaming files without a path lookup each time.
///
/// The folder need not be readable. The descriptor follows the folder when it is moved.
public final class OpenFolder: Sendable {
    /// Descriptor opened with `O_PATH`, for system calls with a folder argument such as openat(2).
    public let descriptor: Int32

    /// - Throws: `SystemError` if the path cannot be opened or is not a folder.
    public init(_ path: String) throws(SystemError) {
        descriptor = unsafe open(ByteText.path(path), linux_o_path | O_DIRECTORY | O_CLOEXEC)
        guard descriptor >= 0 else { throw SystemError("open") }
    }

    /// Opens a folder below another one, and creates it if it is missing. A link is not followed.
    ///
    /// - Throws: `SystemError` if the name is that of another file or of a link, or the folder cannot be created.
    public init(_ name: String, in parent: OpenFolder) throws(SystemError) {
        let name = ByteText.path(name)
        if unsafe mkdirat(parent.descriptor, name, 0o777) != 0, errno != EEXIST { throw SystemError("mkdir") }
        descriptor = unsafe openat(
            parent.descriptor, name, linux_o_path | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard descriptor >= 0 else { throw SystemError("open") }
    }

    /// Opens an existing folder below another one. A link is not followed.
    ///
    /// - Returns: nil if no folder has this name, or it cannot be opened.
    public init?(existing name: String, in parent: OpenFolder) {
        descriptor = unsafe openat(
            parent.descriptor, ByteText.path(name), linux_o_path | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
    }

    /// Whether a file of any kind has this name, which `ByteText.path` made.
    public func has(_ name: [CChar]) -> Bool {
        unsafe faccessat(descriptor, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0
    }

    deinit { if descriptor >= 0 { close(descriptor) } }
}
