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

    /// Creates the complaint about a bus that cannot be used.
    init(_ error: ClientError) {
        let status: ExitStatus =
            switch error.code {
            case .refused: .noBroker
            case .key: .configuration
            case .invalidRequest: .usage
            default: .cannotServe
            }
        self.init(status, error.description)
    }

    var description: String { sentence ?? status.meaning }

    /// Whether messages are JSON objects, because standard error is a log of JSON lines.
    private static let areObjects = Atomic(false)

    /// Makes each later message a JSON object with the member `message`.
    static func writeObjects() { areObjects.store(true, ordering: .relaxed) }

    /// Prints a line to standard error, with control characters escaped.
    static func writeMessage(_ line: String) {
        guard areObjects.load(ordering: .relaxed) else { return write(TerminalText.escaped("earshot: \(line)")) }
        var object = JSONLine()
        object.member("message", line)
        write(object.finished())
    }

    /// Prints lines to standard error, as ``writeMessage(_:)``.
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
    static func concluding(_ work: () throws -> ExitStatus) -> ExitStatus {
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
            return .other
        }
    }
}

extension ParsableCommand {
    /// Runs the work of a command and exits with its status.
    func conclude(_ work: () throws -> ExitStatus) throws {
        let status = ExitStatus.concluding(work)
        if status != .done { throw ExitCode(status.rawValue) }
    }
}
