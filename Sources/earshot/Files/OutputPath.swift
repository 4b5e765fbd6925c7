internal import EarshotLoop
internal import Glibc

/// Kind of the file at an output path, with symbolic links resolved.
enum OutputPath: Equatable {
    /// A missing or regular file at this path, which a new file replaces.
    case file(String)
    /// An open descriptor of this process, such as `/dev/stdout`.
    case descriptor(Int32)
    /// A file at this path that is opened for writing: a device, a named pipe, or an open file of another process.
    case existing(String)

    /// - Throws: `OutputFailure` for a path with too many links, through a missing folder, or through an entry of
    ///   another user in a shared sticky folder.
    init(_ path: String) throws(OutputFailure) {
        var target = path
        for _ in 0...OutputEntry.mostLinks {
            if let open = Self.openFile(target) {
                self = open
                return
            }
            let entry = try OutputEntry(target, given: path)
            guard let next = try entry.link() else {
                let kind = try entry.status().map { $0.st_mode & S_IFMT } ?? S_IFREG
                self = kind == S_IFREG ? .file(target) : .existing(target)
                return
            }
            let isAbsolute = next.utf8.first == UInt8(ascii: "/")
            target = isAbsolute ? next : OutputEntry.parts(of: target).folder + next
        }
        errno = ELOOP
        throw OutputFailure.cannot("open", path)
    }

    /// Returns the open file that an entry of `/proc/ID/fd` names, proc(5); nil for another path. The text of such a
    /// link need not be a path, and a new file there would not reach the readers of the open one.
    private static func openFile(_ path: String) -> OutputPath? {
        let (folder, name) = OutputEntry.parts(of: path)
        guard let descriptor = Int32(name), descriptor >= 0 else { return nil }
        // The links of /dev/stdout and its kind are whole without /proc, too.
        if ["/proc/self/fd/", "/dev/fd/"].contains(folder) { return .descriptor(descriptor) }
        guard let levels = realPath(folder.isEmpty ? "." : folder)?.split(separator: "/") else { return nil }
        // /proc/ID/fd, or /proc/ID/task/ID/fd
        guard levels.count == 3 || levels.count == 5, levels.first == "proc", levels.last == "fd" else { return nil }
        return realPath("/proc/self") == "/proc/\(levels[1])" ? .descriptor(descriptor) : .existing(path)
    }

    private static func realPath(_ path: String) -> String? {
        let resolved = unsafe realpath(ByteText.path(path), nil)
        defer { unsafe free(resolved) }
        return unsafe resolved.map { unsafe ByteText.text(cString: $0) }
    }
}
