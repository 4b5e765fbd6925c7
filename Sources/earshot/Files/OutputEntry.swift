internal import EarshotLoop
internal import Glibc

/// Name of an output in its open folder, with the links of the folder's path resolved one by one.
///
/// In a sticky folder that its group or everybody may write to, such as `/tmp`, only entries of this user and of the
/// folder's owner are used. So no other user can choose the file that is written, or own it. These are the rules of
/// fs.protected_symlinks, fs.protected_regular and fs.protected_fifos in proc_sys_fs(5). The kernel applies them to the
/// last name of a path in open(2), and only if they are set. Here they hold for each link of a path, in each such
/// folder, and for the replacement of a file.
struct OutputEntry {
    /// Maximum number of links in a path, as in the kernel.
    static let maximumLinks = 40

    let folder: OpenFolder
    /// Name in the folder.
    let name: String
    /// Path for messages.
    let path: String

    /// Opens the folder of a path. The last name is not resolved.
    ///
    /// - Parameter given: path for messages; nil for `path`.
    /// - Throws: `OutputFailure` for a missing folder, or a link of another user in a shared sticky folder.
    init(_ path: String, given: String? = nil) throws(OutputFailure) {
        let messagePath = given ?? path
        let parts = Self.folderAndName(of: path)
        let folder = try Self.folder(parts.folder, given: messagePath)
        self.init(parts.name.isEmpty ? "." : parts.name, in: folder, at: messagePath)
    }

    init(_ name: String, in folder: OpenFolder, at path: String) {
        self.folder = folder
        self.name = name
        self.path = path
    }

    /// Returns the directory, with its slash, and the name. The directory of a bare name is empty.
    static func folderAndName(of path: String) -> (folder: String, name: String) {
        guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return ("", path) }
        return (String(path[...slash]), String(path[path.utf8.index(after: slash)...]))
    }

    /// Opens the folder at a path that the user gave.
    ///
    /// - Parameters:
    ///   - given: path for messages.
    ///   - creates: whether missing folders are created.
    static func folder(_ path: String, given: String, creates: Bool = false) throws(OutputFailure) -> OpenFolder {
        var rest = Array(pathComponents(of: path).reversed())
        var links = 0
        var folder = try openFolder(path.utf8.first == UInt8(ascii: "/") ? "/" : ".", messagePath: given)
        while let name = rest.popLast() {
            if let next = OpenFolder(existing: name, in: folder) {
                folder = next
                continue
            }
            let number = errno
            if let target = try OutputEntry(name, in: folder, at: given).linkTarget() {
                links += 1
                guard links <= maximumLinks else { throw failure(ELOOP, given) }
                if isProcFileSystem(folder) {
                    // The text of such a link need not be a path.
                    folder = try openFolder("/proc/self/fd/\(folder.descriptor)/\(name)", messagePath: given)
                } else {
                    if target.utf8.first == UInt8(ascii: "/") { folder = try openFolder("/", messagePath: given) }
                    rest += pathComponents(of: target).reversed()
                }
                continue
            }
            guard creates, number == ENOENT else { throw failure(number, given) }
            do throws(SystemError) {
                folder = try OpenFolder(name, in: folder)
            } catch {
                throw failure(error.number, given)
            }
        }
        return folder
    }

    /// Returns the status of the file with this name, without following a link; nil if there is none.
    ///
    /// - Parameter opened: whether the link of an open file in proc(5) is followed.
    /// - Throws: `OutputFailure` for the file of another user in a shared sticky folder.
    func fileStatus(opened: Bool = false) throws(OutputFailure) -> stat? {
        var status = stat()
        let flags = opened && Self.isProcFileSystem(folder) ? 0 : AT_SYMLINK_NOFOLLOW
        guard unsafe fstatat(folder.descriptor, ByteText.cString(name), &status, flags) == 0 else { return nil }
        try checkOwner(status)
        return status
    }

    /// Returns the text of the link with this name; nil if there is none.
    func linkTarget() throws(OutputFailure) -> String? {
        guard let status = try fileStatus(), status.st_mode & S_IFMT == S_IFLNK else { return nil }
        var target = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = unsafe readlinkat(folder.descriptor, ByteText.cString(name), &target, target.count)
        guard count > 0 else { return nil }
        return ByteText.text(of: target.prefix(count).map { UInt8(bitPattern: $0) })
    }

    /// Opens the file without following a link, except that of an open file in proc(5).
    ///
    /// - Returns: -1 on failure, with the reason in `errno`.
    /// - Throws: `OutputFailure` for the file of another user in a shared sticky folder.
    func open(_ flags: Int32, mode: mode_t = 0) throws(OutputFailure) -> Int32 {
        // Checked before as well, because the open of a pipe is seen at its other end.
        _ = try fileStatus()
        let kept = flags & ~O_TRUNC | (Self.isProcFileSystem(folder) ? 0 : O_NOFOLLOW) | O_CLOEXEC
        let descriptor = unsafe openat(folder.descriptor, ByteText.cString(name), kept, mode)
        var status = stat()
        guard descriptor >= 0, unsafe fstat(descriptor, &status) == 0 else { return descriptor }
        do throws(OutputFailure) {
            try checkOwner(status)
        } catch {
            close(descriptor)
            throw error
        }
        guard flags & O_TRUNC != 0, status.st_mode & S_IFMT == S_IFREG, ftruncate(descriptor, 0) != 0 else {
            return descriptor
        }
        let number = errno
        close(descriptor)
        errno = number
        return -1
    }

    private func checkOwner(_ entry: stat) throws(OutputFailure) {
        var parent = stat()
        let kind = entry.st_mode & S_IFMT
        guard kind != S_IFDIR, entry.st_uid != geteuid(), unsafe fstat(folder.descriptor, &parent) == 0,
            parent.st_mode & S_ISVTX != 0, parent.st_mode & 0o022 != 0, entry.st_uid != parent.st_uid
        else { return }
        let noun = kind == S_IFLNK ? "link" : kind == S_IFIFO ? "named pipe" : "file"
        throw .cannotWrite(
            "cannot write \(path): the \(noun) \(name) belongs to user \(entry.st_uid), and others can put files into "
                + "its folder; give a path in a folder of your own")
    }

    private static func pathComponents(of path: String) -> [String] {
        path.utf8.split(separator: UInt8(ascii: "/")).map { String(Substring($0)) }
    }

    /// Whether a folder is one of proc(5).
    private static func isProcFileSystem(_ folder: OpenFolder) -> Bool {
        var status = stat()
        var proc = stat()
        return unsafe fstat(folder.descriptor, &status) == 0 && stat("/proc/self/fd", &proc) == 0
            && status.st_dev == proc.st_dev
    }

    private static func openFolder(_ path: String, messagePath given: String) throws(OutputFailure) -> OpenFolder {
        do throws(SystemError) { return try OpenFolder(path) } catch { throw failure(error.number, given) }
    }

    private static func failure(_ number: Int32, _ path: String) -> OutputFailure {
        .cannotWrite("cannot write \(path): \(SystemCause.text(number, at: path))")
    }
}
