internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import Logging

/// A worker on one event loop: accepts jobs from the broker, lets its kind run them and reports their outcome.
///
/// Callbacks of descriptors and timers only record events. `runPass` handles them at the end of each pass, so no work is
/// done inside a C callback, and each socket is served before the loop sleeps.
final class Worker<Kind: JobKind> {
    let kind: Kind
    let jobs: RunTable<Kind.Run>
    private let traits: WorkerTraits
    private(set) var phase = WorkerPhase.serving
    /// The error that ended the worker.
    private(set) var fault: (any Error)?
    /// Nil before the first LIMITS.
    private(set) var terms: Terms?
    /// Maximum number of concurrent jobs.
    private var slots: Int
    /// Number of slots that was last wished for and is known to exceed the limit of descriptors, or not to.
    private var requestedSlots: Int
    /// Whether the broker has not received the number of slots yet.
    private var hasUnsentSlots = false
    /// Parts of this process's sandbox; nil outside one.
    private var sandbox: SandboxParts?
    /// Whether the broker has not received the parts of the sandbox yet.
    private var hasUnsentSandbox = false
    private var hook: EventLoop.HookID?

    private var loop: EventLoop { jobs.loop }
    private var link: BrokerLink { jobs.link }
    private var logger: Logger { jobs.logger }

    /// Starts to work; everything happens while the loop of the kind runs.
    init(_ kind: Kind) {
        self.kind = kind
        jobs = kind.jobs
        traits = kind.traits
        slots = traits.ready.slots
        // The supervisor has warned about the number with which it starts its workers.
        requestedSlots = traits.ready.secret == nil ? 0 : slots
        hook = loop.addHook { [weak self] in self?.runPass() ?? .untilEvent }
        setSlots(slots)
        setLogLevel(nil)
    }

    /// Changes the level of the log, which all copies of the logger of `earshot` share; nil to keep it.
    private func setLogLevel(_ index: Int?) {
        var logger = logger
        if traits.followsLogLevel, let index, let level = Logger.Level(rawValue: LogSeverity.allCases[index].rawValue) {
            logger.logLevel = level
        }
        jobs.logsAttempts = logger.logLevel <= .debug
    }

    /// Changes the number of slots, limited by the available descriptors. Running jobs beyond it continue.
    private func setSlots(_ requested: Int) {
        slots = min(requested, traits.mostSlots)
        if slots < requested, requested > requestedSlots {
            logger.warning(
                "the limit of open files permits fewer transfers than the setting slots; raise it (ulimit -n, LimitNOFILE=)",
                metadata: ["slots": "\(slots)"])
        }
        requestedSlots = requested
        kind.makeRoom(slots: slots)
        link.mostWaiting = Limits.waitingTerminals(slots: slots)
    }

    // MARK: Leaving

    /// Accepts no more jobs, finishes the running ones and stops the loop. Without a parent that measures the time, it
    /// stops within `Limits.drainTime`.
    func drain() {
        guard phase == .serving else { return }
        logger.info("draining", metadata: ["running": "\(jobs.runs.count)"])
        phase = .draining
        if let time = traits.drainTime { loop.setTimer(after: time) { [weak self] in self?.stop() } }
    }

    /// Abandons running jobs, sends BYE and stops the loop.
    func stop() {
        guard phase != .stopped else { return }
        phase = .stopped
        kind.close()
        jobs.abandonAll(isLast: true)
        link.sendNow(.bye)
        link.close()
        if let hook { loop.removeHook(hook) }
        loop.stop()
    }

    private func fail(_ error: any Error) {
        fault = fault ?? error
        stop()
    }

    // MARK: The pass

    private func runPass() -> EventLoop.Rest {
        do {
            let isPending = try work()
            guard phase != .stopped else { return .untilEvent }
            if isPending { return .none }
            guard let due = kind.dueTime else { return .untilEvent }
            return due <= loop.now ? .none : .until(due)
        } catch {
            fail(error)
            return .untilEvent
        }
    }

    /// - Returns: Whether broker messages or work of the kind are pending.
    private func work() throws -> Bool {
        var budget = Limits.messagesPerPass
        while budget > 0, let (message, body) = link.next() {
            handle(message, body)
            budget -= 1
        }
        guard phase != .stopped else { return false }
        jobs.takeHashes()
        let hasWork = try kind.work()
        jobs.sendProgress()
        if hasUnsentSandbox, let sandbox, link.sendNow(.sandbox(sandbox)) { hasUnsentSandbox = false }
        if hasUnsentSlots, link.sendNow(.slots(slots)) { hasUnsentSlots = false }
        let hasMessages = link.runPass(
            lost: { jobs.abandonAll(isLast: false) }, ready: { jobs.runs.isEmpty ? ready() : nil })
        if phase == .draining, jobs.runs.isEmpty, link.waitingCount == 0 { stop() }
        return hasMessages || hasWork
    }

    private func ready() -> Ready {
        var ready = traits.ready
        ready.slots = slots
        ready.pid = Int(getpid())
        return ready
    }

    // MARK: Messages of the broker

    /// - Parameter body: Second frame, used only with a JOB or FILE.
    func handle(_ message: PoolMessage, _ body: [UInt8]?) {
        switch message {
        case .limits(let limits): take(limits)
        case .job(let job): start(job, body)
        // The terminal of an attempt that does not run is already on its way.
        case .cancel(let attempt): if let run = jobs.runs[attempt] { jobs.end(run, Refusal(.cancelled)) }
        case .raise(let attempt, let maxBytes): jobs.runs[attempt]?.raise(to: maxBytes)
        case .rate, .file: kind.handle(message, body)
        case .ping: link.sendNow(.pong)
        case .drain where traits.ready.acceptsDrain:
            logger.info("the broker is shutting down; finishing running jobs and waiting for the next broker")
        case .drain: drain()
        case .error(let code, let detail):
            let (code, detail) = (Printable.sentence(code), Printable.sentence(detail ?? ""))
            logger.error("the broker reported an error", metadata: ["code": "\(code)", "detail": "\(detail)"])
            if !link.isUp, let sentence = traits.refusal(code, detail) { fail(WorkerRefused(description: sentence)) }
        }
    }

    private func start(_ job: Job, _ body: [UInt8]?) {
        guard jobs.runs[job.attempt] == nil, !link.waiting.contains(job.attempt) else {
            logger.warning("ignored a repeated job", metadata: ["attempt": "\(job.attempt)"])
            return
        }
        do throws(Refusal) {
            // A broker sends LIMITS before its first job.
            guard phase == .serving, jobs.runs.count < slots, link.isUp, let terms else { throw Refusal(.workerLost) }
            try kind.start(job, body, terms)
        } catch {
            jobs.refuse(job, error)
        }
    }

    private func take(_ limits: WorkerLimits) {
        var spool: SpoolFolder?
        if !limits.spool.isEmpty {
            do throws(SystemError) {
                spool = try SpoolFolder(limits.spool, leastFreeBytes: limits.spoolFreeBytes)
            } catch {
                logger.error("cannot open the spool", metadata: ["error": "\(error)"])
                if sandbox?.landlock != nil, error.isDenied {
                    logger.notice("another folder replaced the spool: the worker ends, so that a new one can use it")
                    return stop()
                }
            }
        }
        // Later, threads may run that it would not restrict.
        if terms == nil, limits.sandbox == 0 { enterSandbox(spool: limits.spool) }
        terms = Terms(limits, spool: spool, logger: logger)
        hasUnsentSandbox = sandbox != nil && traits.reportsSandbox
        if !link.isUp {
            link.welcomed()
            traits.onAccepted()
        }
        if let slots = limits.slots {
            setSlots(slots)
            hasUnsentSlots = true
        }
        setLogLevel(limits.logLevel)
        logger.info("the broker accepted this worker", metadata: ["broker": "\(limits.broker)"])
    }

    /// Restricts this process to the spool and the files of its kind. Some parts may be missing in an old kernel.
    private func enterSandbox(spool: String) {
        guard let readable = traits.readableFiles else { return }
        var rules = Sandbox()
        rules.allow(.write, spool)
        for path in readable { rules.allow(.read, path) }
        let report = rules.enter()
        var parts = SandboxParts()
        parts.landlock = report.landlock
        parts.filtersCalls = report.hasFilter
        parts.error = report.obstacle
        sandbox = parts
        if let obstacle = report.obstacle, !traits.reportsSandbox {
            logger.warning("the worker is not completely restricted", metadata: ["reason": "\(obstacle)"])
        }
        logger.debug("entered the sandbox", metadata: ["parts": "\(parts)"])
    }
}

/// `serving -> draining -> stopped`.
enum WorkerPhase {
    case serving
    /// Accepts no more jobs and finishes the running ones.
    case draining
    case stopped
}
