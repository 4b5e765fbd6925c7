internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import LibCrypto

/// Record of an `earshot watch` in the background, so that `earshot retry` can start it again for failed requests.
///
/// It is a file below `earshot/background` in the user's state folder, named by the hash of its content. Its lock
/// orders the processes of one record: see ``BackgroundLock``.
struct BackgroundRecord: Equatable {
    /// Version of the form, the first text in a file.
    private static let version = "1"
    /// Maximum size of a file in bytes: a few texts, most of them paths.
    private static let maximumFileBytes = 64 << 10
    /// Maximum number of files that are read. More remain unused until others are removed.
    private static let maximumFileCount = 10_000
    /// Age in seconds after which a file is removed: no durable request lives longer than a year.
    private static let maximumAgeSeconds = 366 * 86_400

    /// Options that select the bus, at least one.
    let bus: [String]
    /// Handler, or NAME/ for all below a name.
    let handler: String
    let directory: String
    /// Path of the log; empty for none.
    let log: String
    /// Program for each result with its arguments; empty for none.
    let exec: String

    /// Content of the file.
    var fileContent: [UInt8] {
        Array(([Self.version, handler, directory, log, exec] + bus).joined(separator: "\0").utf8)
    }

    /// Path of the file; nil without a state folder.
    var path: String? {
        guard let folder = Self.folder else { return nil }
        var hash = SHA256()
        hash.update(fileContent.span)
        return "\(folder)/\(hash.finalize().hex)"
    }

    /// Whether this record covers the requests of a handler on this bus.
    func coversHandler(_ handler: HandlerID, on bus: [String]) -> Bool {
        self.bus == bus && HandlerPattern(self.handler)?.matches(handler) == true
    }

    /// Parses the content of a file; nil if it has another form.
    init?(fileContent bytes: [UInt8]) {
        let words = bytes.split(separator: 0, omittingEmptySubsequences: false).map { ByteText.text(of: Array($0)) }
        guard words.count >= 6, words[0] == Self.version else { return nil }
        self.init(bus: Array(words[5...]), handler: words[1], directory: words[2], log: words[3], exec: words[4])
    }

    init(bus: [String], handler: String, directory: String, log: String, exec: String) {
        self.bus = bus
        self.handler = handler
        self.directory = directory
        self.log = log
        self.exec = exec
    }

    /// `earshot/background` in `XDG_STATE_HOME`, else in `~/.local/state`; nil if neither variable is set.
    static var folder: String? {
        let state = Environment.value("XDG_STATE_HOME") ?? Environment.value("HOME").map { "\($0)/.local/state" }
        return state.map { Folder.absolutePath("\($0)/earshot/background") }
    }

    /// Returns the records of this user. Removes outdated ones.
    static func readAll() -> [BackgroundRecord] {
        guard let folder, (try? PrivateFolder.existsStore(folder)) == true,
            let entries = unsafe opendir(ByteText.cString(folder))
        else { return [] }
        defer { unsafe closedir(entries) }
        var records: [BackgroundRecord] = []
        let now = time(nil)
        while records.count < maximumFileCount, let entry = unsafe readdir(entries) {
            let name = unsafe withUnsafePointer(to: &entry.pointee.d_name) { pointer in
                unsafe pointer.withMemoryRebound(to: CChar.self, capacity: 256) { unsafe ByteText.text(cString: $0) }
            }
            let path = "\(folder)/\(name)"
            var status = stat()
            guard unsafe lstat(ByteText.cString(path), &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
                continue
            }
            guard now - status.st_mtim.tv_sec < maximumAgeSeconds else {
                unsafe unlink(ByteText.cString(path))
                continue
            }
            if let bytes = try? InputFile.contents(of: path, atMost: maximumFileBytes),
                let record = BackgroundRecord(fileContent: bytes)
            {
                records.append(record)
            }
        }
        return records
    }
}

/// Lock of a ``BackgroundRecord``: one process writes the bodies, and at most one more waits to be the next.
///
/// The writer locks the first byte of the file with lockf(3). The waiting process locks the second byte. Each lock ends
/// with its process.
final class BackgroundLock {
    /// Byte of the process that writes the bodies.
    private static let writerByteOffset: off_t = 0
    /// Byte of the process that waits.
    private static let waiterByteOffset: off_t = 1

    private let descriptor: Int32
    private let path: String

    private init(_ descriptor: Int32, _ path: String) {
        self.descriptor = descriptor
        self.path = path
    }

    deinit { close(descriptor) }

    /// Creates the file, and waits until no other process writes the bodies.
    ///
    /// - Returns: nil if another process waits. That one begins after this call, so it sees all present requests.
    static func acquire(_ record: BackgroundRecord, at path: String) throws -> BackgroundLock? {
        let folder = String(path[..<(path.lastIndex(of: "/") ?? path.startIndex)])
        try PrivateFolder.makeOrCheckStore(folder)
        while true {
            let file = unsafe open(ByteText.cString(path), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
            guard file >= 0 else { throw SystemError("open \(path)", number: errno) }
            let lock = BackgroundLock(file, path)
            guard lock.changeLock(F_TLOCK, waiterByteOffset) else { return nil }
            guard lock.changeLock(F_LOCK, writerByteOffset) else { throw SystemError("lock \(path)", number: errno) }
            // Released before the requests are counted, so that a later process takes care of later requests.
            _ = lock.changeLock(F_ULOCK, waiterByteOffset)
            // The last process may have removed the file.
            guard lock.isFile(at: path) else { continue }
            let bytes = record.fileContent
            guard unsafe pwrite(file, bytes, bytes.count, 0) == bytes.count else {
                throw SystemError("write \(path)", number: errno)
            }
            return lock
        }
    }

    /// Removes the file, because no request has failed.
    func removeFile() { if isFile(at: path) { unsafe unlink(ByteText.cString(path)) } }

    private func isFile(at path: String) -> Bool {
        FileIdentity(path: path).map { $0 == FileIdentity(descriptor: descriptor) } ?? false
    }

    private func changeLock(_ command: Int32, _ byte: off_t) -> Bool {
        while lseek(descriptor, byte, SEEK_SET) == byte {
            if lockf(descriptor, command, 1) == 0 { return true }
            if errno != EINTR { return false }
        }
        return false
    }
}

/// `earshot watch` in the background: writes the bodies of a handler's results, and outlives this process.
struct BackgroundWatch {
    private let arguments: [String]
    /// Descriptor of the log.
    private let log: Int32

    /// Directory of the bodies.
    let directory: String

    /// Checks the directory and opens the log before any request is submitted.
    ///
    /// - Parameters:
    ///   - log: path of the file for the results; nil for none.
    ///   - hook: program to run for each result; nil for none.
    init(handler: HandlerPattern, directory: String, log: String?, hook: HookProgram?, location: BusLocation) throws {
        // A later process may start in another directory.
        let words = hook?.commandWords.enumerated().map { $0 == 0 && $1.contains("/") ? Folder.absolutePath($1) : $1 }
        try self.init(
            BackgroundRecord(
                bus: location.arguments, handler: handler.description, directory: Folder.absolutePath(directory),
                log: log.map { Folder.absolutePath($0) } ?? "", exec: words?.joined(separator: " ") ?? ""))
    }

    /// Prepares the process of a record.
    init(_ record: BackgroundRecord) throws {
        directory = record.directory
        _ = try Destination.folder(directory, interrupt: -1)
        let path = record.log.isEmpty ? "/dev/null" : record.log
        let opened = try Self.openLog(path)
        // A child's streams must be other descriptors than 0, 1 and 2, which may be closed here.
        self.log = opened < 0 ? opened : fcntl(opened, F_DUPFD_CLOEXEC, 3)
        guard self.log >= 0 else {
            throw CommandError(
                .cannotWrite, "cannot open \(path): \(SystemCause.text(errno, at: path)); give another --log FILE")
        }
        close(opened)
        arguments =
            [
                "earshot", "watch", "--until-done", "--keep-failures", "--json", "--directory=\(directory)",
                "--noted-log=\(record.log)",
            ] + record.bus + (record.exec.isEmpty ? [] : ["--exec=\(record.exec)"]) + ["--", record.handler]
    }

    /// Opens the log; -1 on failure, with the reason in `errno`.
    private static func openLog(_ path: String) throws(CommandError) -> Int32 {
        do throws(OutputFailure) {
            let flags = O_WRONLY | O_APPEND
            switch try OutputPath(path) {
            case .descriptor(let number): return fcntl(number, F_DUPFD_CLOEXEC, 0)
            case .file(let file): return try OutputEntry(file, given: path).open(flags | O_CREAT, mode: 0o600)
            case .specialFile(let file): return try OutputEntry(file, given: path).open(flags)
            }
        } catch {
            throw error.commandError("give another --log FILE")
        }
    }

    /// Starts the process. It has a process group of its own, so the end of the shell does not reach it.
    func start() throws {
        let streams = ChildProcess.Streams(output: log, errorOutput: log)
        do throws(SystemError) {
            _ = try ChildProcess.spawn(ChildProcess.executablePath, arguments, streams: streams)
        } catch {
            let command = "earshot watch -d DIR --until-done HANDLER"
            throw CommandError(.generalError, "cannot start a process: \(error); run `\(command)` to write the bodies")
        }
    }
}
