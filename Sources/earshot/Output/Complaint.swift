internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop
internal import Glibc

/// Why the program ends, for the eye and for the shell.
struct Complaint: Error, CustomStringConvertible {
    let status: ExitStatus
    /// A sentence; nil when nothing is to be said.
    let sentence: String?

    init(_ status: ExitStatus, _ sentence: String? = nil) {
        self.status = status
        self.sentence = sentence
    }

    var description: String { sentence ?? status.meaning }

    /// Says a line on standard error, with nothing in it that could command a terminal.
    static func say(_ line: String) { write(TerminalText.escaped("earshot: \(line)")) }

    /// Says lines on standard error, as ``say(_:)``.
    static func say(lines text: String) {
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
        write(lines.map { TerminalText.escaped(String($0)) }.joined(separator: "\n"))
    }

    private static func write(_ text: String) {
        let bytes = Array((text + "\n").utf8)
        _ = unsafe bytes.withUnsafeBytes { unsafe Glibc.write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }
}

extension ExitStatus {
    /// What some work ends with: of an error it says the sentence.
    static func concluding(_ work: () throws -> ExitStatus) -> ExitStatus {
        do {
            return try work()
        } catch let complaint as Complaint {
            if let sentence = complaint.sentence { Complaint.say(sentence) }
            return complaint.status
        } catch let error as ClientError {
            Complaint.say(error.description)
            return .cannotServe
        } catch let error as FolderError {
            Complaint.say(error.description)
            return .cannotServe
        } catch {
            Complaint.say("\(error)")
            return .other
        }
    }
}

extension ParsableCommand {
    /// Runs a command's work and ends the program with its status; every error becomes a sentence and a status.
    func conclude(_ work: () throws -> ExitStatus) throws {
        let status = ExitStatus.concluding(work)
        if status != .done { throw ExitCode(status.rawValue) }
    }
}
