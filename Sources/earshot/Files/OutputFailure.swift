internal import EarshotLoop
internal import Glibc

/// Reason why an output was not written, for the command's message and exit status.
enum OutputFailure: Error {
    /// The source is missing or has changed. The body can be requested again.
    case sourceLost
    /// The reader of the output has closed it.
    case readerClosed
    case interrupted
    /// The message.
    case cannotWrite(String)

    /// Failure with the text of `errno`.
    ///
    /// - Parameter directoryStep: next step if the path is that of a directory.
    static func systemFailure(
        _ verb: String, _ path: String, directoryStep: String = SystemCause.directoryStep
    ) -> OutputFailure {
        .cannotWrite("cannot \(verb) \(path): \(SystemCause.text(errno, at: path, directoryStep: directoryStep))")
    }

    /// Throws the failure of a write.
    ///
    /// - Parameters:
    ///   - path: path of the file; nil for standard output and other open descriptors.
    ///   - name: name of the output in messages; nil for the path.
    static func throwIfFailed(
        _ outcome: Output.Outcome, _ path: String?, named name: String? = nil
    ) throws(OutputFailure) {
        let name = name ?? path ?? "the output"
        switch outcome {
        case .allWritten: return
        case .readerClosed: throw .readerClosed
        case .interrupted: throw .interrupted
        case .sourceTooShort: throw .cannotWrite("cannot write \(name): its spool file was truncated; fetch it again")
        case .failed(let number): throw .cannotWrite("cannot write \(name): \(SystemCause.text(number, at: path))")
        }
    }

    /// The error that ends the command.
    ///
    /// - Parameter step: next step after the message; nil for none.
    func commandError(_ step: String? = nil) -> CommandError {
        switch self {
        case .cannotWrite(let sentence): CommandError(.cannotWrite, sentence + (step.map { "; \($0)" } ?? ""))
        case .interrupted: CommandError(.interrupted)
        // A closed pipe, as after head(1), needs no message.
        case .readerClosed, .sourceLost: CommandError(.cannotWrite)
        }
    }
}
