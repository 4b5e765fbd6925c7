/// Severity of a log message, in ascending order. The words are those of swift-log.
public enum LogSeverity: String, CaseIterable, Sendable {
    case trace
    case debug
    case info
    case notice
    case warning
    case error
    case critical

    /// Position in the order, from 0.
    public var index: Int { Self.allCases.firstIndex(of: self) ?? 0 }
}
