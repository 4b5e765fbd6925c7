internal import EarshotLoop
internal import Glibc

/// A file that gets its name once it is whole. Dropped before, it is gone.
///
/// It has no name until then, so nothing is left of a program that is killed. Where the file system has no such files it
/// has a name of its own beside its path, which only an orderly end removes.
final class NewFile {
    /// Where its bytes go.
    let output: Output
    /// What the names are relative to; nil for the current folder.
    private let folder: OpenFolder?
    private let name: [CChar]
    /// As messages show it.
    private let path: String
    private let temporary: [CChar]
    private let descriptor: Int32
    /// Whether `temporary` names the file.
    private var isNamed: Bool

    /// This process, which writes no two files with one name at once. Not its number: in another container, with the
    /// same folder, another process has that too.
    private static let writer = String(UInt64.random(in: 0 ... .max), radix: 36)
    /// The one name of what is not whole yet in a folder: the kernel looks for a name that it knows.
    private static let usualTemporary = ".earshot-\(writer).part"

    /// Begins one that becomes, or replaces, the file at `path`.
    convenience init(for path: String) throws(Destination.Failure) {
        let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")).map { path.index(after: $0) } ?? path.startIndex
        let name = path[slash...]
        // The name of a file has 255 bytes at most.
        let shown = name.utf8.count <= 200 ? name : "long"
        try self.init(nil, path, at: path, "\(path[..<slash]).\(shown).\(NewFile.writer).part")
    }

    /// Begins one that becomes, or replaces, the file of this name in an open folder, which has `path`. One at a time.
    convenience init(in folder: OpenFolder, named name: String, at path: String) throws(Destination.Failure) {
        try self.init(folder, name, at: path, NewFile.usualTemporary)
    }

    private init(
        _ folder: OpenFolder?, _ name: String, at path: String, _ temporary: String
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
                base, self.temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0o666)
            isNamed = descriptor >= 0
        }
        output = Output(file: descriptor)
        guard descriptor >= 0 else { throw Destination.cannot("write", path) }
    }

    deinit {
        if descriptor >= 0 { close(descriptor) }
        if isNamed { unsafe unlinkat(folder?.descriptor ?? AT_FDCWD, temporary, 0) }
    }

    /// Waits until the bytes are on the disk. A file system that allocates late reports only here that it is full.
    func flush() throws(Destination.Failure) {
        guard fsync(descriptor) == 0 else { throw Destination.cannot("write", path) }
    }

    /// Waits until the name is on the disk.
    func flushName() throws(Destination.Failure) {
        let slash = path.utf8.lastIndex(of: UInt8(ascii: "/"))
        let parent = slash.map { String(path[...$0]) } ?? "."
        let opened = unsafe open(ByteText.path(parent), O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        // A folder that its owner may write but not read cannot be flushed.
        if opened < 0, errno == EACCES { return }
        guard opened >= 0 else { throw Destination.cannot("open", parent) }
        defer { close(opened) }
        guard fsync(opened) == 0 else { throw Destination.cannot("write", parent) }
    }

    /// Gives the file its name, once all of its bytes are written.
    ///
    /// - Returns: whether it replaced another file of its folder; false where no folder is open.
    @discardableResult
    func commit() throws(Destination.Failure) -> Bool {
        // A file with a temporary name does not notice whether its rename replaces another.
        var replaces = isNamed && self.folder?.has(name) == true
        let folder = folder?.descriptor ?? AT_FDCWD
        if !isNamed {
            if UnnamedFile.name(descriptor, name, in: folder) { return false }
            replaces = true
            // Only a rename replaces a file.
            guard errno == EEXIST, UnnamedFile.name(descriptor, temporary, in: folder) else {
                throw Destination.cannot("write", path)
            }
            isNamed = true
        }
        guard unsafe renameat(folder, temporary, folder, name) == 0 else { throw Destination.cannot("write", path) }
        isNamed = false
        return replaces
    }
}
