internal import Glibc

/// Creation of a user's private folders, and the checks made before their contents are trusted.
///
/// A *closed* folder (the runtime folder) is accessible to its owner alone. An *open* one is the runtime folder of a
/// bus for several users: all may enter it, and its owner alone may write to it. A *store* (spool, cache, durable
/// requests) is writable by its owner alone, and no other user can rename it. Each folder above a store belongs to this
/// user or root, and is not writable by others unless it is sticky, as `StrictModes` of sshd(8) requires.
public enum PrivateFolder {
    /// Maximum number of symbolic links followed above a folder: the kernel's limit, path_resolution(7).
    private static let maximumSymbolicLinks = 40

    /// Creates the folder and its missing parents with mode 0700.
    public static func createWithParents(_ path: String) throws(FolderError) {
        guard unsafe mkdir(path, 0o700) != 0, errno != EEXIST else { return }
        var error = SystemError("mkdir")
        if error.number == ENOENT, let slash = path.lastIndex(of: "/"), slash > path.startIndex {
            try createWithParents(String(path[..<slash]))
            if unsafe mkdir(path, 0o700) == 0 || errno == EEXIST { return }
            error = SystemError("mkdir")
        }
        throw FolderError(path, .systemError(error))
    }

    // MARK: Closed folders

    /// Creates a closed folder, or checks the existing one.
    public static func makeOrCheckClosed(_ path: String) throws(FolderError) {
        try createWithParents(path)
        guard try existsClosed(path) else {
            throw FolderError(path, .systemError(SystemError("look at the folder", number: ENOENT)))
        }
    }

    /// Returns whether the folder exists.
    /// - Throws: `FolderError` for one that is not closed.
    public static func existsClosed(_ path: String) throws(FolderError) -> Bool {
        guard let status = try status(of: path) else { return false }
        try checkFolder(status: status, path: path)
        guard status.st_mode & 0o077 == 0 else {
            throw FolderError(path, .accessibleToOthers(mode: status.st_mode & 0o777))
        }
        return true
    }

    /// Returns whether the folder of a socket exists.
    /// - Throws: `FolderError` for one that is not closed.
    public static func existsClosed(aroundSocket socket: String) throws(FolderError) -> Bool {
        try existsClosed(folderPath(ofSocket: socket))
    }

    // MARK: Open folders

    /// Mode of an open folder.
    private static let openMode: mode_t = 0o755

    /// Creates a folder that can be opened or closed, or checks the existing one. Its mode stays.
    public static func makeOrCheckOpenable(_ path: String) throws(FolderError) {
        try createWithParents(path)
        guard try existsOwned(path) else {
            throw FolderError(path, .systemError(SystemError("look at the folder", number: ENOENT)))
        }
    }

    /// Opens a folder of this user to others, or closes it.
    public static func setOpenToOthers(_ isOpen: Bool, path: String) throws(FolderError) {
        guard try existsOwned(path) else {
            throw FolderError(path, .systemError(SystemError("look at the folder", number: ENOENT)))
        }
        guard unsafe chmod(path, isOpen ? openMode : 0o700) == 0 else {
            throw FolderError(path, .systemError(SystemError("chmod")))
        }
    }

    /// Returns whether the folder exists.
    /// - Throws: `FolderError` for one that is neither a closed nor an open folder of this user.
    public static func existsOwned(_ path: String) throws(FolderError) -> Bool {
        guard let status = try status(of: path) else { return false }
        try checkFolder(status: status, path: path)
        guard status.st_mode & 0o777 == openMode || status.st_mode & 0o077 == 0 else {
            throw FolderError(path, .accessibleToOthers(mode: status.st_mode & 0o777))
        }
        return true
    }

    /// Returns whether the folder of a socket exists.
    /// - Throws: `FolderError` for one that is neither a closed nor an open folder of this user.
    public static func existsOwned(aroundSocket socket: String) throws(FolderError) -> Bool {
        try existsOwned(folderPath(ofSocket: socket))
    }

    /// Returns the users whose listener in this runtime folder deserves trust; nil if the folder is missing.
    ///
    /// In the user's own folder this is the user. A folder of another user is accepted if only that user and root can
    /// write to it or replace it, and root chose its owner: either root owns it, or only root can create entries in the
    /// folder above it. So no other user can lure a client with a folder in `/tmp`.
    ///
    /// - Throws: `FolderError` for a folder of which none of this holds.
    public static func trustedListeners(inFolder path: String) throws(FolderError) -> Set<UInt32>? {
        guard let status = try status(of: path) else { return nil }
        guard status.st_mode & S_IFMT == S_IFDIR, status.st_uid != geteuid() else {
            return try existsOwned(path) ? [geteuid()] : nil
        }
        guard status.st_mode & 0o022 == 0 else {
            throw FolderError(path, .writableByOthers(mode: status.st_mode & 0o777))
        }
        do throws(FolderError) {
            try checkPlacedByRoot(path, owner: status.st_uid)
        } catch {
            throw FolderError(path, .foreignOwner(status.st_uid))
        }
        // A service manager that holds the socket is root.
        return try administratorUserIDs().union([status.st_uid])
    }

    /// Root, also as seen in a user namespace.
    private static func administratorUserIDs() throws(FolderError) -> Set<UInt32> {
        try [0, status(of: "/")?.st_uid ?? 0]
    }

    /// Checks that root decided whose runtime folder this is, as the programs of other users demand.
    ///
    /// - Throws: `FolderError` if somebody else could have created it.
    public static func checkPlacedByRoot(_ path: String, owner: UInt32) throws(FolderError) {
        try checkFoldersAbove(path, allowsSticky: administratorUserIDs().contains(owner))
    }

    /// Returns the users whose listener at this path deserves trust: this user if the folder is missing or unfit.
    public static func trustedListeners(atSocket socket: String) -> Set<UInt32> {
        let found = try? trustedListeners(inFolder: folderPath(ofSocket: socket))
        return (found ?? nil) ?? [geteuid()]
    }

    private static func folderPath(ofSocket socket: String) -> String {
        guard let slash = socket.lastIndex(of: "/") else { return "." }
        return slash == socket.startIndex ? "/" : String(socket[..<slash])
    }

    // MARK: Stores

    /// Creates a store, or checks the existing one. Sets its mode to 0700.
    public static func makeOrCheckStore(_ path: String) throws(FolderError) {
        try createWithParents(path)
        guard try existsStore(path) else {
            throw FolderError(path, .systemError(SystemError("look at the folder", number: ENOENT)))
        }
        guard unsafe chmod(path, 0o700) == 0 else { throw FolderError(path, .systemError(SystemError("chmod"))) }
    }

    /// Returns whether the folder exists.
    /// - Throws: `FolderError` if others can write to the folder or replace it. A missing folder can be replaceable
    ///   too.
    public static func existsStore(_ path: String) throws(FolderError) -> Bool {
        let status = try status(of: path)
        if let status { try checkStore(status: status, path: path) }
        try checkFoldersAbove(path)
        return status != nil
    }

    /// Checks an open store, but not the folders above it.
    public static func checkStore(descriptor: Int32, path: String) throws(FolderError) {
        var status = stat()
        guard unsafe fstat(descriptor, &status) == 0 else {
            throw FolderError(path, .systemError(SystemError("fstat")))
        }
        try checkStore(status: status, path: path)
    }

    /// Checks that each name in a store is unused or a regular file of this user with one link.
    public static func checkFiles(_ names: [String], in path: String) throws(FolderError) {
        for name in names {
            guard let status = try status(of: "\(path)/\(name)") else { continue }
            guard status.st_mode & S_IFMT == S_IFREG, status.st_uid == geteuid(), status.st_nlink == 1 else {
                throw FolderError(path, .notOwnPlainFile(name))
            }
        }
    }

    private static func checkStore(status: stat, path: String) throws(FolderError) {
        try checkFolder(status: status, path: path)
        guard status.st_mode & 0o022 == 0 else {
            throw FolderError(path, .writableByOthers(mode: status.st_mode & 0o777))
        }
    }

    // MARK: One folder

    private static func status(of path: String) throws(FolderError) -> stat? {
        var status = stat()
        guard unsafe lstat(path, &status) != 0 else { return status }
        let error = SystemError("lstat")
        guard error.number == ENOENT || error.number == ENOTDIR else { throw FolderError(path, .systemError(error)) }
        return nil
    }

    private static func checkFolder(status: stat, path: String) throws(FolderError) {
        switch status.st_mode & S_IFMT {
        case S_IFDIR: break
        case S_IFLNK: throw FolderError(path, .symbolicLink)
        default: throw FolderError(path, .notFolder)
        }
        guard status.st_uid == geteuid() else { throw FolderError(path, .foreignOwner(status.st_uid)) }
    }

    // MARK: The folders above

    /// Resolves the path from the root as the kernel does. Checks each folder and link on the way, up to the first
    /// missing one.
    ///
    /// - Parameter allowsSticky: Whether others may write to a folder above if it is sticky. They cannot rename an
    ///   existing folder of another user there, but they could have created it.
    public static func checkFoldersAbove(_ path: String, allowsSticky: Bool = true) throws(FolderError) {
        guard let root = try status(of: "/") else { return }
        // In a user namespace, root's files appear to belong to another user. The owner of `/` can replace everything
        // anyway.
        let trusted: Set = [geteuid(), 0, root.st_uid]
        var current = ""
        var links = 0
        var rest = path.split(separator: "/").dropLast().reversed().map(String.init)
        try checkAncestor(root, "/", path, trusted, allowsSticky)
        while let name = rest.popLast() {
            if name == "." { continue }
            if name == ".." {
                current = current.lastIndex(of: "/").map { String(current[..<$0]) } ?? ""
                continue
            }
            let next = "\(current)/\(name)"
            guard let found = try status(of: next) else { return }
            try checkAncestor(found, next, path, trusted, allowsSticky)
            guard found.st_mode & S_IFMT == S_IFLNK else {
                current = next
                continue
            }
            links += 1
            guard links <= maximumSymbolicLinks, let target = linkTarget(of: next) else {
                throw FolderError(path, .replaceableByOthers(above: next))
            }
            if target.hasPrefix("/") { current = "" }
            rest += target.split(separator: "/").reversed().map(String.init)
        }
    }

    private static func checkAncestor(
        _ status: stat, _ above: String, _ path: String, _ trusted: Set<UInt32>, _ allowsSticky: Bool
    ) throws(FolderError) {
        let isLink = status.st_mode & S_IFMT == S_IFLNK
        let isSafe = allowsSticky && status.st_mode & S_ISVTX != 0
        let isWritable = status.st_mode & 0o022 != 0 && !isSafe
        guard trusted.contains(status.st_uid), isLink || !isWritable else {
            throw FolderError(path, .replaceableByOthers(above: above))
        }
    }

    private static func linkTarget(of link: String) -> String? {
        var bytes = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = unsafe readlink(link, &bytes, bytes.count)
        guard count > 0, count < bytes.count else { return nil }
        return String(decoding: bytes[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}

extension PrivateFolder {
    /// Removes a folder with its content; does not follow links. Ignores entries that cannot be removed.
    public static func remove(_ path: String) {
        let descriptor = unsafe open(ByteText.cString(path), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        if descriptor >= 0 {
            if let folder = unsafe fdopendir(descriptor) {
                unsafe removeEntries(folder, path)
                unsafe closedir(folder)
            } else {
                close(descriptor)
            }
        }
        unsafe rmdir(ByteText.cString(path))
    }

    private static func removeEntries(_ folder: OpaquePointer, _ path: String) {
        while let entry = unsafe readdir(folder) {
            let name = unsafe withUnsafePointer(to: &entry.pointee.d_name) { pointer in
                unsafe pointer.withMemoryRebound(to: CChar.self, capacity: 256) { unsafe ByteText.text(cString: $0) }
            }
            guard name != ".", name != ".." else { continue }
            let inner = "\(path)/\(name)"
            if unsafe unlink(ByteText.cString(inner)) != 0 { remove(inner) }
        }
    }
}
