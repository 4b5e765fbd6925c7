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
        let pause = slot.rule.runEnded(after: lived, using: &generator)
        if slot.rule.consecutiveEarlyExits == 0 {
            slot.firstEarlyExitTime = nil
        } else if slot.firstEarlyExitTime == nil {
            slot.firstEarlyExitTime = CalendarTime.now()
        }
        if slot.rule.isFailing {
            if !wasFailing {
                let count = slot.rule.consecutiveEarlyExits
                plan.log.write(
                    .error,
                    "\(cause), \(count) times in a row: restarting with growing delays, and without further "
                        + "messages until one has run for \(RestartRule.minimumHealthyRun)")
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

    /// Resets the restart rule of a failing slot once its child has run for `RestartRule.minimumHealthyRun`.
    func startHealthyRunTimer(_ slot: ChildSlot) {
        guard slot.rule.consecutiveEarlyExits > 0 else { return }
        slot.healthyRunTimer = loop.setTimer(after: RestartRule.minimumHealthyRun) { [unowned self] in
            slot.healthyRunTimer = nil
            let wasFailing = slot.rule.isFailing
            slot.rule.recordHealthyRun()
            slot.firstEarlyExitTime = nil
            guard wasFailing else { return }
            plan.log.write(.notice, "\(slot.role.nameWithArticle) has recovered")
            reportFailures()
        }
    }

    /// Children in a crash loop.
    var failures: [ChildCrashLoop] {
        childSlots.filter { $0.rule.isFailing && !$0.isRetiring }.map { slot in
            let lastExit = slot.startFailureReason ?? slot.lastExit.map { Self.exitText(of: $0) }
            return ChildCrashLoop(
                childRole: slot.role.statusName, consecutiveDeathCount: slot.rule.consecutiveEarlyExits,
                firstDeathAt: slot.firstEarlyExitTime ?? "-", lastExitDescription: lastExit ?? "not started")
        }
    }

    /// Reports to the broker how a worker ended. Without room in the channel, the broker decides without the report.
    func reportEnd(of slot: ChildSlot, _ pid: Int32, _ exit: ChildProcess.Exit) {
        guard let brokerChannel, !brokerChannel.hasBacklog else { return }
        let signal: Int32? = if case .signal(let number) = exit { number } else { nil }
        let end = WorkerExit(
            pid: pid, terminatingSignal: signal,
            wasKilledForMemory: MemoryPressure.outOfMemoryKillCount() != slot.oomKillsAtStart,
            wasKilledByBus: slot.isRetiring || phase != .serving)
        brokerChannel.send([end.supervisorLine])
    }

    /// Returns the exit of a child as text, with the meaning of an exit code that names the cause.
    static func exitText(of exit: ChildProcess.Exit) -> String {
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
        let report = FailureReport(plan.runtimeFolder)
        if failures.contains(where: { $0.childRole == "broker" }) { report.write(failures) } else { report.remove() }
        guard let brokerChannel else { return }
        hasUnsentFailures = brokerChannel.hasBacklog
        guard !hasUnsentFailures else { return }
        brokerChannel.send(failures.map(\.supervisorLine) + [ChildCrashLoop.endOfCrashLoopsLine])
    }
}

/// File in the runtime directory that names children in a crash loop. Clients read it while no broker answers.
struct FailureReport {
    /// Maximum size of the file, in bytes. A thousand entries are smaller.
    private static let maximumFileBytes = 1 << 17

    private let folder: RuntimeFolder
    private var path: String { folder.path + "/failing" }

    init(_ folder: RuntimeFolder) {
        self.folder = folder
    }

    /// Replaces the file. On a full disk the file is missing, and only the log has the failures.
    func write(_ failures: [ChildCrashLoop]) {
        let bytes = Array(failures.map { $0.supervisorLine + "\n" }.joined().utf8)
        SmallFile.replace(path, with: bytes)
    }

    func remove() { _ = unsafe unlink(path) }

    /// Messages about the failing children; empty without a running supervisor.
    func sentences() -> [String] {
        let isSupervised = (try? LockFile.isHeld(folder.supervisorLock)) ?? false
        guard isSupervised, let bytes = try? InputFile.read(path, atMost: Self.maximumFileBytes) else { return [] }
        let text = String(decoding: bytes, as: UTF8.self)
        let failures = text.split(separator: "\n").compactMap { ChildCrashLoop(supervisorLine: String($0)) }
        return failures.map { failure in
            let (count, start) = (failure.consecutiveDeathCount, failure.firstDeathAt)
            let lastExit = failure.lastExitDescription
            return "the \(failure.childRole) ended \(count) times in a row since \(start), last with \(lastExit)"
        }
    }
}
