internal import Glibc

/// Device and inode of a file: the same for all its names.
public struct FileIdentity: Equatable, Sendable {
    private let device: UInt
    private let inode: UInt

    /// Identifies the file at a path, a link as the link; nil if there is none.
    public init?(path: String) {
        var status = stat()
        guard unsafe lstat(path, &status) == 0 else { return nil }
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
