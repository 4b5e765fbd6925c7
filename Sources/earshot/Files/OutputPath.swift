internal import EarshotClient
internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// Kind of the file at an output path, with symbolic links resolved.
enum OutputPath: Equatable {
    /// A missing or regular file at this path, which a new file replaces.
    case file(String)
    /// An open descriptor of this process, such as `/dev/stdout`.
    case descriptor(Int32)
    /// A file at this path that is opened for writing: a device, a named pipe, or an open file of another process.
    case specialFile(String)

    /// - Throws: `OutputFailure` for a path with too many links, through a missing folder, or through an entry of
    ///   another user in a shared sticky folder.
    init(_ path: String) throws(OutputFailure) {
        var target = path
        for _ in 0...OutputEntry.maximumLinks {
            if let open = Self.openFile(target) {
                self = open
                return
            }
            let entry = try OutputEntry(target, given: path)
            guard let next = try entry.linkTarget() else {
                let kind = try entry.fileStatus().map { $0.st_mode & S_IFMT } ?? S_IFREG
                self = kind == S_IFREG ? .file(target) : .specialFile(target)
                return
            }
            let isAbsolute = next.utf8.first == UInt8(ascii: "/")
            target = isAbsolute ? next : OutputEntry.folderAndName(of: target).folder + next
        }
        errno = ELOOP
        throw OutputFailure.systemFailure("open", path)
    }

    /// Returns the open file that an entry of `/proc/ID/fd` names, proc(5); nil for another path. The text of such a
    /// link need not be a path, and a new file there would not reach the readers of the open one.
    private static func openFile(_ path: String) -> OutputPath? {
        let (folder, name) = OutputEntry.folderAndName(of: path)
        guard let descriptor = Int32(name), descriptor >= 0 else { return nil }
        // Links such as /dev/stdout name these paths. This check works without a mounted /proc.
        if ["/proc/self/fd/", "/dev/fd/"].contains(folder) { return .descriptor(descriptor) }
        guard let levels = realPath(folder.isEmpty ? "." : folder)?.split(separator: "/") else { return nil }
        // /proc/ID/fd, or /proc/ID/task/ID/fd
        guard levels.count == 3 || levels.count == 5, levels.first == "proc", levels.last == "fd" else { return nil }
        return realPath("/proc/self") == "/proc/\(levels[1])" ? .descriptor(descriptor) : .specialFile(path)
    }

    private static func realPath(_ path: String) -> String? {
        let resolved = unsafe realpath(ByteText.cString(path), nil)
        defer { unsafe free(resolved) }
        return unsafe resolved.map { unsafe ByteText.text(cString: $0) }
    }
}

/// Names of output files below a directory, each used once.
struct OutputNames {
    private let template: OutputTemplate?
    /// Whether the response may name its file.
    private let usesResponseName: Bool
    private var fileNames = SafeFileNames()

    init(template: OutputTemplate? = nil, readsResponse: Bool = false) {
        self.template = template
        self.usesResponseName = readsResponse
    }

    /// Returns the path for a URL before its request; nil if it depends on the response.
    ///
    /// - Parameter index: index in the list, from 1.
    mutating func pathBeforeResponse(_ entry: ListEntry, index: Int) -> String? {
        let isFixed = entry.hasName || !usesResponseName && template?.needsBody != true
        return isFixed ? path(entry, index: index, nil) : nil
    }

    /// Returns the path for a URL, as far as it is known before the response, without regard to other files.
    func expectedPath(_ entry: ListEntry, index: Int) -> String {
        let name = name(entry, index, nil)
        return entry.outputPath(defaultName: name) ?? name
    }

    /// Returns the path for the body of a URL.
    mutating func path(_ entry: ListEntry, index: Int, _ response: Terminal.Response?) -> String {
        guard !entry.options.isEmpty || template != nil || usesResponseName else {
            return fileNames.name(for: entry.url)
        }
        let path = entry.outputPath(defaultName: name(entry, index, response)).map(SafeFileNames.safePath)
        return fileNames.uniqueName(path ?? name(entry, index, response))
    }

    private func name(_ entry: ListEntry, _ index: Int, _ response: Terminal.Response?) -> String {
        if usesResponseName, let response,
            let field = HeaderFields(lines: response.httpFields).first(where: { $0.isNamed("content-disposition") }),
            let name = ContentDisposition.fileName(field.value)
        {
            return name
        }
        return template?.path(of: entry.url, index: index, sha256: response?.sha256)
            ?? SafeFileNames.fileName(ofURL: entry.url)
    }
}
