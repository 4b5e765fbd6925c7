internal import EarshotCore

/// A failure, made as small as it could be.
public struct Explanation: Sendable, CustomStringConvertible {
    /// How the run fails with the fewest kinds of faults.
    public var failure: Failure
    /// Faults that were on.
    public var faults: Set<Fault>
    /// What is wrong at the end of the history: the same disagreement, about what is left in it.
    public var violation: Violation
    /// All a core has to be told.
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
