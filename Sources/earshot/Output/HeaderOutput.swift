internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// Output of status and header fields: a line `HTTP STATUS`, a line for each field, and an empty line.
final class HeaderOutput {
    private let output: Output
    /// Descriptor of the file; -1 for standard output.
    private let file: Int32
    private let name: String

    /// - Parameters:
    ///   - path: file to create or truncate; `-` is standard output.
    ///   - interrupt: descriptor that aborts a blocked write when it is readable.
    init(_ path: String, interrupt: Int32) throws(Complaint) {
        name = path == "-" ? "standard output" : path
        if path == "-" {
            file = -1
            output = Output(STDOUT_FILENO, interrupt: interrupt)
        } else {
            file = unsafe open(ByteText.path(path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o666)
            guard file >= 0 else {
                throw Complaint(.cannotWrite, "cannot open \(path): \(SystemCause.text(errno, at: path))")
            }
            output = Output(file, interrupt: interrupt)
        }
    }

    deinit { if file >= 0 { close(file) } }

    /// Writes the head of a response, and nothing for an outcome without one.
    func write(_ outcome: FetchOutcome) throws(Complaint) {
        guard let response = outcome.response, let status = outcome.status else { return }
        var text = Array("HTTP \(status)\n".utf8)
        if !response.httpFields.isEmpty { text += response.httpFields + [UInt8(ascii: "\n")] }
        text.append(UInt8(ascii: "\n"))
        switch output.write(text) {
        case .done: return
        case .interrupted: throw Complaint(.interrupted)
        // A closed pipe, as after head(1), needs no message.
        case .broken: throw Complaint(.cannotWrite)
        case .short: throw Complaint(.cannotWrite, "cannot write \(name): the source was truncated")
        case .failed(let number):
            throw Complaint(.cannotWrite, "cannot write \(name): \(SystemCause.text(number, at: name))")
        }
    }
}
