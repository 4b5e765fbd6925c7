internal import EarshotLoop
internal import Glibc

/// Kind of the file at an output path, with symbolic links resolved.
enum OutputPath: Equatable {
    /// A missing or regular file at this path, which a new file replaces.
    case file(String)
    /// An open descriptor of this process, such as `/dev/stdout`.
    case descriptor(Int32)
    /// A file that is opened for writing: a device, a named pipe, or an open file of another process.
    case existing

    /// Maximum number of links in a path, as in the kernel.
    private static let mostLinks = 40

    /// - Throws: `Destination.Failure` for a path with too many links.
    init(_ path: String) throws(Destination.Failure) {
        var target = path
        for _ in 0...Self.mostLinks {
            if let open = Self.openFile(target) {
                self = open
                return
            }
            guard let next = Self.link(target) else {
                self = Self.isReplaceable(target) ? .file(target) : .existing
                return
            }
            target = next
        }
        errno = ELOOP
        throw Destination.cannot("open", path)
    }

    /// Returns the open file that an entry of `/proc/ID/fd` names, proc(5); nil for another path. The text of such a
    /// link need not be a path, and a new file there would not reach the readers of the open one.
    private static func openFile(_ path: String) -> OutputPath? {
        let (folder, name) = parts(of: path)
        guard let descriptor = Int32(name), descriptor >= 0 else { return nil }
        // The links of /dev/stdout and its kind are whole without /proc, too.
        if ["/proc/self/fd/", "/dev/fd/"].contains(folder) { return .descriptor(descriptor) }
        guard let levels = realPath(folder.isEmpty ? "." : folder)?.split(separator: "/") else { return nil }
        // /proc/ID/fd, or /proc/ID/task/ID/fd
        guard levels.count == 3 || levels.count == 5, levels.first == "proc", levels.last == "fd" else { return nil }
        return realPath("/proc/self") == "/proc/\(levels[1])" ? .descriptor(descriptor) : .existing
    }

    /// Returns the path that a symbolic link names; nil for another file.
    private static func link(_ path: String) -> String? {
        var target = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = unsafe readlink(ByteText.path(path), &target, target.count)
        guard count > 0 else { return nil }
        let text = ByteText.text(of: target.prefix(count).map { UInt8(bitPattern: $0) })
        return text.utf8.first == UInt8(ascii: "/") ? text : parts(of: path).folder + text
    }

    /// Whether a new file may take the path.
    private static func isReplaceable(_ path: String) -> Bool {
        var status = stat()
        return unsafe stat(ByteText.path(path), &status) != 0 || status.st_mode & S_IFMT == S_IFREG
    }

    /// Returns the directory, with its slash, and the name. The directory of a bare name is empty.
    private static func parts(of path: String) -> (folder: String, name: String) {
        guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return ("", path) }
        return (String(path[...slash]), String(path[path.utf8.index(after: slash)...]))
    }

    private static func realPath(_ path: String) -> String? {
        let resolved = unsafe realpath(ByteText.path(path), nil)
        defer { unsafe free(resolved) }
        return unsafe resolved.map { unsafe ByteText.text(cString: $0) }
    }
}
