internal import EarshotClient
internal import EarshotWire
internal import Logging
internal import Synchronization

/// Form of the lines of a log.
///
/// | format | line |
/// | --- | --- |
/// | text | `2026-11-22T09:45:00.123Z earshot broker[7]: warning: disconnected pid=9` |
/// | logfmt | `time=2026-11-22T09:45:00.123Z level=warning process=broker process-id=7 message=disconnected pid=9` |
/// | json | `{"time":"2026-11-22T09:45:00.123Z","level":"warning",…,"message":"disconnected","pid":9}` |
enum LogFormat: String, CaseIterable, Sendable {
    case text
    case logfmt
    case json

    /// A message with its context.
    struct Entry {
        /// RFC 3339; nil if the receiver of the log adds the time.
        var time: String?
        let level: Logger.Level
        /// `serve` for the supervisor.
        let process: String
        let processID: Int32
        let message: String
        /// In the order of the line.
        let fields: [(name: String, value: String)]
    }

    /// Returns the line of `entry`, without its end. Control characters are escaped.
    func line(_ entry: Entry) -> String {
        switch self {
        case .text:
            let fields = entry.fields.map { " \($0.name)=\($0.value)" }.joined()
            let origin =
                entry.process == "serve"
                ? "earshot: " : "earshot \(entry.process)[\(entry.processID)]: \(entry.level): "
            return TerminalText.escaped((entry.time.map { $0 + " " } ?? "") + origin + entry.message + fields)
        case .logfmt:
            return Self.members(entry).map { "\($0.name)=\(Self.logfmtValue($0.value))" }.joined(separator: " ")
        case .json:
            let members = Self.members(entry).map { "\(Self.jsonString($0.name)):\(Self.jsonMember($0))" }
            return "{" + members.joined(separator: ",") + "}"
        }
    }

    private static func members(_ entry: Entry) -> [(name: String, value: String)] {
        var members: [(name: String, value: String)] = []
        if let time = entry.time { members.append((name: "time", value: time)) }
        members.append((name: "level", value: entry.level.rawValue))
        members.append((name: "process", value: entry.process))
        members.append((name: "process-id", value: String(entry.processID)))
        members.append((name: "message", value: entry.message))
        return members + entry.fields
    }

    /// Fields whose values are numbers. A request such as `1` is a name, and stays a string.
    private static let numericFields: Set<String> = [
        "attempts", "bytes", "clients", "connections", "count", "dropped", "free", "limits-divided-by", "lines",
        "members", "milliseconds", "pid", "process-id", "running", "slots", "spool-free", "status", "transfers",
        "waiting", "worker",
    ]

    private static func jsonMember(_ field: (name: String, value: String)) -> String {
        numericFields.contains(field.name) && Int(field.value).map { String($0) } == field.value
            ? field.value : jsonString(field.value)
    }

    private static func logfmtValue(_ value: String) -> String {
        let isPlain = !value.isEmpty && value.utf8.allSatisfy { (0x21...0x7e).contains($0) && $0 != 0x22 && $0 != 0x3d }
        return isPlain ? value : jsonString(value)
    }

    /// Returns a JSON string, RFC 8259, in ASCII, so that no terminal interprets it.
    private static func jsonString(_ value: String) -> String {
        JSONText.quoted(value) { !(0x20...0x7e).contains($0.value) }
    }
}

/// Handler of a process's log. All copies of a logger have one level, which can change at run time.
struct LineLog: LogHandler {
    /// Level of all copies.
    private final class Threshold: Sendable {
        private let index: Atomic<Int>

        init(_ level: Logger.Level) { index = Atomic(Self.index(of: level)) }

        var level: Logger.Level {
            get { Logger.Level.allCases[index.load(ordering: .relaxed)] }
            set { index.store(Self.index(of: newValue), ordering: .relaxed) }
        }

        private static func index(of level: Logger.Level) -> Int { Logger.Level.allCases.firstIndex(of: level) ?? 0 }
    }

    private let log: ServiceLog
    private let threshold: Threshold
    var metadata: Logger.Metadata = [:]

    var logLevel: Logger.Level {
        get { threshold.level }
        set { threshold.level = newValue }
    }

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        let all = metadata.merging(event.metadata ?? [:]) { $1 }
        let fields = all.sorted { $0.key < $1.key }.map { (name: $0.key, value: "\($0.value)") }
        log.write(event.level, "\(event.message)", fields)
    }

    static func logger(_ process: String, _ level: Logger.Level, _ format: LogFormat) -> Logger {
        let handler = LineLog(log: ServiceLog(process, format), threshold: Threshold(level))
        return Logger(label: "earshot.\(process)") { _ in handler }
    }
}
