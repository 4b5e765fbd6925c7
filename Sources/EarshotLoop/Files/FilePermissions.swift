internal import CLinux
internal import Glibc

/// Permissions, owner and group of a file, for the file that replaces it.
public struct FilePermissions: Sendable {
    /// Permissions of a file with secrets: only its owner has access.
    public static let ownerOnly = FilePermissions(mode: 0o600, owner: geteuid(), group: getegid())

    private static let allModeBits: mode_t = 0o777
    private static let groupModeBits: mode_t = 0o070

    /// Permission bits.
    public let mode: UInt32
    private let owner: uid_t
    private let group: gid_t

    private init(mode: UInt32, owner: uid_t, group: gid_t) {
        self.mode = mode
        self.owner = owner
        self.group = group
    }

    /// Permissions of the regular file at a path; nil for another path.
    public init?(ofPath path: String) {
        let descriptor = unsafe open(ByteText.cString(path), linux_o_path | O_CLOEXEC)
        defer { if descriptor >= 0 { close(descriptor) } }
        self.init(ofDescriptor: descriptor)
    }

    /// Permissions of the regular file with this name in a folder; nil for another file, such as a link.
    public init?(ofFile name: [CChar], in folder: Int32) {
        let descriptor = unsafe openat(folder, name, linux_o_path | O_NOFOLLOW | O_CLOEXEC)
        defer { if descriptor >= 0 { close(descriptor) } }
        self.init(ofDescriptor: descriptor)
    }

    private init?(ofDescriptor descriptor: Int32) {
        var status = stat()
        guard descriptor >= 0, unsafe fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
            return nil
        }
        // With an access control list, these bits are those of its mask, and the group may have fewer permissions.
        let hasList = unsafe getxattr("/proc/self/fd/\(descriptor)", "system.posix_acl_access", nil, 0) > 0
        mode = status.st_mode & (hasList ? Self.allModeBits & ~Self.groupModeBits : Self.allModeBits)
        owner = status.st_uid
        group = status.st_gid
    }

    /// The same owner and group, with the mode of a file with secrets.
    public var restrictedToOwner: FilePermissions {
        FilePermissions(mode: Self.ownerOnly.mode, owner: owner, group: group)
    }

    /// Whether new files of this process usually have this owner and group.
    public var belongsToThisProcess: Bool { owner == geteuid() && group == getegid() }

    /// Sets these permissions of a file, and the owner if this process may do so. If the group cannot be set, the
    /// file's own group gets no permissions.
    ///
    /// - Returns: false on failure, with the reason in `errno`.
    public func apply(to descriptor: Int32) -> Bool {
        var status = stat()
        guard unsafe fstat(descriptor, &status) == 0 else { return false }
        let hasGroup = status.st_gid == group || fchown(descriptor, .max, group) == 0
        // Before a change of the owner, after which a process that is not root may not change the mode.
        guard fchmod(descriptor, hasGroup ? mode : mode & ~Self.groupModeBits) == 0 else { return false }
        if status.st_uid != owner { fchown(descriptor, owner, .max) }
        return true
    }
}
