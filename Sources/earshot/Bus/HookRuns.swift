internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// Runs of the program that a command, or the supervisor of a bus, starts for each result.
///
/// A bounded number runs at once, and the others wait in their order. The owner bounds the number that waits: it
/// neither requests nor acknowledges more. A program cannot end the command: its failure is a message, and one that
/// hangs is killed.
final class HookRuns {
    /// Maximum number of programs at once. More would compete with the transfers for the machine.
    static let maximumConcurrentRuns = 4
    /// Maximum run time of a program, so that the command ends.
    static let defaultRunTimeout = Duration.seconds(300)

    /// Result whose program waits for its start.
    private struct QueuedResult {
        let outcome: FetchOutcome
        let key: RequestKey
        /// Principal of another user; nil for a request of the program's own.
        let principal: PrincipalName?
        let onEnd: () -> Void
    }

    private final class Run {
        let child: ChildProcess
        let queuedResult: QueuedResult
        var registration: EventLoop.Registration?
        var timer: TimerID?

        init(_ child: ChildProcess, _ queuedResult: QueuedResult) {
            self.child = child
            self.queuedResult = queuedResult
        }
    }

    private let program: HookProgram
    private let loop: EventLoop
    private let runTimeout: Duration
    private let reportMessage: (String) -> Void
    private var queuedResults: [QueuedResult] = []
    private var runs: [Int32: Run] = [:]

    /// - Parameters:
    ///   - runTimeout: maximum run time of a program.
    ///   - report: prints a message.
    init(
        _ program: HookProgram, _ loop: EventLoop, runTimeout: Duration = HookRuns.defaultRunTimeout,
        report: @escaping (String) -> Void
    ) {
        self.program = program
        self.loop = loop
        self.runTimeout = runTimeout
        self.reportMessage = report
    }

    deinit { stop() }

    /// Processes of the programs that run.
    var processIDs: [Int32] { Array(runs.keys) }

    /// Number of programs that run or wait.
    var count: Int { queuedResults.count + runs.count }

    /// Runs the program for a result, now or later.
    ///
    /// - Parameters:
    ///   - principal: principal of another user; nil for a request of the program's own.
    ///   - onEnd: called after the end of the program.
    func enqueue(
        _ outcome: FetchOutcome, _ key: RequestKey, of principal: PrincipalName? = nil, onEnd: @escaping () -> Void
    ) {
        queuedResults.append(QueuedResult(outcome: outcome, key: key, principal: principal, onEnd: onEnd))
        startNext()
    }

    /// Discards the waiting results and sends SIGTERM to the running programs. Does not reap them, because a program
    /// may ignore the signal.
    func stop() {
        queuedResults = []
        for run in runs.values {
            run.child.sendSignalToGroup(SIGTERM)
            unregister(run)
        }
        runs = [:]
    }

    /// Environment variables of the program. Names and URLs are untrusted, so no argument contains them.
    static func environmentVariables(
        _ outcome: FetchOutcome, _ key: RequestKey, of principal: PrincipalName? = nil
    ) -> [String: String] {
        var variables = [
            "EARSHOT_HANDLER": key.handler.description, "EARSHOT_REQUEST": key.request.description,
            // A failure without a response does not name its URL to other clients.
            "EARSHOT_URL": outcome.url == "-" ? "" : outcome.url,
            "EARSHOT_STATE": outcome.code == nil ? "done" : "failed",
            "EARSHOT_STATUS": outcome.status.map { String($0) } ?? "", "EARSHOT_CAUSE": outcome.code ?? "",
            "EARSHOT_FILE": outcome.path ?? "",
            "EARSHOT_LENGTH": outcome.response.map { String($0.bodyByteCount) } ?? "",
            "EARSHOT_SHA256": outcome.response?.sha256 ?? "",
        ]
        variables["EARSHOT_PRINCIPAL"] = principal?.description
        return variables
    }

    private func startNext() {
        while runs.count < Self.maximumConcurrentRuns, !queuedResults.isEmpty {
            let next = queuedResults.removeFirst()
            do throws(SystemError) {
                try start(next)
            } catch {
                let (name, url) = (program.commandWords.first ?? "", URLText.redacted(next.outcome.url))
                reportMessage("cannot run \(name) for \(url): \(error)")
                // Called by the loop, because the caller of `enqueue` may not expect the end.
                loop.setTimer(after: .zero) { next.onEnd() }
            }
        }
    }

    private func start(_ next: QueuedResult) throws(SystemError) {
        let child = try ChildProcess.spawn(
            program.path ?? "", program.arguments(file: next.outcome.path),
            variables: Self.environmentVariables(next.outcome, next.key, of: next.principal))
        let run = Run(child, next)
        do throws(SystemError) {
            run.registration = try loop.add(child.descriptor, .readable) { [unowned self, unowned run] _ in
                guard let exit = child.reap() else { return }
                runEnded(run, failure: exit == .code(0) ? nil : "\(exit)")
            }
        } catch {
            child.killAndReap()
            throw error
        }
        run.timer = loop.setTimer(after: runTimeout) { [unowned self, unowned run] in
            run.child.killAndReap()
            runEnded(run, failure: "it was killed after \(runTimeout)")
        }
        runs[child.pid] = run
    }

    private func runEnded(_ run: Run, failure: String?) {
        unregister(run)
        runs[run.child.pid] = nil
        if let failure {
            let url = URLText.redacted(run.queuedResult.outcome.url)
            reportMessage("\(program.commandWords.first ?? "") for \(url) failed: \(failure)")
        }
        startNext()
        run.queuedResult.onEnd()
    }

    private func unregister(_ run: Run) {
        if let registration = run.registration { loop.remove(registration) }
        if let timer = run.timer { loop.cancelTimer(timer) }
    }
}
