internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Logging

/// Running jobs of a worker, and their reports to the broker: PROGRESS, DONE and FAILED.
final class RunTable<Run: JobRun> {
    let loop: EventLoop
    let logger: Logger
    let link: BrokerLink
    let hasher: PartHasher
    private(set) var runs: [AttemptID: Run] = [:]
    /// Runs that have bytes to report in a PROGRESS.
    var runsWithProgress: [Run] = []
    /// Whether each attempt is logged.
    var logsAttempts = false

    init(_ link: BrokerLink, loop: EventLoop, logger: Logger) throws(SystemError) {
        self.link = link
        self.loop = loop
        self.logger = logger
        hasher = try PartHasher(loop)
    }

    func add(_ run: Run) {
        runs[run.job.attempt] = run
        logAttempt("started an attempt", attempt: run.job.attempt)
    }

    // MARK: The pass

    /// Continues runs after hash threads have read a range of their bodies.
    func receiveHashes() {
        for task in hasher.takeFinishedTasks() {
            guard let run = runs[task.attempt] else { continue }
            if run.receiveHash(from: task) {
                continueHashing(run)
            } else {
                end(run, because: Refusal(.internalError, "The body's file cannot be read."))
            }
        }
    }

    /// Starts a thread on unhashed bytes, if there are enough. Completes a run that waits only for its hash.
    func continueHashing(_ run: Run) {
        do throws(SystemError) {
            try run.startHashing(on: hasher)
        } catch {
            return end(run, because: Refusal(.internalError, error.description))
        }
        if run.isAwaitingBodyHash, run.isBodyHashed { complete(run) }
    }

    /// Sends the PROGRESS messages that are due and sets timers for the others.
    func sendProgress() {
        guard !runsWithProgress.isEmpty else { return }
        let scheduledRuns = runsWithProgress
        runsWithProgress.removeAll(keepingCapacity: true)
        for run in scheduledRuns where !run.state.isOver {
            if run.nextProgressTime <= loop.now {
                run.sendProgress()
            } else {
                loop.setTimer(at: run.nextProgressTime) { [weak self, attempt = run.job.attempt] in
                    if let self, let run = runs[attempt] { runsWithProgress.append(run) }
                }
            }
        }
    }

    // MARK: Ends

    /// Ends a run early.
    func end(_ run: Run, because reason: Refusal) {
        if run.stop(because: reason) { fail(run, refusal: reason) }
    }

    /// Sends the DONE of a run that has its result, or the FAILED of one that has not.
    func complete(_ run: Run) {
        do throws(Refusal) {
            var (completion, body) = try run.makeCompletion()
            completion.elapsedMilliseconds = Int(loop.now.since(run.state.startTime) / .milliseconds(1))
            completion.repeatCount = min(run.requestRepeatCount, WireLimits.repeatsPerAttempt)
            remove(run)
            logAttempt(
                "completed an attempt", attempt: completion.attempt,
                metadata: ["status": "\(completion.status)", "bytes": "\(completion.bodyByteCount)"])
            link.sendCompletion(completion, body: body, spool: run.terms.spool)
        } catch {
            fail(run, refusal: error)
        }
    }

    /// Fails a run. Closes its socket and deletes or leaves its bytes before FAILED is sent.
    func fail(_ run: Run, refusal: Refusal) {
        let receivedBytes = run.receivedBytes
        let unwantedBytes = refusal.code == .cancelled ? run.bodyBytesInCurrentPass : 0
        let part = refusal.code.allowsResumption ? run.handOverPartialBody() : nil
        remove(run)
        sendFailure(
            of: run.job, refusal: refusal, receivedBytes: receivedBytes, unwantedBytes: unwantedBytes, part: part,
            repeats: run.requestRepeatCount)
    }

    /// Sends the FAILED of a job.
    func sendFailure(
        of job: Job, refusal: Refusal, receivedBytes: Int = 0, unwantedBytes: Int = 0, part: BodyPart? = nil,
        repeats: Int = 0
    ) {
        logAttempt(
            "failed an attempt", attempt: job.attempt,
            metadata: ["code": "\(refusal.code.rawValue)", "bytes": "\(receivedBytes)"])
        let message = WorkerMessage.failed(
            job.attempt, code: refusal.code.rawValue, detail: Printable.sanitizedSentence(refusal.detail),
            receivedBytes: receivedBytes, unwantedBytes: unwantedBytes, part: part, repeats: repeats,
            retryAfterSeconds: refusal.retryAfter.map { Int($0.seconds) })
        link.sendFailure(message, of: job.attempt)
    }

    /// Ends all runs without a report: their broker is gone, or this process ends. Leaves the files of bodies that a
    /// later attempt may continue. The broker looks for them when it reads BYE; otherwise the next broker does.
    ///
    /// - Parameter isLast: Whether this process ends, so that no run may remain.
    func abandonAll(isLast: Bool) {
        for run in runs.values where isLast || run.stop(because: Refusal(.cancelled)) {
            if run.receivedBytes >= (isLast ? 1 : Limits.minimumPartialBodyBytes) { _ = run.handOverPartialBody() }
            remove(run)
        }
    }

    private func remove(_ run: Run) {
        run.state.isOver = true
        run.release()
        if let timer = run.state.timeLimitTimer { loop.cancelTimer(timer) }
        runs[run.job.attempt] = nil
    }

    private func logAttempt(
        _ event: Logger.Message, attempt: AttemptID, metadata: @autoclosure () -> Logger.Metadata = [:]
    ) {
        guard logsAttempts else { return }
        var metadata = metadata()
        metadata["attempt"] = "\(attempt)"
        logger.debug(event, metadata: metadata)
    }
}

/// A run with time limits.
protocol TimedRun: JobRun {
    /// Time of the next call of `overdueRefusal`.
    var deadline: LoopTime { get }
    /// Returns the failure of a job that has passed a deadline; nil before it.
    func overdueRefusal(now: LoopTime) -> Refusal?
}

extension RunTable where Run: TimedRun {
    /// Ends the run at its deadline.
    func scheduleDeadlineCheck(of run: Run) {
        // By attempt ID and not by a weak reference, which would slow down reference counting for the object's
        // lifetime.
        run.state.timeLimitTimer = loop.setTimer(at: run.deadline) { [weak self, attempt = run.job.attempt] in
            guard let self, let run = runs[attempt] else { return }
            if let refusal = run.overdueRefusal(now: loop.now) {
                end(run, because: refusal)
            } else {
                scheduleDeadlineCheck(of: run)
            }
        }
    }
}
