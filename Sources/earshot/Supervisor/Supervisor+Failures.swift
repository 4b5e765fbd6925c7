internal import EarshotClient
internal import EarshotCore
internal import EarshotLoop
internal import Glibc
internal import Logging

/// Crash loops: reported once in the log, and in the status of the broker.
extension Supervisor {
    /// Records an unexpected exit or a failed start of a child.
    ///
    /// - Parameter cause: message about the child.
    /// - Returns: delay before the restart.
    func childDied(_ slot: ChildSlot, after lived: Duration, _ cause: String) -> Duration {
        let wasFailing = slot.rule.isFailing
        let pause = slot.rule.lifeEnded(after: lived, using: &generator)
        if slot.rule.quickDeaths == 0 {
            slot.dyingSince = nil
        } else if slot.dyingSince == nil {
            slot.dyingSince = CalendarTime.now()
        }
        if slot.rule.isFailing {
            if !wasFailing {
                plan.log.write(
                    .error,
                    "\(cause), \(slot.rule.quickDeaths) times in a row: restarting with growing delays, and without further "
                        + "messages until one has run for \(RestartRule.goodLife)")
            }
            reportFailures()
        } else {
            if wasFailing { reportFailures() }
            let milliseconds = Int((pause / .milliseconds(1)).rounded())
            plan.log.write(.warning, cause + ", starting another" + (milliseconds == 0 ? "" : " in \(milliseconds) ms"))
        }
        // The bus becomes ready without a door that cannot be started.
        if slot.role == .door { reportReady() }
        return pause
    }

    /// Resets the restart rule of a failing post once its child has run for `RestartRule.goodLife`.
    func watchForGoodLife(_ slot: ChildSlot) {
        guard slot.rule.quickDeaths > 0 else { return }
        slot.goodLife = loop.setTimer(after: RestartRule.goodLife) { [unowned self] in
            slot.goodLife = nil
            let wasFailing = slot.rule.isFailing
            slot.rule.livesWell()
            slot.dyingSince = nil
            guard wasFailing else { return }
            plan.log.write(.notice, "\(slot.role.name) has recovered")
            reportFailures()
        }
    }

    /// Posts in a crash loop.
    var failures: [ChildFailure] {
        childSlots.filter { $0.rule.isFailing && !$0.isLeaving }.map { slot in
            ChildFailure(
                role: slot.role.word, deaths: slot.rule.quickDeaths,
                since: slot.dyingSince ?? "-",
                lastEnd: slot.obstacle ?? slot.lastExit.map { Self.text(of: $0) } ?? "not started")
        }
    }

    /// Reports to the broker how a worker ended. Without room in the channel, the broker decides without the report.
    func reportEnd(of slot: ChildSlot, _ pid: Int32, _ exit: ChildProcess.Exit) {
        guard let channel, !channel.hasBacklog else { return }
        let signal: Int32? = if case .signal(let number) = exit { number } else { nil }
        let end = WorkerEnd(
            pid: pid, signal: signal, isOutOfMemory: MemoryPressure.kills() != slot.killsBefore,
            wasKilledByBus: slot.isLeaving || phase != .serving)
        channel.send([end.line])
    }

    /// Returns the end of a child, with the meaning of an exit code that tells the cause.
    static func text(of exit: ChildProcess.Exit) -> String {
        guard case .code(let code) = exit, let status = ExitStatus(rawValue: code), status.reportsCause else {
            return "\(exit)"
        }
        return "\(exit) (\(status.meaning))"
    }

    /// Sends the crash loops to the broker, or waits until its channel has room. Also writes them to a file in the
    /// runtime directory, which clients read while no broker answers.
    func reportFailures() {
        notifyService()
        let failures = failures
        let report = FailureReport(plan.folder)
        if failures.contains(where: { $0.role == "broker" }) { report.write(failures) } else { report.remove() }
        guard let channel else { return }
        hasUnsentFailures = channel.hasBacklog
        guard !hasUnsentFailures else { return }
        channel.send(failures.map(\.line) + [ChildFailure.end])
    }
}

/// File in the runtime directory that names children in a crash loop. Clients read it while no broker answers.
struct FailureReport {
    /// Maximum size of the file, in bytes. A thousand entries are smaller.
    private static let mostBytes = 1 << 17

    private let folder: RuntimeFolder
    private var path: String { folder.path + "/failing" }

    init(_ folder: RuntimeFolder) {
        self.folder = folder
    }

    /// Replaces the file. On a full disk the file is missing, and only the log has the failures.
    func write(_ failures: [ChildFailure]) {
        let bytes = Array(failures.map { $0.line + "\n" }.joined().utf8)
        SmallFile.replace(path, with: bytes)
    }

    func remove() { _ = unsafe unlink(path) }

    /// Messages about the failing children; empty without a running supervisor.
    func sentences() -> [String] {
        let isSupervised = (try? LockFile.isHeld(folder.supervisorLock)) ?? false
        guard isSupervised, let bytes = try? InputFile.read(path, atMost: Self.mostBytes) else {
            return []
        }
        let text = String(decoding: bytes, as: UTF8.self)
        return text.split(separator: "\n").compactMap { ChildFailure(line: String($0)) }.map { failure in
            "the \(failure.role) ended \(failure.deaths) times in a row since \(failure.since), last with \(failure.lastEnd)"
        }
    }
}
