internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// Output of status and header fields: a line `HTTP STATUS`, a line for each field, and an empty line.
final class HeaderOutput {
    private let target: OpenOutput
    private let name: String

    /// - Parameters:
    ///   - path: file to create or truncate; `-` is standard output.
    ///   - interrupt: descriptor that aborts a blocked open or write when it is readable.
    init(_ path: String, interrupt: Int32) throws(CommandError) {
        name = path == "-" ? "standard output" : path
        guard path != "-" else {
            target = OpenOutput(STDOUT_FILENO, interrupt: interrupt)
            return
        }
        do throws(OutputFailure) {
            target = try OpenOutput(
                path, as: OutputPath(path), interrupt: interrupt, directoryStep: "give the path of a file")
        } catch {
            throw error.commandError()
        }
    }

    /// Writes the head of a response, and nothing for an outcome without one.
    func write(_ outcome: FetchOutcome) throws(CommandError) {
        guard let response = outcome.response, let status = outcome.status else { return }
        let text = Self.headText(status, response.httpFields, isTerminal: target.isTerminal)
        do throws(OutputFailure) {
            try OutputFailure.throwIfFailed(target.output.write(text), target.path, named: name)
        } catch {
            throw error.commandError()
        }
    }

    /// Returns the lines of a head. A terminal gets the fields with control characters escaped, since the server
    /// chooses them.
    static func headText(_ status: Int, _ fields: [UInt8], isTerminal: Bool) -> [UInt8] {
        var text = Array("HTTP \(status)\n".utf8)
        let newline = UInt8(ascii: "\n")
        if isTerminal {
            for line in fields.split(separator: newline, omittingEmptySubsequences: true) {
                text += TerminalText.escaped(ByteText.text(of: Array(line))).utf8 + [newline]
            }
        } else if !fields.isEmpty {
            text += fields + [newline]
        }
        return text + [newline]
    }
}
