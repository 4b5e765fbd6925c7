internal import CLinux
internal import Glibc

/// A folder held open for making and renaming files in it: the kernel need not look for it each time.
///
/// It need not be readable, and stays the same folder when it is moved.
public final class OpenFolder: Sendable {
    /// For the system calls that take names relative to a folder, such as openat(2); open(2) tells of `O_PATH`.
    public let descriptor: Int32

    /// - Throws: `SystemError` when it cannot be opened, or is no folder.
    public init(_ path: String) throws(SystemError) {
        descriptor = unsafe open(ByteText.path(path), linux_o_path | O_DIRECTORY | O_CLOEXEC)
        guard descriptor >= 0 else { throw SystemError("open") }
    }

    /// Whether a file of any kind has this name, which `ByteText.path` made.
    public func has(_ name: [CChar]) -> Bool {
        unsafe faccessat(descriptor, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0
    }

    deinit { if descriptor >= 0 { close(descriptor) } }
}
