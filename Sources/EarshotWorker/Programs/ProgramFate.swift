internal import EarshotHTTP
internal import EarshotLoop

/// State machine of a job that a program runs.
///
/// ```
/// running → over
/// running → stopping → killed → over     (the job ends before the program)
///           stopping → over              (the program exits within the grace period)
/// ```
struct ProgramFate: Equatable {
    enum Phase: Equatable {
        case running
        /// SIGTERM was sent to the process group, for this reason.
        case stopping(Refusal)
        /// The grace period has expired and SIGKILL was sent.
        case killed(Refusal)
        case over
    }

    enum Action: Equatable {
        /// Send SIGTERM to the process group, stop reading its output, and call `graceOver` after the grace period.
        case terminate
        /// Send SIGKILL to the process group.
        case kill
    }

    private(set) var phase = Phase.running

    /// Whether the program's output is still needed.
    var isWanted: Bool { phase == .running }

    /// Ends the job before the program, after a cancellation or a failure to store its output. The first reason counts.
    mutating func stop(_ reason: Refusal) -> Action? {
        guard case .running = phase else { return nil }
        phase = .stopping(reason)
        return .terminate
    }

    /// Handles the end of the grace period.
    mutating func graceOver() -> Action? {
        guard case .stopping(let reason) = phase else { return nil }
        phase = .killed(reason)
        return .kill
    }

    /// Handles the program's exit.
    ///
    /// - Parameter words: Last line of the program's standard error; empty for none.
    /// - Returns: The failure of the job; nil if it succeeded.
    mutating func ended(_ exit: ChildProcess.Exit, words: String) -> Refusal? {
        defer { phase = .over }
        switch phase {
        case .stopping(let reason), .killed(let reason): return reason
        case .over: preconditionFailure("a program ended twice")
        case .running:
            guard exit != .code(0) else { return nil }
            return Refusal(Self.code(of: exit), words.isEmpty ? "The program ended with \(exit)." : words)
        }
    }

    /// Returns the failure for an exit code. Exit codes of curl, which `earshot get` uses as well, keep their meaning,
    /// so that a script can pass on the code it got. All other codes are `worker-failed`.
    static func code(of exit: ChildProcess.Exit) -> FailureCode {
        switch exit {
        case .code(3): .malformedURL
        case .code(6): .unknownHost
        case .code(7): .connectFailed
        case .code(18): .truncated
        case .code(28): .timeout
        case .code(56): .reset
        case .code(60): .tls
        case .code(63): .tooLarge
        case .code, .signal: .workerFailed
        }
    }
}
