internal import EarshotLoop
internal import Glibc

/// File that appears under its name only when it is complete. It is deleted if it is dropped earlier.
///
/// It is an unnamed file where the file system supports that, so a killed program leaves nothing behind. Otherwise it
/// has a temporary name beside its path, which remains after a kill.
final class NewFile {
    /// Output for the content.
    let output: Output
    /// Directory of relative names; nil for the current directory.
    private let folder: OpenFolder?
    private let name: [CChar]
    /// Path for messages.
    private let path: String
    private let temporary: [CChar]
    private let descriptor: Int32
    /// Whether `temporary` names the file.
    private var isNamed: Bool

    /// Random ID of this process, which writes no two files of one name concurrently. A process ID would collide with
    /// that of a process in another container with the same directory.
    private static let writer = String(UInt64.random(in: 0 ... .max), radix: 36)
    /// Temporary name of all files in a directory. A constant name stays in the directory cache of the kernel.
    private static let usualTemporary = ".earshot-\(writer).part"

    /// Begins a file that will create or replace `path`.
    ///
    /// - Parameter permissions: permissions of the file. By default those of the replaced file, or those of a new one.
    convenience init(for path: String, permissions: FilePermissions? = nil) throws(Destination.Failure) {
        let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")).map { path.index(after: $0) } ?? path.startIndex
        let name = path[slash...]
        // A file name has at most 255 bytes.
        let shown = name.utf8.count <= 200 ? name : "long"
        let permissions = permissions ?? FilePermissions(of: path)
        // A file with a name is closed to others until it has its permissions.
        try self.init(
            nil, path, at: path, "\(path[..<slash]).\(shown).\(NewFile.writer).part",
            mode: permissions == nil ? 0o666 : 0o600)
        if let permissions, !permissions.apply(to: descriptor) { throw Destination.cannot("write", path) }
    }

    /// Begins a file that will create or replace `name` in an open directory. At most one exists at a time.
    convenience init(in folder: OpenFolder, named name: String, at path: String) throws(Destination.Failure) {
        try self.init(folder, name, at: path, NewFile.usualTemporary)
    }

    private init(
        _ folder: OpenFolder?, _ name: String, at path: String, _ temporary: String, mode: mode_t = 0o666
    ) throws(Destination.Failure) {
        self.folder = folder
        self.name = ByteText.path(name)
        self.path = path
        self.temporary = ByteText.path(temporary)
        let slash = folder == nil ? name.utf8.lastIndex(of: UInt8(ascii: "/")) : nil
        let parent = slash.map { String(name[...$0]) } ?? "."
        let base = folder?.descriptor ?? AT_FDCWD
        if let unnamed = UnnamedFile.open(in: parent, of: base) {
            descriptor = unnamed
            isNamed = false
        } else {
            descriptor = unsafe openat(
                base, self.temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode)
            isNamed = descriptor >= 0
        }
        output = Output(file: descriptor)
        guard descriptor >= 0 else { throw Destination.cannot("write", path) }
    }

    deinit {
        if descriptor >= 0 { close(descriptor) }
        if isNamed { unsafe unlinkat(folder?.descriptor ?? AT_FDCWD, temporary, 0) }
    }

    /// Sets the time of the last change, in seconds since 1970.
    func setTime(_ seconds: Int64) { FileTime.set(descriptor, seconds) }

    /// Lets only the owner of the file read and write it. To be called before the first write.
    func makePrivate() throws(Destination.Failure) {
        guard fchmod(descriptor, 0o600) == 0 else { throw Destination.cannot("write", path) }
    }

    /// Waits until the content is on disk. With delayed allocation, a full disk is reported only here.
    func flush() throws(Destination.Failure) {
        guard fsync(descriptor) == 0 else { throw Destination.cannot("write", path) }
    }

    /// Waits until the name is on disk.
    func flushName() throws(Destination.Failure) {
        let slash = path.utf8.lastIndex(of: UInt8(ascii: "/"))
        let parent = slash.map { String(path[...$0]) } ?? "."
        let opened = unsafe open(ByteText.path(parent), O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        // A directory that its owner may write but not read cannot be flushed.
        if opened < 0, errno == EACCES { return }
        guard opened >= 0 else { throw Destination.cannot("open", parent) }
        defer { close(opened) }
        guard fsync(opened) == 0 else { throw Destination.cannot("write", parent) }
    }

    /// Names the complete file, unless its directory has another one of that name.
    ///
    /// - Returns: false if the name is taken.
    func commitNew() throws(Destination.Failure) -> Bool {
        let folder = folder?.descriptor ?? AT_FDCWD
        // The temporary name is removed with this object.
        let isLinked =
            isNamed
            ? unsafe linkat(folder, temporary, folder, name, 0) == 0 : UnnamedFile.name(descriptor, name, in: folder)
        if isLinked { return true }
        if errno == EEXIST { return false }
        // A file system without hard links. The caller has checked the name.
        try commit()
        return true
    }

    /// Names the complete file.
    ///
    /// - Returns: whether it replaced another file of its directory; false without an open directory.
    @discardableResult
    func commit() throws(Destination.Failure) -> Bool {
        // The rename of a temporary name does not report whether it replaced a file.
        var replaces = isNamed && self.folder?.has(name) == true
        let folder = folder?.descriptor ?? AT_FDCWD
        if !isNamed {
            if UnnamedFile.name(descriptor, name, in: folder) { return false }
            replaces = true
            // Only a rename can replace a file.
            guard errno == EEXIST, UnnamedFile.name(descriptor, temporary, in: folder) else {
                throw Destination.cannot("write", path)
            }
            isNamed = true
        }
        guard unsafe renameat(folder, temporary, folder, name) == 0 else {
            throw Destination.cannot("write", path, directoryStep: "remove that directory, or give another name")
        }
        isNamed = false
        return replaces
    }
}
