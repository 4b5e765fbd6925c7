internal import Glibc

/// Device and inode number of a file, equal for all of its names.
public struct FileIdentity: Equatable, Sendable {
    private let device: UInt
    private let inode: UInt

    /// Identifies the file at `path` without following a symbolic link; nil if it does not exist or cannot be examined.
    public init?(path: String) {
        var status = stat()
        guard unsafe lstat(path, &status) == 0 else { return nil }
        self.init(status)
    }

    /// Identifies the file to which a symbolic link leads; nil if it does not exist or cannot be examined.
    init?(followingLink path: String) {
        var status = stat()
        guard unsafe stat(path, &status) == 0 else { return nil }
        self.init(status)
    }

    /// Identifies an open file.
    public init?(descriptor: Int32) {
        var status = stat()
        guard unsafe fstat(descriptor, &status) == 0 else { return nil }
        self.init(status)
    }

    private init(_ status: stat) {
        device = UInt(status.st_dev)
        inode = UInt(status.st_ino)
    }
}
