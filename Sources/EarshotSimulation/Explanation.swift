internal import EarshotCore

/// Failure, minimized as far as possible.
public struct Explanation: Sendable, CustomStringConvertible {
    /// Failure with the fewest kinds of faults.
    public var failure: Failure
    /// Enabled faults.
    public var faults: Set<Fault>
    /// Violation at the end of the history: the same one as in the failure, with the names left in it.
    public var violation: Violation
    /// Events that a core must receive to reproduce it.
    public var history: [HistoryEntry]

    public var description: String {
        let start = history.first?.now.nanoseconds ?? 0
        let lines = history.map { entry in
            let milliseconds = (entry.now.nanoseconds - start) / 1_000_000
            return "  \(milliseconds) ms: \(entry.event)"
        }
        let names = faults.map(\.rawValue).sorted().joined(separator: ", ")
        return """
            step \(failure.step): \(failure.violation)
            faults: \(names.isEmpty ? "none" : names)
            history of \(history.count) events:
            \(lines.joined(separator: "\n"))
            \(violation)
            """
    }
}
