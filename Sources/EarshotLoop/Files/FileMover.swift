internal import CLinux
internal import Glibc

/// Makes files that were given to this program the outputs that they are for, without a copy.
public final class FileMover {
    /// What a new file has of the permissions that are usual, 0666.
    private let mode: mode_t
    /// The folder's file system.
    private let device: dev_t
    /// Whether it makes sense to try: not any more once the files were found to be in another file system.
    private var isUseful = true

    /// Nil for a folder that gives what is made in it more than a name: a group, or an access control list.
    public init?(into folder: String) {
        var status = stat()
        let path = ByteText.path(folder)
        guard unsafe stat(path, &status) == 0, status.st_mode & S_ISGID == 0,
            unsafe getxattr(path, "system.posix_acl_default", nil, 0) < 0
        else { return nil }
        let mask = umask(0o077)
        umask(mask)
        mode = 0o666 & ~mask
        device = status.st_dev
    }

    /// Whether files of this folder can be had by a new name: it is in the same file system.
    public func reaches(_ folder: String) -> Bool {
        var status = stat()
        return unsafe stat(folder, &status) == 0 && status.st_dev == device
    }

    /// Renames a file, which then looks as if it had been made there; what had the name before is gone.
    ///
    /// - Parameters:
    ///   - source: the same file, open.
    ///   - folder: what a relative `name` is relative to.
    /// - Returns: false if it has to be copied: it has another name too, the folder is in another file system, or the
    ///   name cannot be given, which the copy will tell of.
    public func move(_ path: String, open source: Int32, to name: String, in folder: Int32) -> Bool {
        var status = stat()
        guard isUseful, unsafe fstat(source, &status) == 0, status.st_nlink == 1, fchmod(source, mode) == 0 else {
            return false
        }
        guard unsafe renameat(AT_FDCWD, path, folder, ByteText.path(name)) == 0 else {
            if errno == EXDEV { isUseful = false }
            return false
        }
        return true
    }
}
