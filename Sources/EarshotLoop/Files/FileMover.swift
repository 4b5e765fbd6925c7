internal import CLinux
internal import Glibc

/// Moves files into an output folder by rename, so that nothing is copied.
public final class FileMover {
    /// Permissions of a new file: 0666 without the bits of the process's umask.
    private let newFileMode: mode_t
    /// Device number of the output folder's file system.
    private let folderDevice: dev_t
    /// Whether renames can succeed. False after the first source on another file system.
    private var canRename = true

    /// - Returns: nil for a folder whose new files inherit more than the umask permits: a set-group-ID folder, or one
    ///   with a default access control list.
    public init?(into folder: String) {
        var status = stat()
        let path = ByteText.cString(folder)
        guard unsafe stat(path, &status) == 0, status.st_mode & S_ISGID == 0,
            unsafe getxattr(path, "system.posix_acl_default", nil, 0) < 0
        else { return nil }
        let mask = umask(0o077)
        umask(mask)
        newFileMode = 0o666 & ~mask
        folderDevice = status.st_dev
    }

    /// Returns whether `folder` is on the same file system, so that a rename from it can succeed.
    public func sharesFileSystem(with folder: String) -> Bool {
        var status = stat()
        return unsafe stat(folder, &status) == 0 && status.st_dev == folderDevice
    }

    /// Renames a file, or names an unnamed one, and sets the permissions of a new file. Replaces an existing file of
    /// that name.
    ///
    /// - Parameters:
    ///   - source: Descriptor of the file at `path`.
    ///   - folder: Folder that a relative `name` is relative to.
    ///   - mode: Permissions of the file; nil for those of a new one.
    /// - Returns: false if the caller has to copy instead: the file has another name as well, `folder` is on another
    ///   file system, or the rename failed. The copy reports the reason.
    public func move(
        _ path: String, open source: Int32, to name: String, in folder: Int32, mode: UInt32? = nil
    ) -> Bool {
        var status = stat()
        guard canRename, unsafe fstat(source, &status) == 0, status.st_nlink <= 1,
            fchmod(source, mode ?? newFileMode) == 0
        else { return false }
        let isMoved =
            status.st_nlink == 0
            ? linkUnnamedFile(source, as: name, in: folder)
            : unsafe renameat(AT_FDCWD, path, folder, ByteText.cString(name)) == 0
        if !isMoved, errno == EXDEV { canRename = false }
        return isMoved
    }

    /// Renames a file unless another one has the name.
    ///
    /// - Returns: false if the name is taken (`errno` is EEXIST) or the file cannot be renamed.
    public static func renameWithoutReplacing(_ path: String, to other: String) -> Bool {
        if unsafe linux_rename_without_replacing(path, other) == 0 { return true }
        // A file system that cannot do it in one step. The file has two names for a moment.
        guard unsafe errno == EINVAL && link(path, other) == 0 else { return false }
        unsafe unlink(path)
        return true
    }

    /// Names an unnamed file. Only a rename can replace a file, so the file then has a temporary name for a moment.
    private func linkUnnamedFile(_ source: Int32, as name: String, in folder: Int32) -> Bool {
        let path = ByteText.cString(name)
        if UnnamedFile.name(source, path, in: folder) { return true }
        guard errno == EEXIST else { return false }
        let parent = name.utf8.lastIndex(of: UInt8(ascii: "/")).map { String(name[...$0]) } ?? ""
        let temporary = ByteText.cString("\(parent).earshot-\(String(UInt64.random(in: 0 ... .max), radix: 36)).part")
        guard UnnamedFile.name(source, temporary, in: folder) else { return false }
        if unsafe renameat(folder, temporary, folder, path) == 0 { return true }
        unsafe unlinkat(folder, temporary, 0)
        return false
    }
}
