internal import EarshotClient
internal import EarshotLoop
internal import Glibc

/// List of failed URLs with their causes, which `get -i` can read. A regular file is complete or not there, and only
/// its owner may read it, because URLs and header fields may hold secrets.
final class FailureList {
    private enum Target {
        case newFile(NewFile)
        case openOutput(OpenOutput)
    }

    /// Number of buffered bytes that triggers a write.
    private static let flushThresholdBytes = 64 << 10
    private static let nextStep = "give another --failed FILE"

    private let path: String
    private let target: Target
    private var bufferedText: [UInt8] = []
    private var fault: CommandError?

    /// Begins a new list, which replaces an existing file at the end.
    ///
    /// - Parameters:
    ///   - path: path of the file; `-` is standard output.
    ///   - interrupt: descriptor that aborts a blocked open or write when it is readable; -1 for none.
    init(_ path: String, interrupt: Int32 = -1) throws(CommandError) {
        self.path = path
        do throws(OutputFailure) {
            switch try path == "-" ? .descriptor(STDOUT_FILENO) : OutputPath(path) {
            case .file(let file): target = .newFile(try NewFile(for: file, isPrivate: true))
            case let output:
                target = .openOutput(
                    try OpenOutput(path, as: output, interrupt: interrupt, directoryStep: "it must be a file"))
            }
        } catch {
            throw error.commandError(Self.nextStep)
        }
    }

    /// Adds a URL.
    ///
    /// - Parameters:
    ///   - name: path of its file below the output directory; nil if it is not known.
    ///   - cause: message without the URL.
    func add(_ entry: ListEntry, name: String?, cause: String) {
        bufferedText += Self.lines(entry, name: name, cause: cause)
        if bufferedText.count >= Self.flushThresholdBytes { flush() }
    }

    /// Writes the list under its name.
    func finish() throws(CommandError) {
        flush()
        if let fault { throw fault }
        guard case .newFile(let file) = target else { return }
        do throws(OutputFailure) { try file.commit() } catch { throw error.commandError(Self.nextStep) }
    }

    /// Lines of a URL: the cause as a comment, the URL, and its options. Text that the list cannot hold as a URL is a
    /// part of the comment.
    static func lines(_ entry: ListEntry, name: String?, cause: String) -> [UInt8] {
        guard entry.fault == nil, isListLine(entry.url) else {
            return Array("# \(TerminalText.escaped("\(entry.url): \(cause)"))\n".utf8)
        }
        var lines = ["# " + TerminalText.escaped(cause), entry.url]
        for option in entry.options {
            switch option {
            case .outputPath, .outputDirectory: if name == nil, let line = option.listLine { lines.append("  " + line) }
            case .header, .checksum, .invalid: if let line = option.listLine { lines.append("  " + line) }
            }
        }
        if let name { lines.append("  out=\(name)") }
        return lines.flatMap { ByteText.bytes(of: $0) + [UInt8(ascii: "\n")] }
    }

    /// Whether a line with this text is read as this URL.
    private static func isListLine(_ url: String) -> Bool {
        URLText.wireForm(url) != nil && url.utf8.first != UInt8(ascii: "#")
    }

    private func flush() {
        defer { bufferedText.removeAll(keepingCapacity: true) }
        guard fault == nil else { return }
        do throws(OutputFailure) {
            switch target {
            case .newFile(let file): try OutputFailure.throwIfFailed(file.output.write(bufferedText), path)
            case .openOutput(let opened): try OutputFailure.throwIfFailed(opened.output.write(bufferedText), nil)
            }
        } catch {
            fault = error.commandError(Self.nextStep)
        }
    }
}
