internal import EarshotClient
internal import EarshotCore
internal import EarshotLoop
internal import Glibc
internal import Logging

/// Log of one process on standard error. Writing never blocks: see ``LogStream``.
///
/// If standard error belongs to the journal of systemd, lines begin with their priority (sd-daemon(3)), and the journal
/// adds the time.
struct ServiceLog: Sendable {
    let format: LogFormat
    /// Name of the process, such as `serve`, `broker`, `worker` or `work`.
    let process: String
    private let isJournal: Bool
    private let stream = LogStream(STDERR_FILENO)

    init(_ process: String, _ format: LogFormat) {
        self.process = process
        self.format = format
        isJournal = Self.isStandardError(Environment.value("JOURNAL_STREAM"))
    }

    func write(_ level: Logger.Level, _ message: String, _ fields: [(name: String, value: String)] = []) {
        stream.write(line(level, message, fields)) { count in
            line(.warning, "dropped log lines, because standard error was full", [("lines", "\(count)")])
        }
    }

    private func line(_ level: Logger.Level, _ message: String, _ fields: [(name: String, value: String)]) -> [UInt8] {
        let time = isJournal ? nil : CalendarTime.nowWithMilliseconds()
        let entry = LogFormat.Entry(
            time: time, level: level, process: process, processID: getpid(), message: message, fields: fields)
        return Array(((isJournal ? "<\(Self.priority(level))>" : "") + format.line(entry) + "\n").utf8)
    }

    /// Whether `stream`, the device and inode in JOURNAL_STREAM, is standard error: systemd.exec(5).
    static func isStandardError(_ stream: String?) -> Bool {
        var status = stat()
        guard let stream, unsafe fstat(STDERR_FILENO, &status) == 0 else { return false }
        return stream == "\(status.st_dev):\(status.st_ino)"
    }

    /// Returns the priority of syslog(3).
    static func priority(_ level: Logger.Level) -> Int {
        switch level {
        case .trace, .debug: 7
        case .info: 6
        case .notice: 5
        case .warning: 4
        case .error: 3
        case .critical: 2
        }
    }
}

extension Settings {
    /// Minimum severity of log messages.
    var logLevel: Logger.Level {
        self[.logLevel].flatMap { Logger.Level(rawValue: SettingName.logLevel.valueText($0)) } ?? .notice
    }
}
