internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import Logging

/// A worker on one event loop: accepts jobs from the broker, lets its kind run them and reports their outcome.
///
/// Callbacks of descriptors and timers only record events. `runPass` handles them at the end of each pass, so no work
/// is done inside a C callback, and each socket is served before the loop sleeps.
final class Worker<Kind: JobKind> {
    let jobKind: Kind
    let jobs: RunTable<Kind.Run>
    private let traits: WorkerTraits
    private(set) var phase = WorkerPhase.serving
    /// The error that ended the worker.
    private(set) var terminatingError: (any Error)?
    /// Nil before the first LIMITS.
    private(set) var terms: Terms?
    /// Maximum number of concurrent jobs.
    private var slots: Int
    /// Last requested number of slots. Only a larger one causes another warning about the limit of descriptors.
    private var requestedSlots: Int
    /// Whether the broker has not received the number of slots yet.
    private var hasUnsentSlots = false
    /// Parts of this process's sandbox; nil outside one.
    private var sandbox: SandboxParts?
    /// Whether the broker has not received the parts of the sandbox yet.
    private var hasUnsentSandbox = false
    private var passHook: EventLoop.HookID?

    private var loop: EventLoop { jobs.loop }
    private var link: BrokerLink { jobs.link }
    private var logger: Logger { jobs.logger }

    /// Starts to work; everything happens while the loop of the kind runs.
    init(_ kind: Kind) {
        self.jobKind = kind
        jobs = kind.jobs
        traits = kind.traits
        slots = traits.readyMessage.slots
        // The supervisor has warned about the number with which it starts its workers.
        requestedSlots = traits.readyMessage.supervisorSecret == nil ? 0 : slots
        passHook = loop.addHook { [weak self] in self?.runPass() ?? .untilEvent }
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
        slots = min(requested, traits.maximumSlots)
        if slots < requested, requested > requestedSlots {
            logger.warning(
                "the limit of open files permits fewer transfers than the setting slots; raise it (ulimit -n, LimitNOFILE=)",
                metadata: ["slots": "\(slots)"])
        }
        requestedSlots = requested
        jobKind.prepareForSlots(slots)
        link.maximumQueuedTerminals = Limits.maximumQueuedTerminals(slots: slots)
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
        jobKind.closeConnections()
        jobs.abandonAll(isLast: true)
        link.sendUnqueued(.bye)
        link.close()
        if let passHook { loop.removeHook(passHook) }
        loop.stop()
    }

    private func fail(_ error: any Error) {
        terminatingError = terminatingError ?? error
        stop()
    }

    // MARK: The pass

    private func runPass() -> EventLoop.SleepLimit {
        do {
            let isPending = try handlePassEvents()
            guard phase != .stopped else { return .untilEvent }
            if isPending { return .noSleep }
            guard let due = jobKind.nextPassTime else { return .untilEvent }
            return due <= loop.now ? .noSleep : .until(due)
        } catch {
            fail(error)
            return .untilEvent
        }
    }

    /// - Returns: Whether broker messages or work of the kind are pending.
    private func handlePassEvents() throws -> Bool {
        var budget = Limits.messagesPerPass
        while budget > 0, let (message, body) = link.next() {
            handle(message, body: body)
            budget -= 1
        }
        guard phase != .stopped else { return false }
        jobs.receiveHashes()
        let hasWork = try jobKind.handlePassEvents()
        jobs.sendProgress()
        if hasUnsentSandbox, let sandbox, link.sendUnqueued(.sandbox(sandbox)) { hasUnsentSandbox = false }
        if hasUnsentSlots, link.sendUnqueued(.slots(slots)) { hasUnsentSlots = false }
        let hasMessages = link.runPass(
            onLost: { jobs.abandonAll(isLast: false) }, ready: { jobs.runs.isEmpty ? makeReadyMessage() : nil })
        if phase == .draining, jobs.runs.isEmpty, link.queuedTerminalCount == 0 { stop() }
        return hasMessages || hasWork
    }

    private func makeReadyMessage() -> Ready {
        var ready = traits.readyMessage
        ready.slots = slots
        ready.pid = Int(getpid())
        return ready
    }

    // MARK: Messages of the broker

    /// - Parameter body: Second frame, used only with a JOB or FILE.
    func handle(_ message: PoolMessage, body: [UInt8]?) {
        switch message {
        case .limits(let limits): applyLimits(limits)
        case .job(let job): startJob(job, body: body)
        // The terminal of an attempt that does not run is already on its way.
        case .cancelAttempt(let attempt):
            if let run = jobs.runs[attempt] { jobs.end(run, because: Refusal(.cancelled)) }
        case .raiseBodyLimit(let attempt, let maximumBodyBytes):
            jobs.runs[attempt]?.raiseMaximumBodyBytes(to: maximumBodyBytes)
        case .changeRate, .fileContent: jobKind.handleTransferMessage(message, content: body)
        case .ping: link.sendUnqueued(.pong)
        case .drain where traits.readyMessage.acceptsDrain:
            logger.info("the broker is shutting down; finishing running jobs and waiting for the next broker")
        case .drain: drain()
        case .error(let code, let detail):
            let (code, detail) = (Printable.sanitizedSentence(code), Printable.sanitizedSentence(detail ?? ""))
            logger.error("the broker reported an error", metadata: ["code": "\(code)", "detail": "\(detail)"])
            if !link.isAccepted, let sentence = traits.refusalSentence(code, detail) {
                fail(WorkerRefused(description: sentence))
            }
        }
    }

    private func startJob(_ job: Job, body: [UInt8]?) {
        guard jobs.runs[job.attempt] == nil, !link.attemptsWithQueuedTerminals.contains(job.attempt) else {
            logger.warning("ignored a repeated job", metadata: ["attempt": "\(job.attempt)"])
            return
        }
        do throws(Refusal) {
            // A broker sends LIMITS before its first job.
            guard phase == .serving, jobs.runs.count < slots, link.isAccepted, let terms else {
                throw Refusal(.workerLost)
            }
            try jobKind.start(job, body: body, terms: terms)
        } catch {
            jobs.sendFailure(of: job, refusal: error)
        }
    }

    private func applyLimits(_ limits: WorkerLimits) {
        var spool: SpoolFolder?
        if !limits.spoolPath.isEmpty {
            do throws(SystemError) {
                spool = try SpoolFolder(limits.spoolPath, minimumFreeBytes: limits.minimumSpoolFreeBytes)
            } catch {
                logger.error("cannot open the spool", metadata: ["error": "\(error)"])
                if sandbox?.landlockVersion != nil, error.isDenied {
                    logger.notice("another folder replaced the spool: the worker ends, so that a new one can use it")
                    return stop()
                }
            }
        }
        // At the first LIMITS, because the sandbox would not restrict threads that already run.
        if terms == nil, limits.sandboxSetting == 0 { enterSandbox(spool: limits.spoolPath) }
        terms = Terms(limits, spool: spool, logger: logger)
        hasUnsentSandbox = sandbox != nil && traits.reportsSandbox
        if !link.isAccepted {
            link.recordAcceptance()
            traits.onBrokerAccepted()
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
        rules.allow(.write, path: spool)
        for path in readable { rules.allow(.read, path: path) }
        let report = rules.enter()
        var parts = SandboxParts()
        parts.landlockVersion = report.landlockVersion
        parts.filtersSystemCalls = report.hasSystemCallFilter
        parts.missingPartReason = report.missingPartReason
        sandbox = parts
        if let reason = report.missingPartReason, !traits.reportsSandbox {
            logger.warning("the worker is not completely restricted", metadata: ["reason": "\(reason)"])
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
