internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop
internal import Glibc
internal import Synchronization

/// Error that ends the program: a message for standard error and an exit status.
struct CommandError: Error, CustomStringConvertible {
    let status: ExitStatus
    /// The message; nil for none.
    let sentence: String?

    init(_ status: ExitStatus, _ sentence: String? = nil) {
        self.status = status
        self.sentence = sentence
    }

    /// Creates the error of a bus that cannot be used.
    init(_ error: ClientError) {
        let status: ExitStatus =
            switch error.code {
            case .refused: .noBroker
            case .key: .configurationError
            case .invalidRequest: .usageError
            default: .cannotServe
            }
        self.init(status, error.description)
    }

    /// Error for an answer that is not the JSON that this version expects.
    static let unreadableAnswer = CommandError(
        .generalError, "cannot parse the answer of the broker; use command and broker of the same version")

    /// Returns the error for a message that the broker refuses.
    ///
    /// - Parameter status: exit status for a code without one of its own.
    static func refused(_ reply: RefusedMessage, _ status: ExitStatus = .generalError) -> CommandError {
        CommandError(
            reply.code == "not-authorized" ? .notPermitted : status,
            "\(reply.detail ?? "rejected by the broker") (\(reply.code))")
    }

    var description: String { sentence ?? status.meaning }

    /// Whether messages are JSON objects, because standard error is a log of JSON lines.
    private static let writesJSONObjects = Atomic(false)

    /// Makes each later message a JSON object with the member `message`.
    static func enableJSONMessages() { writesJSONObjects.store(true, ordering: .relaxed) }

    /// Prints a line to standard error, with control characters escaped.
    static func writeMessage(_ line: String) {
        guard writesJSONObjects.load(ordering: .relaxed) else { return write(TerminalText.escaped("earshot: \(line)")) }
        var object = JSONLine()
        object.appendMember("message", line)
        write(object.finishedLine())
    }

    /// Prints lines to standard error without `earshot: ` before them, with control characters escaped.
    static func writeMessage(lines text: String) {
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
        write(lines.map { TerminalText.escaped(String($0)) }.joined(separator: "\n"))
    }

    private static func write(_ text: String) { write(Array((text + "\n").utf8)) }

    private static func write(_ bytes: [UInt8]) {
        _ = unsafe bytes.withUnsafeBytes { unsafe Glibc.write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }
}

extension ExitStatus {
    /// Runs `work` and prints the message of its error. Returns its exit status.
    static func reportingErrors(_ work: () throws -> ExitStatus) -> ExitStatus {
        do {
            return try work()
        } catch let commandError as CommandError {
            if let sentence = commandError.sentence { CommandError.writeMessage(sentence) }
            return commandError.status
        } catch let error as ClientError {
            CommandError.writeMessage(error.description)
            return CommandError(error).status
        } catch let error as FolderError {
            CommandError.writeMessage(error.description)
            return .cannotServe
        } catch let error as DescriptorShortage {
            CommandError.writeMessage("cannot start: \(error)")
            return .cannotServe
        } catch let error as SystemError where [EAGAIN, EMFILE, ENFILE].contains(error.number) {
            CommandError.writeMessage("\(error)" + (SystemCause.nextStep(error.number).map { "; \($0)" } ?? ""))
            return .cannotServe
        } catch {
            CommandError.writeMessage("\(error)")
            return .generalError
        }
    }
}

extension ParsableCommand {
    /// Runs the work of a command and exits with its status.
    func runAndExit(_ work: () throws -> ExitStatus) throws {
        let status = ExitStatus.reportingErrors(work)
        if status != .success { throw ExitCode(status.rawValue) }
    }
}

/// Text of a failed system call for a message: the cause, and the next step for common causes.
enum SystemCause {
    /// Next step for a directory at the path of -o.
    static let directoryStep = "give -d for a directory"

    /// - Parameters:
    ///   - number: value of errno.
    ///   - path: path of the failed call; nil for a descriptor without one.
    ///   - directoryStep: next step if the path is that of a directory.
    static func text(_ number: Int32, at path: String?, directoryStep: String = SystemCause.directoryStep) -> String {
        var text = unsafe String(cString: strerror(number))
        if number == ENOSPC, let path, let free = freeSpaceText(for: path) { text += " (\(free))" }
        let step = number == EISDIR ? directoryStep : nextStep(number)
        return text + (step.map { "; \($0)" } ?? "")
    }

    /// Next step after a failed call; nil if the cause suggests none.
    static func nextStep(_ number: Int32) -> String? {
        switch number {
        case ENOSPC, EDQUOT: "free disk space, or choose another directory"
        case EACCES, EPERM, EROFS: "choose a writable path"
        case ENOENT, ENOTDIR: "create its directory first"
        case EFBIG: "raise the limit of file sizes (ulimit -f)"
        case EAGAIN: "raise the limit of processes (ulimit -u)"
        case EMFILE, ENFILE: "raise the limit of open files (ulimit -n)"
        default: nil
        }
    }

    /// Text about the free space of the file system that holds the directory of `path`; nil if it is unknown.
    private static func freeSpaceText(for path: String) -> String? {
        let slash = path.utf8.lastIndex(of: UInt8(ascii: "/"))
        var status = statvfs()
        guard unsafe statvfs(ByteText.cString(slash.map { String(path[...$0]) } ?? "."), &status) == 0 else {
            return nil
        }
        // Some file systems have no fixed number of files.
        if status.f_files > 0, status.f_favail == 0 { return "no inodes free" }
        return ByteSize.text(Double(status.f_bavail) * Double(status.f_frsize)) + " free"
    }
}
