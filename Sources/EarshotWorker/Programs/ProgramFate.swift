internal import EarshotHTTP
internal import EarshotLoop

/// What becomes of a job that a program does, as a value.
///
/// `running -> over`, or `running -> stopping -> killed -> over` when nobody waits for the program's end any more.
struct ProgramFate: Equatable {
    enum Phase: Equatable {
        case running
        /// Its process group was asked to end, for this reason.
        case stopping(Refusal)
        /// It did not in time, and was made to.
        case killed(Refusal)
        case over
    }

    enum Action: Equatable {
        /// Ask the process group to end, read no more of it, and ask `graceOver` after a while.
        case terminate
        /// Make it end.
        case kill
    }

    private(set) var phase = Phase.running

    /// Whether what it writes is wanted.
    var isWanted: Bool { phase == .running }

    /// Its job ends before the program: it was cancelled, or what it writes cannot be kept. The first reason counts.
    mutating func stop(_ reason: Refusal) -> Action? {
        guard case .running = phase else { return nil }
        phase = .stopping(reason)
        return .terminate
    }

    /// The time to end is over.
    mutating func graceOver() -> Action? {
        guard case .stopping(let reason) = phase else { return nil }
        phase = .killed(reason)
        return .kill
    }

    /// The program has ended.
    ///
    /// - Parameter words: the last line that it wrote on its standard error; empty for none.
    /// - Returns: why its job fails; nil if it is done.
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

    /// What an exit code means: curl's numbers, with which `earshot get` ends too, say what they say there, so that a
    /// script can end with what it got. All else is the program's own affair.
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
