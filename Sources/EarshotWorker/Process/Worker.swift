internal import Cares
internal import Curl
internal import Decompression
internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import Logging

/// A worker on one event loop: accepts jobs from the broker, runs them and reports their outcome.
///
/// Callbacks of descriptors and timers only record events. `settle` handles them at the end of each pass, so no work is
/// done inside a C callback, and each socket is served before the loop sleeps.
final class Worker {
    /// `serving -> draining -> stopped`.
    enum Phase {
        case serving
        /// Accepts no more jobs and finishes the running ones.
        case draining
        case stopped
    }

    /// The terms of the broker's LIMITS. A class, because each run refers to it.
    final class Terms {
        let inlineBytes: Int
        /// Nil if the folder cannot be used.
        let spool: SpoolFolder?
        /// Policies for addresses to connect to: none, or one that restricts them.
        let policies: [AddressPolicy]
        /// Maximum number of decoded bytes for each encoded byte; 0 for no limit.
        let maxRatio: Int
        /// Maximum size of the body of an error page or a followed redirect, in bytes.
        let pageBytes: Int

        init(_ limits: WorkerLimits, spool: SpoolFolder?, addresses: AddressPolicy) {
            inlineBytes = limits.inlineBytes
            self.spool = spool
            policies = addresses.isRestricting ? [addresses] : []
            maxRatio = limits.maxRatio
            pageBytes = limits.pageBytes ?? .max
        }
    }

    /// Record of a descriptor that the kernel could not watch.
    private final class Unwatched {
        var fault: SystemError?
    }

    let options: WorkerOptions
    let loop: EventLoop
    let logger: Logger
    let names: Names
    let pool: TransferPool
    let link: BrokerLink
    let hasher: PartHasher
    private(set) var phase = Phase.serving
    /// The error that ended the worker.
    private(set) var fault: (any Error)?
    var runs: [AttemptID: JobRun] = [:]
    /// Nil before the first LIMITS.
    var terms: Terms?
    /// Maximum number of concurrent transfers.
    private(set) var slots: Int
    /// Number of slots that was last wished for and is known to exceed the limit of descriptors, or not to.
    private var wishedSlots: Int
    /// Whether the broker has not received the number of slots yet.
    var owesSlots = false
    /// Files of jobs that the broker sent.
    var files = FileTable()
    /// Parts of this process's sandbox; nil outside one.
    var sandbox: SandboxParts?
    /// Whether the broker has not received the parts of the sandbox yet.
    var owesSandbox = false
    /// Whether each attempt is logged.
    private(set) var logsAttempts = false
    let notes = JobNotes()
    private let unwatched = Unwatched()
    private var hook: EventLoop.HookID?

    /// Starts to connect to the broker; everything else happens while `loop` runs.
    ///
    /// - Throws: `CurlError` or `LibraryError` if a library cannot be loaded, `CaresError` if a name server is not an
    ///   address.
    init(_ options: WorkerOptions, loop: EventLoop, logger: Logger) throws {
        self.options = options
        self.loop = loop
        self.logger = logger
        slots = options.slots
        // The supervisor has warned about the number with which it starts its workers.
        wishedSlots = options.secret == nil ? 0 : options.slots
        let unwatched = unwatched
        let makeWatch: DescriptorWatch.Maker = { DescriptorWatch(loop, ready: $0) { unwatched.fault = $0 } }
        pool = TransferPool(loop: loop, makeWatch: makeWatch)
        try pool.prepare()
        if !Multi.speaksHTTP2 {
            logger.warning("HTTP/2 is off: this libcurl does not report the end of a stream")
        }
        try Decompressor.loadLibraries()
        names = try Names(servers: options.dnsServers, loop: loop, makeWatch: makeWatch)
        link = BrokerLink(options.workPath, loop: loop, logger: logger)
        hasher = try PartHasher(loop)
        hook = loop.addHook { [weak self] in self?.settle() ?? .untilEvent }
        setSlots(options.slots)
        setLogLevel(nil)
    }

    /// Changes the level of the log, which all copies of the logger of `earshot` share; nil to keep it.
    func setLogLevel(_ index: Int?) {
        var logger = logger
        if options.followsLogLevel, let index, let level = Logger.Level(rawValue: LogSeverity.allCases[index].rawValue)
        {
            logger.logLevel = level
        }
        logsAttempts = logger.logLevel <= .debug
    }

    /// Changes the number of slots, limited by the available descriptors. Running transfers beyond it continue.
    func setSlots(_ wish: Int) {
        slots = min(wish, options.mostSlots)
        if slots < wish, wish > wishedSlots {
            logger.warning(
                "the limit of open files permits fewer transfers than the setting slots; raise it (ulimit -n, LimitNOFILE=)",
                metadata: ["slots": "\(slots)"])
        }
        wishedSlots = wish
        pool.makeRoom(slots: slots, of: options.mostSlots)
        link.mostWaiting = Limits.waitingTerminals(slots: slots)
    }

    // MARK: Leaving

    /// Accepts no more jobs, finishes the running ones and stops the loop within `Limits.drainTime`. A worker with a
    /// parent waits for the parent's second signal instead, because the parent measures the time.
    func drain() {
        guard phase == .serving else { return }
        logger.info("draining", metadata: ["running": "\(runs.count)"])
        phase = .draining
        if options.parentPid == nil { loop.setTimer(after: Limits.drainTime) { [weak self] in self?.stop() } }
    }

    /// Abandons running jobs, sends BYE and stops the loop.
    func stop() {
        guard phase != .stopped else { return }
        phase = .stopped
        abandonRuns()
        link.sendNow(.bye)
        link.close()
        if let hook { loop.removeHook(hook) }
        loop.stop()
    }

    /// Closes all transfers. Leaves the files of bodies that a later attempt may continue: the broker looks for them when
    /// it reads BYE, or a later one does.
    ///
    /// - Parameter leastBytes: Minimum length of such a body.
    private func abandonRuns(leastBytes: Int = 1) {
        for run in runs.values {
            if run.receivedBytes >= leastBytes { _ = run.leave() }
            forget(run)
        }
    }

    /// Stops with an error, because the broker would refuse each further attempt of this process.
    func refused() {
        fault = WorkerRefused()
        stop()
    }

    // MARK: The pass

    private func settle() -> EventLoop.Rest {
        do {
            let isPending = try work()
            if let fault = unwatched.fault { throw fault }
            guard phase != .stopped else { return .untilEvent }
            if isPending { return .none }
            guard let due = pool.due.map({ min($0, names.due ?? $0) }) ?? names.due else { return .untilEvent }
            return due <= loop.now ? .none : .until(due)
        } catch {
            fault = error
            stop()
            return .untilEvent
        }
    }

    /// - Returns: Whether broker messages or undecoded bytes are pending.
    private func work() throws -> Bool {
        var budget = Limits.messagesPerPass
        while budget > 0, let (message, body) = link.next() {
            handle(message, body)
            budget -= 1
        }
        for task in hasher.takeFinished() { hashed(task) }
        for answered in names.settle() { named(answered) }
        decodeWhatCame()
        continuePaced()
        for finished in pool.settle() { ended(finished) }
        hashWhatCame()
        limitRedirects()
        try sendProgress()
        if owesSandbox, let sandbox, link.sendNow(.sandbox(sandbox)) { owesSandbox = false }
        if owesSlots, link.sendNow(.slots(slots)) { owesSlots = false }
        let isPending = link.settle(lost: { abandonRuns(leastBytes: Limits.leastPartBytes) }, ready: { ready() })
        if phase == .draining, runs.isEmpty, link.waitingCount == 0 { stop() }
        return isPending || !notes.decodable.isEmpty || !notes.paced.isEmpty
    }

    private func hashWhatCame() {
        guard !notes.hashable.isEmpty else { return }
        let noted = notes.hashable
        notes.hashable.removeAll(keepingCapacity: true)
        for run in noted where !run.isOver { hashOn(run) }
    }

    /// Sends the PROGRESS messages that are due and sets timers for the others.
    private func sendProgress() throws {
        if !notes.grown.isEmpty {
            let grown = notes.grown
            notes.grown.removeAll(keepingCapacity: true)
            for run in grown where !run.isOver && link.sendNow(run.takeProgress(isEarly: true)) { run.progressTaken() }
        }
        guard !notes.progressed.isEmpty else { return }
        let noted = notes.progressed
        notes.progressed.removeAll(keepingCapacity: true)
        for run in noted where !run.isOver {
            if run.progressDue <= loop.now {
                if link.sendNow(run.takeProgress()) { run.progressTaken() } else { run.noteProgress() }
            } else {
                loop.setTimer(at: run.progressDue) { [weak self, attempt = run.job.attempt] in
                    if let self, let run = runs[attempt] { notes.progressed.append(run) }
                }
            }
        }
    }

    private func ready() -> Ready {
        var ready = Ready(slots: slots)
        ready.pid = Int(getpid())
        ready.secret = options.secret
        ready.speaksHTTP2 = Multi.speaksHTTP2
        ready.needsFiles = true
        return ready
    }
}
