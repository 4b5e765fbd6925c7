internal import EarshotClient
internal import EarshotLoop

/// List of failed URLs with their causes, which `get -i` can read. The file is complete or not there.
final class FailureList {
    /// Number of buffered bytes that triggers a write.
    private static let mostBytes = 64 << 10

    private let path: String
    private let file: NewFile
    private var text: [UInt8] = []
    private var fault: Complaint?

    /// Begins a new list, which replaces an existing one at the end.
    init(_ path: String) throws(Complaint) {
        self.path = path
        do throws(Destination.Failure) {
            file = try NewFile(for: path)
        } catch {
            throw Self.complaint(error, path)
        }
    }

    /// Adds a URL.
    ///
    /// - Parameters:
    ///   - name: path of its file below the output directory; nil if it is not known.
    ///   - cause: message without the URL.
    func add(_ entry: ListEntry, name: String?, cause: String) {
        text += Self.lines(entry, name: name, cause: cause).utf8
        if text.count >= Self.mostBytes { flush() }
    }

    /// Writes the list under its name.
    func finish() throws(Complaint) {
        flush()
        if let fault { throw fault }
        do throws(Destination.Failure) { try file.commit() } catch { throw Self.complaint(error, path) }
    }

    /// Lines of a URL: the cause as a comment, the URL, and its options.
    static func lines(_ entry: ListEntry, name: String?, cause: String) -> String {
        var lines = ["# " + TerminalText.escaped(cause)]
        // The text of an invalid line is no URL.
        guard entry.fault == nil else { return "# \(TerminalText.escaped(entry.url)): \(lines[0].dropFirst(2))\n" }
        lines.append(entry.url)
        for option in entry.options {
            switch option {
            case .out, .dir: if name == nil, let line = option.line { lines.append("  " + line) }
            case .header, .checksum, .invalid: if let line = option.line { lines.append("  " + line) }
            }
        }
        if let name { lines.append("  out=\(name)") }
        return lines.joined(separator: "\n") + "\n"
    }

    private func flush() {
        defer { text.removeAll(keepingCapacity: true) }
        guard fault == nil else { return }
        do throws(Destination.Failure) {
            try Destination.check(file.output.write(text), path)
        } catch {
            fault = Self.complaint(error, path)
        }
    }

    private static func complaint(_ failure: Destination.Failure, _ path: String) -> Complaint {
        guard case .cannotWrite(let sentence) = failure else { return Complaint(.cannotWrite, "cannot write \(path)") }
        return Complaint(.cannotWrite, "\(sentence); give another --failed FILE")
    }
}
