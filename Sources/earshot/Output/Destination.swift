internal import EarshotClient
internal import EarshotLoop
internal import Glibc

/// Destination of bodies.
struct Destination {
    private enum Place {
        /// Bodies are discarded.
        case nowhere
        /// Standard output, and whether it is a terminal to which no binary body may go.
        case standardOutput(isGuarded: Bool)
        /// A single file.
        case file(String)
        case folder(String, OpenFolder)
    }

    /// Reason why a body was not written.
    enum Failure: Error {
        /// The source is missing or has changed. The body can be requested again.
        case lostSource
        /// The reader of standard output has closed it.
        case broken
        case interrupted
        /// The message.
        case cannotWrite(String)
    }

    /// Source of a body.
    enum Body {
        case bytes([UInt8])
        /// Path in the spool, expected length in bytes, and whether this program owns the file exclusively.
        case file(String, length: Int, isOwn: Bool)
    }

    private let place: Place
    private var names = FileNames()
    /// Descriptor that aborts a blocked write when it is readable.
    private let interrupt: Int32
    /// Number of replaced files in the directory.
    private(set) var replaced = 0
    /// Mover of spool files to the destination; nil where files are copied.
    private let mover: FileMover?

    static func nowhere() -> Destination { Destination(place: .nowhere, interrupt: -1) }

    /// Standard output.
    ///
    /// - Parameter permitsBinary: whether a binary body may go to a terminal.
    static func standardOutput(interrupt: Int32, permitsBinary: Bool = true) -> Destination {
        let isGuarded = !permitsBinary && isatty(STDOUT_FILENO) == 1
        return Destination(place: .standardOutput(isGuarded: isGuarded), interrupt: interrupt)
    }

    static func file(_ path: String, interrupt: Int32) -> Destination {
        let mover = replaced(path).flatMap { FileMover(into: folder(of: $0)) }
        return Destination(place: .file(path), interrupt: interrupt, mover: mover)
    }

    /// Opens a directory, and creates it if it is missing.
    ///
    /// - Throws: `Complaint` if it can be neither opened nor created.
    static func folder(_ path: String, interrupt: Int32) throws(Complaint) -> Destination {
        do throws(ClientError) {
            try Folder.make(path, mode: 0o777)
        } catch {
            throw Complaint(.cannotWrite, "\(error.description); give another -d DIR")
        }
        do throws(SystemError) {
            let place = Place.folder(path, try OpenFolder(path))
            return Destination(place: place, interrupt: interrupt, mover: FileMover(into: path))
        } catch {
            throw Complaint(.cannotWrite, "cannot open \(path): \(error); give another -d DIR")
        }
    }

    private init(place: Place, interrupt: Int32, mover: FileMover? = nil) {
        self.place = place
        self.interrupt = interrupt
        self.mover = mover
    }

    /// Whether exclusively owned files of this spool can be moved to the destination.
    func takesFiles(of spool: String?) -> Bool { spool.map { mover?.reaches($0) == true } ?? false }

    /// Path of the single file, as given; nil without one.
    var onlyFile: String? { if case .file(let path) = place { path } else { nil } }

    /// Whether bodies go to a terminal.
    var isTerminal: Bool { if case .standardOutput = place { isatty(STDOUT_FILENO) == 1 } else { false } }

    /// Returns a writer that streams the single body. Nil if bodies are discarded, have their own files, or the
    /// destination is a device.
    func stream() -> StreamedBody? {
        switch place {
        case .standardOutput(let isGuarded):
            return StreamedBody(Output(STDOUT_FILENO, interrupt: interrupt), isGuarded: isGuarded)
        case .file(let path): return Destination.replaced(path).map { StreamedBody(newFileFor: $0) }
        case .nowhere, .folder: return nil
        }
    }

    /// Writes the body of `url`. A regular file is written completely or not at all.
    ///
    /// - Parameter flushed: whether a new file must survive a power cut.
    /// - Returns: path of the file; nil without one.
    mutating func write(_ body: Body, of url: String, flushed: Bool = false) throws(Failure) -> String? {
        switch place {
        case .nowhere: return nil
        case .standardOutput(let isGuarded):
            let source = try Source(body)
            if isGuarded, BinaryBody.isBinary(source.beginning) { throw BinaryBody.refusal }
            try source.write(to: Output(STDOUT_FILENO, interrupt: interrupt), "the output")
            return nil
        case .file(let path):
            try writeFile(path, body)
            return path
        case .folder(let folder, let opened):
            // Opened first, so that a missing source uses up no name.
            let source = try Source(body)
            let name = names.name(for: url)
            let path = "\(folder)/\(name)"
            let isThere = source.isOwn && mover != nil && opened.has(ByteText.path(name))
            if source.moves(by: mover, to: name, in: opened.descriptor) {
                if isThere { replaced += 1 }
            } else if try write(source, to: try NewFile(in: opened, named: name, at: path), path, flushed: flushed) {
                replaced += 1
            }
            return path
        }
    }

    private func writeFile(_ path: String, _ body: Body) throws(Failure) {
        if let file = Destination.replaced(path) {
            let source = try Source(body)
            if source.moves(by: mover, to: file, in: AT_FDCWD) { return }
            _ = try write(source, to: try NewFile(for: file), path)
            return
        }
        let descriptor = unsafe open(ByteText.path(path), O_WRONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw Destination.cannot("open", path) }
        defer { close(descriptor) }
        try write(body, to: descriptor)
    }

    /// Returns the path that a new file replaces, with symbolic links resolved. Nil for a device or a named pipe, which
    /// is opened for writing.
    private static func replaced(_ path: String) -> String? {
        var status = stat()
        guard unsafe stat(ByteText.path(path), &status) == 0 else { return path }
        guard status.st_mode & S_IFMT == S_IFREG else { return nil }
        let resolved = unsafe realpath(ByteText.path(path), nil)
        defer { unsafe free(resolved) }
        return unsafe resolved.map { unsafe ByteText.text(cString: $0) } ?? path
    }

    private static func folder(of path: String) -> String {
        let slash = path.utf8.lastIndex(of: UInt8(ascii: "/"))
        return slash.map { String(path[...$0]) } ?? "."
    }

    /// - Returns: whether the new file replaced another one.
    private func write(
        _ source: Source, to file: NewFile, _ path: String, flushed: Bool = false
    ) throws(Failure) -> Bool {
        try source.write(to: file.output, path)
        if flushed { try file.flush() }
        let hasReplaced = try file.commit()
        if flushed { try file.flushName() }
        return hasReplaced
    }

    private func write(_ body: Body, to descriptor: Int32) throws(Failure) {
        try Source(body).write(to: Output(descriptor, interrupt: interrupt), "the output")
    }

    /// Failure with the text of `errno`.
    static func cannot(_ verb: String, _ path: String) -> Failure {
        .cannotWrite("cannot \(verb) \(path): \(SystemCause.text(errno, at: path))")
    }

    /// Readable body.
    private final class Source {
        private let body: Body
        private let descriptor: Int32

        init(_ body: Body) throws(Failure) {
            self.body = body
            switch body {
            case .bytes: descriptor = -1
            case .file(let path, let length, _):
                descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
                var status = stat()
                guard descriptor >= 0, unsafe fstat(descriptor, &status) == 0, status.st_uid == geteuid(),
                    status.st_mode & S_IFMT == S_IFREG, Int(status.st_size) == length
                else { throw .lostSource }
            }
        }

        deinit { if descriptor >= 0 { close(descriptor) } }

        /// Whether this program owns the file exclusively.
        var isOwn: Bool { if case .file(_, _, isOwn: true) = body { true } else { false } }

        /// First bytes of the body.
        var beginning: [UInt8] {
            switch body {
            case .bytes(let bytes): Array(bytes.prefix(BinaryBody.checkedBytes))
            case .file: BinaryBody.beginning(of: descriptor, at: 0)
            }
        }

        /// Moves an exclusively owned file to its output path.
        ///
        /// - Returns: false if the file must be copied.
        func moves(by mover: FileMover?, to name: String, in folder: Int32) -> Bool {
            guard let mover, case .file(let path, _, isOwn: true) = body else { return false }
            return mover.move(path, open: descriptor, to: name, in: folder)
        }

        func write(to output: Output, _ name: String) throws(Failure) {
            let outcome =
                switch body {
                case .bytes(let bytes): output.write(bytes)
                case .file(_, let length, _): output.copy(from: descriptor, length: length)
                }
            try Destination.check(outcome, name)
        }
    }

    /// Throws the failure of a write.
    static func check(_ outcome: Output.Outcome, _ name: String) throws(Failure) {
        switch outcome {
        case .done: return
        case .broken: throw .broken
        case .interrupted: throw .interrupted
        case .short: throw .cannotWrite("cannot write \(name): its spool file was truncated; fetch it again")
        case .failed(let number):
            throw .cannotWrite("cannot write \(name): \(SystemCause.text(number, at: name))")
        }
    }
}
