internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import Logging
internal import ZMTP

/// A worker on one event loop that fetches bodies from the other nodes of a cluster.
///
/// Callbacks of the network only record events. `settle` handles them at the end of each pass.
final class PullWorker {
    /// `serving -> draining -> stopped`.
    enum Phase {
        case serving
        /// Accepts no more jobs and finishes the running ones.
        case draining
        case stopped
    }

    private let options: PullerOptions
    private let network: any NodeNetwork
    private let loop: EventLoop
    private let logger: Logger
    private let link: BrokerLink
    private let hasher: PartHasher
    private(set) var phase = Phase.serving
    /// The error that ended the worker.
    private(set) var fault: (any Error)?
    private var runs: [AttemptID: PullRun] = [:]
    /// Attempts with events.
    private var noted: Set<AttemptID> = []
    private var limits: WorkerLimits?
    /// Nil if the folder cannot be used.
    private var spool: SpoolFolder?
    /// Whether this process can write to the spool of the first LIMITS only.
    private var isRestricted = false
    private var hook: EventLoop.HookID?

    init(_ options: PullerOptions, _ network: any NodeNetwork, loop: EventLoop, logger: Logger) throws {
        self.options = options
        self.network = network
        self.loop = loop
        self.logger = logger
        link = BrokerLink(options.workPath, loop: loop, logger: logger)
        link.mostWaiting = Limits.waitingTerminals(slots: PullerOptions.slots)
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

    /// Drops all bodies, sends BYE and stops the loop.
    func stop() {
        guard phase != .stopped else { return }
        phase = .stopped
        for run in runs.values { run.drop() }
        runs = [:]
        network.close()
        link.sendNow(.bye)
        link.close()
        if let hook { loop.removeHook(hook) }
        loop.stop()
    }

    // MARK: The pass

    private func settle() -> EventLoop.Rest {
        var budget = Limits.messagesPerPass
        while budget > 0, phase != .stopped, let (message, body) = link.next() {
            _ = body
            handle(message)
            budget -= 1
        }
        guard phase != .stopped else { return .untilEvent }
        for task in hasher.takeFinished() {
            runs[task.attempt]?.hashed(task)
            noted.insert(task.attempt)
        }
        let ready = noted
        noted = []
        for attempt in ready { look(at: attempt) }
        let isPending = link.settle(
            lost: { for attempt in Array(runs.keys) { end(attempt, Refusal(.cancelled)) } }, ready: { self.ready() })
        if phase == .draining, runs.isEmpty, link.waitingCount == 0 { stop() }
        return phase != .stopped && (isPending || !noted.isEmpty) ? .none : .untilEvent
    }

    private func ready() -> Ready {
        var ready = Ready(slots: PullerOptions.slots)
        ready.schemes = [NodeAddress.scheme]
        ready.pid = Int(getpid())
        ready.secret = options.secret
        ready.hearsDrain = true
        return ready
    }

    /// Records an event, which may come from the hook of a connection after that of this worker.
    private func note(_ attempt: AttemptID) {
        if noted.isEmpty { loop.setTimer(after: .zero) {} }
        noted.insert(attempt)
    }

    // MARK: Messages of the broker

    private func handle(_ message: PoolMessage) {
        switch message {
        case .limits(let limits): take(limits)
        case .job(let job): start(job)
        case .cancel(let attempt): end(attempt, Refusal(.cancelled))
        case .raise(let attempt, let maxBytes): runs[attempt]?.raise(to: maxBytes)
        // Only transfers of http and https have rates and files.
        case .rate, .file: break
        case .ping: link.sendNow(.pong)
        case .drain: logger.debug("the broker is shutting down; finishing running pulls")
        case .error(let code, let detail):
            let (code, detail) = (Printable.sentence(code), Printable.sentence(detail ?? ""))
            logger.error("the broker reported an error", metadata: ["code": "\(code)", "detail": "\(detail)"])
            guard !link.isUp else { return }
            fault = PullerRefused(description: "the broker refuses the puller: \(detail) (\(code))")
            stop()
        }
    }

    private func take(_ limits: WorkerLimits) {
        // Comes before the first connection, with which libzmq starts its threads.
        if self.limits == nil, limits.sandbox == 0 { enterSandbox(spool: limits.spool) }
        self.limits = limits
        do throws(SystemError) {
            spool = try SpoolFolder(limits.spool, leastFreeBytes: limits.spoolFreeBytes)
        } catch {
            spool = nil
            logger.error("cannot open the spool", metadata: ["error": "\(error)"])
            // Another folder has replaced it. The supervisor starts another puller, which can use that one.
            if isRestricted, error.isDenied { return stop() }
        }
        link.welcomed()
    }

    /// Restricts this process to the spool, and to connections to other nodes and the broker.
    private func enterSandbox(spool: String) {
        var sandbox = Sandbox()
        sandbox.allow(.write, spool)
        let report = sandbox.enter()
        isRestricted = report.landlock != nil
        if let obstacle = report.obstacle {
            logger.warning("the puller is not completely restricted", metadata: ["reason": "\(obstacle)"])
        }
    }

    // MARK: Jobs

    private func start(_ job: Job) {
        guard runs[job.attempt] == nil, !link.waiting.contains(job.attempt) else {
            logger.warning("ignored a repeated job", metadata: ["attempt": "\(job.attempt)"])
            return
        }
        guard phase == .serving, runs.count < PullerOptions.slots, let limits else {
            return link.send(Refusal(.workerLost), of: job)
        }
        guard let node = NodeAddress(url: job.url) else { return link.send(Refusal(.malformedURL), of: job) }
        let run = PullRun(job, at: node, inlineBytes: limits.inlineBytes, spool: spool, loop: loop) {
            [weak self] attempt in self?.note(attempt)
        }
        runs[job.attempt] = run
        watchTime(of: run)
        network.request(run.request, for: run)
    }

    /// Ends a job that received no byte for too long.
    private func watchTime(of run: PullRun) {
        let deadline = run.lastNews.advanced(by: .milliseconds(run.job.timeoutMilliseconds))
        run.timer = loop.setTimer(at: deadline) { [weak self, weak run] in
            guard let self, let run else { return }
            // A complete body may wait for its hash.
            guard run.ending == nil else { return }
            let isSilent = loop.now >= run.lastNews.advanced(by: .milliseconds(run.job.timeoutMilliseconds))
            guard isSilent else { return watchTime(of: run) }
            self.end(run.job.attempt, Refusal(.timeout))
        }
    }

    /// Ends a job before its request.
    private func end(_ attempt: AttemptID, _ refusal: Refusal) {
        guard let run = runs[attempt] else { return }
        run.refuse(refusal)
        conclude(run)
    }

    /// Acts on the events of a run.
    private func look(at attempt: AttemptID) {
        guard let run = runs[attempt] else { return }
        run.checkRoom()
        do throws(SystemError) {
            if try run.hash(on: hasher) { return }
        } catch {
            run.refuse(Refusal(.internalError, error.description))
        }
        guard run.refusal == nil, run.ending == nil else { return conclude(run) }
        guard let due = run.progressDue, !run.isProgressPlanned else { return }
        guard due > loop.now else {
            link.sendNow(run.takeProgress())
            return
        }
        run.isProgressPlanned = true
        loop.setTimer(at: due) { [weak self, weak run] in
            run?.isProgressPlanned = false
            self?.noted.insert(attempt)
        }
    }

    private func conclude(_ run: PullRun) {
        runs[run.job.attempt] = nil
        if let timer = run.timer { loop.cancelTimer(timer) }
        if run.ending == nil { network.cancel(run.request) }
        defer { run.drop() }
        do throws(Refusal) {
            let (completion, body) = try run.complete()
            link.send(completion, body, of: run.job, spool: run.spool)
        } catch {
            link.send(error, of: run.job, receivedBytes: run.receivedBytes)
        }
    }
}
