internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

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
    init(_ handler: HandlerPattern, _ directory: String, log: String?, _ hook: HookProgram?, _ place: BusLocation)
        throws
    {
        // A later process may start in another directory.
        let words = hook?.words.enumerated().map { $0 == 0 && $1.contains("/") ? Folder.absolute($1) : $1 }
        try self.init(
            BackgroundRecord(
                bus: place.arguments, handler: handler.description,
                directory: Folder.absolute(directory), log: log.map { Folder.absolute($0) } ?? "",
                exec: words?.joined(separator: " ") ?? ""))
    }

    /// Prepares the process of a note.
    init(_ record: BackgroundRecord) throws {
        directory = record.directory
        _ = try Destination.folder(directory, interrupt: -1)
        let path = record.log.isEmpty ? "/dev/null" : record.log
        let opened = try Self.opened(path)
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
    private static func opened(_ path: String) throws(CommandError) -> Int32 {
        do throws(OutputFailure) {
            let flags = O_WRONLY | O_APPEND
            switch try OutputPath(path) {
            case .descriptor(let number): return fcntl(number, F_DUPFD_CLOEXEC, 0)
            case .file(let file): return try OutputEntry(file, given: path).open(flags | O_CREAT, mode: 0o600)
            case .existing(let file): return try OutputEntry(file, given: path).open(flags)
            }
        } catch {
            throw error.commandError("give another --log FILE")
        }
    }

    /// Starts the process. It has a process group of its own, so the end of the shell does not reach it.
    func start() throws {
        let streams = ChildProcess.Streams(output: log, errors: log)
        do throws(SystemError) {
            _ = try ChildProcess.spawn(ChildProcess.thisProgram, arguments, streams: streams)
        } catch {
            let command = "earshot watch -d DIR --until-done HANDLER"
            throw CommandError(.other, "cannot start a process: \(error); run `\(command)` to write the bodies")
        }
    }
}
