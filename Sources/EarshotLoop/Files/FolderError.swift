/// Reason why a folder cannot be used, with the remedy.
public struct FolderError: Error, Equatable, CustomStringConvertible {
    /// Kinds of unusable folders.
    public enum Reason: Equatable, Sendable {
        /// A system call failed.
        case system(SystemError)
        case notFolder
        case symbolicLink
        /// The owner is neither this user nor, for a folder above it, root or the owner of `/`.
        case owner(UInt32)
        /// The group or others have access to a folder that must be private to its owner.
        case enterable(mode: UInt32)
        /// The group or others can create and rename files in it.
        case writable(mode: UInt32)
        /// A file in it is not a plain file of this user.
        case file(String)
        /// Others can rename the folder, since they control this one above it.
        case replaceable(above: String)
    }

    /// Path of the requested folder.
    public let path: String
    public let reason: Reason

    init(_ path: String, _ reason: Reason) {
        self.path = path
        self.reason = reason
    }

    /// Whether another user could have prepared or could change the folder.
    public var isDistrust: Bool {
        switch reason {
        case .system, .notFolder: false
        case .symbolicLink, .owner, .enterable, .writable, .file, .replaceable: true
        }
    }

    public var description: String {
        switch reason {
        case .system(let error): "cannot use the folder \(path): \(error)"
        case .notFolder: "\(path) is not a folder: remove it, or choose another folder"
        case .symbolicLink: "the folder \(path) is a symbolic link: give the folder that it names"
        case .owner(let user): "the folder \(path) belongs to another user (\(user)): choose another folder"
        case .enterable(let mode):
            "others may enter the folder \(path) (mode \(String(mode, radix: 8))): chmod 700 it"
        case .writable(let mode):
            "others may write to the folder \(path) (mode \(String(mode, radix: 8))): check its files and chmod 700 it, or choose"
                + " another folder"
        case .file(let name):
            "\(path)/\(name) is not a plain file of this user: remove it, or choose another folder"
        case .replaceable(let above):
            "others may replace the folder \(path), since they can change \(above): chmod go-w that, or choose another folder"
        }
    }
}
