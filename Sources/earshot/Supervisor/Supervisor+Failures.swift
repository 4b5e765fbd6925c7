internal import EarshotCore
internal import EarshotLoop
internal import Logging

/// Crash loops: reported once in the log, and in the status of the broker.
extension Supervisor {
    /// Records an unexpected exit or a failed start of a child.
    ///
    /// - Parameter cause: message about the child.
    /// - Returns: delay before the restart.
    func died(_ post: Post, after lived: Duration, _ cause: String) -> Duration {
        let wasFailing = post.rule.isFailing
        let pause = post.rule.lifeEnded(after: lived, using: &generator)
        if post.rule.quickDeaths == 0 {
            post.dyingSince = nil
        } else if post.dyingSince == nil {
            post.dyingSince = CalendarTime.now()
        }
        if post.rule.isFailing {
            if !wasFailing {
                plan.log.write(
                    .error,
                    "\(cause), \(post.rule.quickDeaths) times in a row: restarting with growing delays, and without further "
                        + "messages until one has run for \(RestartRule.goodLife)")
            }
            tellFailures()
        } else {
            if wasFailing { tellFailures() }
            let milliseconds = Int((pause / .milliseconds(1)).rounded())
            plan.log.write(.warning, cause + ", starting another" + (milliseconds == 0 ? "" : " in \(milliseconds) ms"))
        }
        // The bus becomes ready without a door that cannot be started.
        if post.role == .door { sayReady() }
        return pause
    }

    /// Resets the restart rule of a failing post once its child has run for `RestartRule.goodLife`.
    func watchForGoodLife(_ post: Post) {
        guard post.rule.quickDeaths > 0 else { return }
        post.goodLife = loop.setTimer(after: RestartRule.goodLife) { [unowned self] in
            post.goodLife = nil
            let wasFailing = post.rule.isFailing
            post.rule.livesWell()
            post.dyingSince = nil
            guard wasFailing else { return }
            plan.log.write(.notice, "\(post.role.name) has recovered")
            tellFailures()
        }
    }

    /// Posts in a crash loop.
    var failures: [ChildFailure] {
        posts.filter { $0.rule.isFailing && !$0.isLeaving }.map { post in
            ChildFailure(
                role: post.role.word, deaths: post.rule.quickDeaths,
                since: post.dyingSince ?? "-",
                lastEnd: post.obstacle ?? post.lastExit.map { Self.text(of: $0) } ?? "not started")
        }
    }

    /// Reports to the broker how a worker ended. Without room in the channel, the broker decides without the report.
    func reportEnd(of post: Post, _ pid: Int32, _ exit: ChildProcess.Exit) {
        guard let channel, !channel.hasBacklog else { return }
        let signal: Int32? = if case .signal(let number) = exit { number } else { nil }
        let end = WorkerEnd(
            pid: pid, signal: signal, isOutOfMemory: MemoryPressure.kills() != post.killsBefore,
            wasKilledByBus: post.isLeaving || phase != .serving)
        channel.send([end.line])
    }

    /// Returns the end of a child, with the meaning of an exit code that tells the cause.
    static func text(of exit: ChildProcess.Exit) -> String {
        guard case .code(let code) = exit, let status = ExitStatus(rawValue: code), status.tellsCause else {
            return "\(exit)"
        }
        return "\(exit) (\(status.meaning))"
    }

    /// Sends the crash loops to the broker, or waits until its channel has room. Also writes them to a file in the
    /// runtime directory, which clients read while no broker answers.
    func tellFailures() {
        tellService()
        let failures = failures
        let report = FailureReport(plan.folder)
        if failures.contains(where: { $0.role == "broker" }) { report.write(failures) } else { report.remove() }
        guard let channel else { return }
        owesFailures = channel.hasBacklog
        guard !owesFailures else { return }
        channel.send(failures.map(\.line) + [ChildFailure.end])
    }
}
