internal import EarshotClient
internal import EarshotLoop
internal import Glibc

/// List of failed URLs with their causes, which `get -i` can read. A regular file is complete or not there, and only
/// its owner may read it, because URLs and header fields may hold secrets.
final class FailureList {
    private enum Target {
        case new(NewFile)
        case open(OpenOutput)
    }

    /// Number of buffered bytes that triggers a write.
    private static let mostBytes = 64 << 10
    private static let step = "give another --failed FILE"

    private let path: String
    private let target: Target
    private var text: [UInt8] = []
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
            case .file(let file): target = .new(try NewFile(for: file, isPrivate: true))
            case let place:
                target = .open(
                    try OpenOutput(path, as: place, interrupt: interrupt, directoryStep: "it must be a file"))
            }
        } catch {
            throw error.commandError(Self.step)
        }
    }

    /// Adds a URL.
    ///
    /// - Parameters:
    ///   - name: path of its file below the output directory; nil if it is not known.
    ///   - cause: message without the URL.
    func add(_ entry: ListEntry, name: String?, cause: String) {
        text += Self.lines(entry, name: name, cause: cause)
        if text.count >= Self.mostBytes { flush() }
    }

    /// Writes the list under its name.
    func finish() throws(CommandError) {
        flush()
        if let fault { throw fault }
        guard case .new(let file) = target else { return }
        do throws(OutputFailure) { try file.commit() } catch { throw error.commandError(Self.step) }
    }

    /// Lines of a URL: the cause as a comment, the URL, and its options. Text that the list cannot hold as a URL is a
    /// part of the comment.
    static func lines(_ entry: ListEntry, name: String?, cause: String) -> [UInt8] {
        guard entry.fault == nil, isLine(entry.url) else {
            return Array("# \(TerminalText.escaped("\(entry.url): \(cause)"))\n".utf8)
        }
        var lines = ["# " + TerminalText.escaped(cause), entry.url]
        for option in entry.options {
            switch option {
            case .out, .dir: if name == nil, let line = option.line { lines.append("  " + line) }
            case .header, .checksum, .invalid: if let line = option.line { lines.append("  " + line) }
            }
        }
        if let name { lines.append("  out=\(name)") }
        return lines.flatMap { ByteText.bytes(of: $0) + [UInt8(ascii: "\n")] }
    }

    /// Whether a line with this text is read as this URL.
    private static func isLine(_ url: String) -> Bool {
        URLText.wire(url) != nil && url.utf8.first != UInt8(ascii: "#")
    }

    private func flush() {
        defer { text.removeAll(keepingCapacity: true) }
        guard fault == nil else { return }
        do throws(OutputFailure) {
            switch target {
            case .new(let file): try OutputFailure.check(file.output.write(text), path)
            case .open(let opened): try OutputFailure.check(opened.output.write(text), nil)
            }
        } catch {
            fault = error.commandError(Self.step)
        }
    }
}
