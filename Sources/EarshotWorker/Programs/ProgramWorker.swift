internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import Logging
internal import ZMTP

/// A worker on one event loop that runs a program for each job.
///
/// The URL is the program's last argument, the request's body its standard input, and its standard output the response.
/// Callbacks of descriptors and timers only record events. `settle` handles them at the end of each pass.
final class ProgramWorker {
    /// `serving -> draining -> stopped`.
    enum Phase {
        case serving
        /// Accepts no more jobs and finishes the running ones.
        case draining
        case stopped
    }

    /// The terms of the broker's LIMITS.
    struct Terms {
        let inlineBytes: Int
        /// Nil if the folder cannot be used.
        let spool: SpoolFolder?
        /// Maximum size of a body in bytes: that of a message, if the broker is on another machine.
        var mostBytes = Int.max
    }

    private let options: ProgramOptions
    private let loop: EventLoop
    private let logger: Logger
    private let link: BrokerLink
    private let hasher: PartHasher
    /// Called when a broker has accepted the worker.
    private let onServing: () -> Void
    private(set) var phase = Phase.serving
    /// The error that ended the worker.
    private(set) var fault: (any Error)?
    private var runs: [AttemptID: ProgramRun] = [:]
    /// Attempts whose programs have written output or exited.
    private var noted: Set<AttemptID> = []
    private var terms: Terms?
    private var buffer = [UInt8](repeating: 0, count: Limits.pieceBytes)
    private var hook: EventLoop.HookID?

    init(
        _ options: ProgramOptions, _ tunnel: (any BrokerTunnel)? = nil, loop: EventLoop, logger: Logger,
        onServing: @escaping () -> Void
    ) throws {
        self.options = options
        self.loop = loop
        self.logger = logger
        self.onServing = onServing
        link =
            tunnel.map { BrokerLink($0, loop: loop, logger: logger) }
            ?? BrokerLink(options.workPath, loop: loop, logger: logger)
        link.mostWaiting = Limits.waitingTerminals(slots: options.slots)
        hasher = try PartHasher(loop)
        hook = loop.addHook { [weak self] in self?.settle() ?? .untilEvent }
    }

    // MARK: Leaving

    /// Accepts no more jobs, finishes the running ones and stops the loop within `Limits.drainTime`.
    func drain() {
        guard phase == .serving else { return }
        phase = .draining
        loop.setTimer(after: Limits.drainTime) { [weak self] in self?.stop() }
    }

    /// Kills running programs, sends BYE and stops the loop.
    func stop() {
        guard phase != .stopped else { return }
        phase = .stopped
        for run in runs.values { run.kill() }
        runs = [:]
        link.sendNow(.bye)
        link.close()
        if let hook { loop.removeHook(hook) }
        loop.stop()
    }

    /// Stops the loop with an error.
    func fail(_ error: any Error) {
        fault = fault ?? error
        stop()
    }

    // MARK: The pass

    private func settle() -> EventLoop.Rest {
        do {
            let isPending = try work()
            guard phase != .stopped else { return .untilEvent }
            return isPending || !noted.isEmpty ? .none : .untilEvent
        } catch {
            fail(error)
            return .untilEvent
        }
    }

    /// - Returns: Whether broker messages are pending.
    private func work() throws -> Bool {
        var budget = Limits.messagesPerPass
        while budget > 0, phase != .stopped, let (message, body) = link.next() {
            handle(message, body)
            budget -= 1
        }
        guard phase != .stopped else { return false }
        for task in hasher.takeFinished() { hashed(task) }
        let ready = noted
        noted = []
        for attempt in ready { look(at: attempt) }
        try sendProgress(of: ready)
        let isPending = link.settle(
            lost: { for run in runs.values { stop(run, Refusal(.cancelled)) } },
            ready: { runs.isEmpty ? self.ready() : nil })
        if phase == .draining, runs.isEmpty, link.waitingCount == 0 { stop() }
        return isPending
    }

    private func ready() -> Ready {
        var ready = Ready(slots: options.slots)
        ready.schemes = options.schemes
        ready.pid = Int(getpid())
        ready.hearsDrain = true
        return ready
    }

    private func sendProgress(of attempts: Set<AttemptID>) throws {
        for attempt in attempts {
            guard let run = runs[attempt], let due = run.progressDue else { continue }
            if due <= loop.now {
                link.sendNow(run.takeProgress())
            } else if !run.isProgressPlanned {
                run.isProgressPlanned = true
                loop.setTimer(at: due) { [weak self, weak run] in
                    run?.isProgressPlanned = false
                    self?.noted.insert(attempt)
                }
            }
        }
    }

    // MARK: Messages of the broker

    private func handle(_ message: PoolMessage, _ body: [UInt8]?) {
        switch message {
        case .limits(let limits): take(limits)
        case .job(let job): start(job, body)
        case .cancel(let attempt): if let run = runs[attempt] { stop(run, Refusal(.cancelled)) }
        case .raise(let attempt, let maxBytes): runs[attempt]?.raise(to: maxBytes)
        // Only transfers of http and https have rates.
        case .rate: break
        // The program opens files itself.
        case .file: break
        case .ping: link.sendNow(.pong)
        // No jobs arrive until the next broker listens. Only the user ends this worker.
        case .drain: logger.info("the broker is shutting down; finishing running jobs and waiting for the next broker")
        case .error(let code, let detail): objected(Printable.sentence(code), Printable.sentence(detail ?? ""))
        }
    }

    private func take(_ limits: WorkerLimits) {
        terms = terms(limits)
        let isNew = !link.isUp
        link.welcomed()
        if isNew { onServing() }
    }

    private func terms(_ limits: WorkerLimits) -> Terms {
        guard !limits.spool.isEmpty else {
            return Terms(inlineBytes: limits.inlineBytes, spool: nil, mostBytes: limits.inlineBytes)
        }
        var spool: SpoolFolder?
        do throws(SystemError) {
            spool = try SpoolFolder(limits.spool, leastFreeBytes: limits.spoolFreeBytes)
        } catch {
            logger.error("cannot open the spool", metadata: ["error": "\(error)"])
        }
        return Terms(inlineBytes: limits.inlineBytes, spool: spool)
    }

    private func objected(_ code: String, _ detail: String) {
        logger.error("the broker reported an error", metadata: ["code": "\(code)", "detail": "\(detail)"])
        guard !link.isUp, ["limit", "not-a-child", "not-authorized", "version"].contains(code) else { return }
        fault = ProgramWorkerRefused(description: "the broker does not take this worker: \(detail) (\(code))")
        stop()
    }

    // MARK: Jobs

    private func start(_ job: Job, _ body: [UInt8]?) {
        guard runs[job.attempt] == nil, !link.waiting.contains(job.attempt) else {
            logger.warning("ignored a repeated job", metadata: ["attempt": "\(job.attempt)"])
            return
        }
        guard phase == .serving, runs.count < options.slots, let terms else {
            link.send(Refusal(.workerLost), of: job)
            return
        }
        do throws(SystemError) {
            runs[job.attempt] = try ProgramRun(job, body, options, terms, loop: loop) { [weak self] run in
                self?.noted.insert(run.job.attempt)
            }
        } catch {
            logger.error("cannot start the program", metadata: ["error": "\(error)"])
            link.send(Refusal(Self.code(of: error), "The program cannot be started: \(error)."), of: job)
        }
    }

    /// Returns the failure for a program that could not be started. A lack of descriptors or processes is transient, so
    /// a retry may succeed.
    private static func code(of error: SystemError) -> FailureCode {
        [EMFILE, ENFILE, EAGAIN, ENOMEM].contains(error.number) ? .connectFailed : .workerFailed
    }

    /// Ends a job before its program, which is killed after the grace period. The job keeps its slot until the exit.
    private func stop(_ run: ProgramRun, _ reason: Refusal) {
        guard run.stop(reason) else { return }
        run.graceTimer = loop.setTimer(after: Limits.programGrace) { [weak run] in run?.graceOver() }
    }

    /// Reads the output of a program and concludes the job after its exit.
    private func look(at attempt: AttemptID) {
        guard let run = runs[attempt] else { return }
        do throws(Refusal) {
            if try run.take(into: &buffer) { noted.insert(attempt) }
        } catch {
            stop(run, error)
            // The exit may already be visible.
            noted.insert(attempt)
        }
        guard run.exit != nil, !noted.contains(attempt) else { return }
        do throws(SystemError) {
            if try run.seal(on: hasher) { return }
        } catch {
            _ = run.stop(Refusal(.internalError, error.description))
        }
        conclude(run)
    }

    private func hashed(_ task: PartHasher.Task) {
        guard let run = runs[task.attempt] else { return }
        if !run.hashed(task) { _ = run.stop(Refusal(.internalError, "The body's file cannot be read.")) }
        conclude(run)
    }

    private func conclude(_ run: ProgramRun) {
        runs[run.job.attempt] = nil
        if let timer = run.graceTimer { loop.cancelTimer(timer) }
        let received = run.receivedBytes
        do throws(Refusal) {
            let (completion, body) = try run.complete(contentType: options.contentType)
            link.send(completion, body, of: run.job, spool: run.spool)
        } catch {
            link.send(error, of: run.job, receivedBytes: received)
        }
    }
}
