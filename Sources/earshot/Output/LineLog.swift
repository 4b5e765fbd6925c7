internal import EarshotClient
internal import Glibc
internal import Logging

/// Log lines on standard error: `earshot broker[123]: warning: text`. Control characters are escaped in any case.
struct LineLog: LogHandler {
    let role: String
    var logLevel: Logger.Level
    var metadata: Logger.Metadata = [:]

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        let all = metadata.merging(event.metadata ?? [:]) { $1 }
        let fields = all.sorted { $0.key < $1.key }.map { " \($0.key)=\($0.value)" }.joined()
        let line = "earshot \(role)[\(getpid())]: \(event.level): \(event.message)\(fields)"
        let bytes = Array((TerminalText.escaped(line) + "\n").utf8)
        _ = unsafe bytes.withUnsafeBytes { unsafe write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }

    static func logger(_ role: String, _ level: Logger.Level) -> Logger {
        Logger(label: "earshot.\(role)") { _ in LineLog(role: role, logLevel: level) }
    }
}
