internal import Logging
internal import Synchronization

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
