internal import CLinux
internal import Glibc

/// Permissions and group of a file, for the file that replaces it.
public struct FilePermissions: Sendable {
    /// Permissions of a file with secrets: only its owner has access.
    public static let secret = FilePermissions(mode: 0o600, group: getegid())

    private static let all: mode_t = 0o777
    private static let ofGroup: mode_t = 0o070

    /// Permission bits.
    public let mode: UInt32
    private let group: gid_t

    private init(mode: UInt32, group: gid_t) {
        self.mode = mode
        self.group = group
    }

    /// Permissions of the regular file at a path; nil for another path.
    public init?(of path: String) {
        var status = stat()
        let path = ByteText.path(path)
        guard unsafe stat(path, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { return nil }
        // With an access control list, these bits are those of its mask, and the group may have fewer permissions.
        let hasList = unsafe getxattr(path, "system.posix_acl_access", nil, 0) > 0
        mode = status.st_mode & (hasList ? Self.all & ~Self.ofGroup : Self.all)
        group = status.st_gid
    }

    /// Whether new files of this process usually have this group.
    public var belongsToThisProcess: Bool { group == getegid() }

    /// Gives a file these permissions. A file that cannot get the group gives no permissions to its own group.
    ///
    /// - Returns: false on failure, with the reason in `errno`.
    public func apply(to descriptor: Int32) -> Bool {
        var status = stat()
        guard unsafe fstat(descriptor, &status) == 0 else { return false }
        let hasGroup = status.st_gid == group || fchown(descriptor, .max, group) == 0
        return fchmod(descriptor, hasGroup ? mode : mode & ~Self.ofGroup) == 0
    }
}
