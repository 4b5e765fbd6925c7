internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// Program under test. It executes one command per line of standard input with the client library, and answers each
/// `receive` with a line about an event of the library.
final class LibraryAdapter {
    /// Whether it ends: after the last command, or because the broker has another version.
    private(set) var isOver = false

    private let bodyFolder: String
    private let output = Output(STDOUT_FILENO)
    private var connection: ClientConnection?
    private var input: [UInt8] = []
    private var resultLines: [String] = []
    /// Number of unanswered `receive` commands.
    private var unansweredReceives = 1
    private var bodyCount = 0
    private var hasReportedConnection = false

    init(_ folder: RuntimeFolder, bodies: String, lease: Duration, loop: EventLoop) throws {
        self.bodyFolder = bodies
        connection = try ClientConnection(
            endpoint: folder.busEndpoint, lease: lease, loop: loop
        ) {
            [unowned self] event in report(event)
        }
        _ = try loop.add(STDIN_FILENO, .readable) { [unowned self] _ in readCommands() }
    }

    private func readCommands() {
        var bytes = [UInt8](repeating: 0, count: 65_536)
        let length = unsafe read(STDIN_FILENO, &bytes, bytes.count)
        guard length > 0 else {
            isOver = length == 0 || errno != EINTR
            return
        }
        input += bytes[..<length]
        while let end = input.firstIndex(of: 0x0a) {
            let line = String(decoding: input[..<end], as: UTF8.self)
            input.removeSubrange(...end)
            if line == "receive" { unansweredReceives += 1 } else { executeCommand(line) }
        }
        answerReceives()
    }

    /// Executes a command: a message in lower case with fields as `name=value`.
    private func executeCommand(_ line: String) {
        let words = line.split(separator: " ")
        let verb = words[0] == "cancel" ? "REMOVE" : words[0].uppercased()
        let head = [verb] + words.dropFirst().prefix(words[0] == "fetch" ? 3 : 2).map { String($0) }
        let fields = words.dropFirst(head.count).map { $0.replacing("=", with: ": ", maxReplacements: 1) + "\n" }
        do {
            switch try ClientMessage(head: Array("\(head.joined(separator: " "))\n\(fields.joined())".utf8)) {
            case .fetch(let fetch): try connection?.fetch(fetch)
            case .removeRequest(let handler, let request): connection?.cancel(RequestKey(handler, request))
            case .removeHandlers(let pattern): connection?.remove(pattern)
            case .subscribe(let pattern):
                connection?.subscribe(pattern)
                connection?.query(.ping)
            default: resultLines.append("error bad-message: no such command")
            }
        } catch {
            resultLines.append("error \(error)")
        }
    }

    private func report(_ event: ClientEvent) {
        switch event {
        case .terminal(let delivery, let body): resultLines.append(terminalLine(delivery, body))
        case .progress(let progress):
            let total = progress.totalBytes.map { String($0) } ?? "-"
            resultLines.append("progress \(progress.handler) \(progress.request) \(progress.receivedBytes)/\(total)")
        case .accepted(let key): resultLines.append("accepted \(key.handler) \(key.request)")
        case .cancelled(let key, _): resultLines.append("cancelled \(key.handler) \(key.request)")
        case .removed(let pattern, let count): resultLines.append("removed \(pattern) \(count)")
        case .queryAnswer: resultLines.append("listening")
        case .messageRefused(let reply): resultLines.append("error \(reply.code): \(reply.detail ?? "")")
        case .state(.connected) where !hasReportedConnection:
            hasReportedConnection = true
            resultLines.append("ready")
        case .state, .settingChanged: break
        }
        answerReceives()
    }

    private func terminalLine(_ delivery: DeliveredTerminal, _ body: [UInt8]) -> String {
        let terminal = delivery.terminal
        let path = saveBody(terminal.response?.bodyFilePath, body)
        connection?.finishDelivery(delivery)
        let key = "\(terminal.handler) \(terminal.request)"
        switch terminal.outcome {
        case .result(let status, _): return "result \(key) \(status) \(path)"
        case .failed(let failure):
            return "failed \(key) \(failure.code) \(failure.status.map { String($0) } ?? "-") \(path)"
        }
    }

    /// Writes a body to a new file and returns its path.
    private func saveBody(_ file: String?, _ body: [UInt8]) -> String {
        bodyCount += 1
        let path = "\(bodyFolder)/\(bodyCount)"
        let target = unsafe open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        defer { close(target) }
        var outcome = Output.Outcome.allWritten
        if let file {
            let source = unsafe open(file, O_RDONLY | O_CLOEXEC)
            defer { close(source) }
            let length = Int(lseek(source, 0, SEEK_END))
            lseek(source, 0, SEEK_SET)
            outcome = Output(target).copy(from: source, length: length)
        } else {
            outcome = Output(target).write(body)
        }
        return outcome == .allWritten ? path : "no-body:\(outcome)"
    }

    private func answerReceives() {
        while unansweredReceives > 0, !resultLines.isEmpty {
            unansweredReceives -= 1
            isOver = output.write(Array("\(resultLines.removeFirst())\n".utf8)) != .allWritten || isOver
        }
    }
}
