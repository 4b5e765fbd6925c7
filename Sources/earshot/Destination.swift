internal import EarshotClient
internal import EarshotLoop
internal import Glibc

/// Where bodies are written.
struct Destination {
    private enum Place {
        /// Bodies are not kept.
        case nowhere
        case standardOutput
        /// The one file.
        case file(String)
        case folder(String)
    }

    /// Why a body is not where it should be.
    enum Failure: Error {
        /// The source has gone or is not what it was: the body can be asked for again.
        case lostSource
        /// Nobody reads standard output any more.
        case broken
        case interrupted
        /// A sentence.
        case cannotWrite(String)
    }

    /// What a body is written from.
    enum Body {
        case bytes([UInt8])
        /// The spool's path and the length it must have.
        case file(String, length: Int)
    }

    private let place: Place
    private var names = FileNames()
    /// Ends a write that waits.
    private let interrupt: Int32

    static func nowhere() -> Destination { Destination(place: .nowhere, interrupt: -1) }

    static func standardOutput(interrupt: Int32) -> Destination {
        Destination(place: .standardOutput, interrupt: interrupt)
    }

    static func file(_ path: String, interrupt: Int32) -> Destination {
        Destination(place: .file(path), interrupt: interrupt)
    }

    /// A folder, made if it is not there.
    ///
    /// - Throws: `Complaint` when it cannot be made.
    static func folder(_ path: String, interrupt: Int32) throws(Complaint) -> Destination {
        do throws(ClientError) {
            try Folder.make(path, mode: 0o777)
        } catch {
            throw Complaint(.cannotWrite, error.description)
        }
        return Destination(place: .folder(path), interrupt: interrupt)
    }

    private init(place: Place, interrupt: Int32) {
        self.place = place
        self.interrupt = interrupt
    }

    /// Writes a body while it arrives; nil where bodies become files, which are there when they are whole.
    func stream() -> StreamedBody? {
        guard case .standardOutput = place else { return nil }
        return StreamedBody(Output(STDOUT_FILENO, interrupt: interrupt))
    }

    /// Writes the body of `url`, whole or not at all where it becomes a file.
    ///
    /// - Returns: the file's path; nil if it is none.
    mutating func write(_ body: Body, of url: String) throws(Failure) -> String? {
        switch place {
        case .nowhere: return nil
        case .standardOutput:
            try write(body, to: STDOUT_FILENO)
            return nil
        case .file(let path):
            try writeFile(path, body)
            return path
        case .folder(let folder):
            // Opened first: a source that is gone must not cost a name.
            let source = try Source(body)
            let path = "\(folder)/\(names.name(for: url))"
            try replace(path, source)
            return path
        }
    }

    private func writeFile(_ path: String, _ body: Body) throws(Failure) {
        var status = stat()
        guard unsafe stat(path, &status) == 0 else { return try replace(path, Source(body)) }
        guard status.st_mode & S_IFMT != S_IFREG else {
            // Through a link to the file itself, as any program would.
            let resolved = unsafe realpath(path, nil)
            defer { unsafe free(resolved) }
            return try replace(unsafe resolved.map { unsafe String(cString: $0) } ?? path, Source(body))
        }
        // A device or a named pipe is written to, not replaced.
        let descriptor = unsafe open(path, O_WRONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw Destination.cannot("open", path) }
        defer { close(descriptor) }
        try write(body, to: descriptor)
    }

    /// Writes a file beside `path` and gives it that name once it is whole.
    private func replace(_ path: String, _ source: Source) throws(Failure) {
        let slash = path.lastIndex(of: "/").map { path.index(after: $0) } ?? path.startIndex
        let temporary = "\(path[..<slash]).\(path[slash...].prefix(100)).\(getpid()).part"
        let descriptor = unsafe open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0o666)
        guard descriptor >= 0 else { throw Destination.cannot("write", path) }
        var isWhole = false
        defer { if !isWhole { unsafe unlink(temporary) } }
        do {
            defer { close(descriptor) }
            try source.write(to: Output(descriptor), path)
        }
        guard unsafe rename(temporary, path) == 0 else { throw Destination.cannot("write", path) }
        isWhole = true
    }

    private func write(_ body: Body, to descriptor: Int32) throws(Failure) {
        try Source(body).write(to: Output(descriptor, interrupt: interrupt), "the output")
    }

    private static func cannot(_ verb: String, _ path: String) -> Failure {
        .cannotWrite(unsafe "cannot \(verb) \(path): \(String(cString: strerror(errno)))")
    }

    /// A body that can be read.
    private final class Source {
        private let body: Body
        private let descriptor: Int32

        init(_ body: Body) throws(Failure) {
            self.body = body
            switch body {
            case .bytes: descriptor = -1
            case .file(let path, let length):
                descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
                var status = stat()
                guard descriptor >= 0, unsafe fstat(descriptor, &status) == 0, status.st_uid == geteuid(),
                    status.st_mode & S_IFMT == S_IFREG, Int(status.st_size) == length
                else { throw .lostSource }
            }
        }

        deinit { if descriptor >= 0 { close(descriptor) } }

        func write(to output: Output, _ name: String) throws(Failure) {
            let outcome =
                switch body {
                case .bytes(let bytes): output.write(bytes)
                case .file(_, let length): output.copy(from: descriptor, length: length)
                }
            try Destination.check(outcome, name)
        }
    }

    /// Throws what kept a body from being written.
    static func check(_ outcome: Output.Outcome, _ name: String) throws(Failure) {
        switch outcome {
        case .done: return
        case .broken: throw .broken
        case .interrupted: throw .interrupted
        case .short: throw .cannotWrite("cannot write \(name): the file in the spool became shorter")
        case .failed(let number):
            throw .cannotWrite(unsafe "cannot write \(name): \(String(cString: strerror(number)))")
        }
    }
}
