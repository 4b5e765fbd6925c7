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
        descriptor = unsafe open(ByteText.cString(path), linux_o_path | O_DIRECTORY | O_CLOEXEC)
        guard descriptor >= 0 else { throw SystemError("open") }
    }

    /// Opens a folder below another one, and creates it if it is missing. A link is not followed.
    ///
    /// - Throws: `SystemError` if the name is that of another file or of a link, or the folder cannot be created.
    public init(_ name: String, in parent: OpenFolder) throws(SystemError) {
        let name = ByteText.cString(name)
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
            parent.descriptor, ByteText.cString(name), linux_o_path | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
    }

    /// Whether a file of any kind has this name, which `ByteText.cString` made.
    public func containsFile(named name: [CChar]) -> Bool {
        unsafe faccessat(descriptor, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0
    }

    deinit { if descriptor >= 0 { close(descriptor) } }
}

/// Reason why a folder cannot be used, with the remedy.
public struct FolderError: Error, Equatable, CustomStringConvertible {
    /// Kinds of unusable folders.
    public enum Reason: Equatable, Sendable {
        /// A system call failed.
        case systemError(SystemError)
        case notFolder
        case symbolicLink
        /// The owner is neither this user nor, for a folder above it, root or the owner of `/`.
        case foreignOwner(UInt32)
        /// The group or others have access to a folder that must be private to its owner.
        case accessibleToOthers(mode: UInt32)
        /// The group or others can create and rename files in it.
        case writableByOthers(mode: UInt32)
        /// A file in it is not a plain file of this user.
        case notOwnPlainFile(String)
        /// Others can rename the folder, since they control this one above it.
        case replaceableByOthers(above: String)
    }

    /// Path of the requested folder.
    public let path: String
    public let reason: Reason

    init(_ path: String, _ reason: Reason) {
        self.path = path
        self.reason = reason
    }

    /// Whether another user could have prepared or could change the folder.
    public var isUntrustedFolder: Bool {
        switch reason {
        case .systemError, .notFolder: false
        case .symbolicLink, .foreignOwner, .accessibleToOthers, .writableByOthers, .notOwnPlainFile,
            .replaceableByOthers:
            true
        }
    }

    public var description: String {
        switch reason {
        case .systemError(let error): "cannot use the folder \(path): \(error)"
        case .notFolder: "\(path) is not a folder: remove it, or choose another folder"
        case .symbolicLink: "the folder \(path) is a symbolic link: give the folder that it names"
        case .foreignOwner(let user): "the folder \(path) belongs to another user (\(user)): choose another folder"
        case .accessibleToOthers(let mode):
            "others may enter the folder \(path) (mode \(String(mode, radix: 8))): chmod 700 it"
        case .writableByOthers(let mode):
            "others may write to the folder \(path) (mode \(String(mode, radix: 8))): check its files and chmod 700 it, or choose"
                + " another folder"
        case .notOwnPlainFile(let name):
            "\(path)/\(name) is not a plain file of this user: remove it, or choose another folder"
        case .replaceableByOthers(let above):
            "others may replace the folder \(path), since they can change \(above): chmod go-w that, or choose another folder"
        }
    }
}
