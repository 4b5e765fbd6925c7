internal import Cares
internal import Curl
internal import Decompression
internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import Logging

/// A worker on one event loop: takes jobs from the broker, runs them, tells how they ended.
///
/// Descriptors and timers only note what happened; at the end of each pass `settle` deals with it, so that nothing is
/// done inside a callback and each socket is looked at before the loop sleeps.
final class Worker {
    /// `serving -> draining -> stopped`.
    enum Phase {
        case serving
        /// Takes no more jobs, finishes what runs.
        case draining
        case stopped
    }

    /// What the broker's LIMITS said; an object, since each run has it.
    final class Terms {
        let inlineBytes: Int
        /// Nil if the folder cannot be used.
        let spool: SpoolFolder?
        /// Its path.
        let spoolPath: String
        /// Where connections may go.
        let addresses: AddressPolicy
        /// Decoded bytes of a body for each encoded one; 0 for any number.
        let maxRatio: Int
        /// Maximum bytes of the body of an error page, or of a redirect that is followed.
        let pageBytes: Int

        init(_ limits: WorkerLimits, spool: SpoolFolder?, addresses: AddressPolicy) {
            inlineBytes = limits.inlineBytes
            self.spool = spool
            spoolPath = limits.spool
            self.addresses = addresses
            maxRatio = limits.maxRatio
            pageBytes = limits.pageBytes ?? .max
        }
    }

    /// Where a descriptor that the kernel would not watch is noted.
    private final class Unwatched {
        var fault: SystemError?
    }

    /// Where hashes that are done are noted.
    private final class Hashed {
        var tasks: [PartHasher.Task] = []
    }

    let options: WorkerOptions
    let loop: EventLoop
    let logger: Logger
    let names: Names
    let pool: TransferPool
    let link: BrokerLink
    let hasher: PartHasher
    private(set) var phase = Phase.serving
    /// What the loop could not go on with.
    private(set) var fault: (any Error)?
    var runs: [AttemptID: JobRun] = [:]
    /// Nil before the first LIMITS.
    var terms: Terms?
    /// Transfers at once.
    private(set) var slots: Int
    /// Whether the broker is still to hear how many.
    var owesSlots = false
    let notes = JobNotes()
    private let unwatched = Unwatched()
    private let finished: Hashed
    private var hook: EventLoop.HookID?

    /// Connects to the broker; the rest happens while `loop` runs.
    ///
    /// - Throws: `CurlError` or `LibraryError` if a library cannot be loaded, `CaresError` for name servers that are no
    ///   addresses.
    init(_ options: WorkerOptions, loop: EventLoop, logger: Logger) throws {
        self.options = options
        self.loop = loop
        self.logger = logger
        slots = options.slots
        let unwatched = unwatched
        let makeWatch: DescriptorWatch.Maker = { DescriptorWatch(loop, ready: $0) { unwatched.fault = $0 } }
        pool = TransferPool(loop: loop, makeWatch: makeWatch)
        try pool.prepare()
        if !Multi.speaksHTTP2 {
            logger.warning("HTTP/2 is off: this libcurl does not show the ends of its streams")
        }
        try Decompressor.loadLibraries()
        names = try Names(servers: options.dnsServers, loop: loop, makeWatch: makeWatch)
        link = BrokerLink(options.workPath, loop: loop, logger: logger)
        let finished = Hashed()
        hasher = try PartHasher(loop) { finished.tasks.append($0) }
        self.finished = finished
        hook = loop.addHook { [weak self] in self?.settle() ?? .untilEvent }
        setSlots(options.slots)
    }

    /// Runs so many transfers at once from now on, as far as there are descriptors for them. Those over it go on.
    func setSlots(_ wish: Int) {
        slots = min(wish, options.mostSlots)
        if slots < wish { logger.warning("too few descriptors for all slots", metadata: ["slots": "\(slots)"]) }
        pool.makeRoom(slots: slots)
        link.mostWaiting = Limits.waitingTerminals(slots: slots)
    }

    // MARK: Leaving

    /// Takes no more jobs, finishes what runs, and stops the loop: within `Limits.drainTime`, or as soon as a parent,
    /// which keeps the time itself, says so once more.
    func drain() {
        guard phase == .serving else { return }
        logger.info("draining", metadata: ["running": "\(runs.count)"])
        phase = .draining
        if options.parentPid == nil { loop.setTimer(after: Limits.drainTime) { [weak self] in self?.stop() } }
    }

    /// Gives up what runs, says goodbye and stops the loop.
    func stop() {
        guard phase != .stopped else { return }
        phase = .stopped
        for run in runs.values {
            // The broker looks for it when it reads BYE.
            _ = run.leave()
            forget(run)
        }
        link.sendNow(.bye)
        link.close()
        if let hook { loop.removeHook(hook) }
        loop.stop()
    }

    /// Ends for good, since nothing that this process could do would make the broker take it.
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

    /// - Returns: whether messages of the broker, or bytes to decode, wait.
    private func work() throws -> Bool {
        var budget = Limits.messagesPerPass
        while budget > 0, let (message, body) = link.next() {
            handle(message, body)
            budget -= 1
        }
        for task in finished.tasks { hashed(task) }
        finished.tasks.removeAll()
        for answered in names.settle() { named(answered) }
        decodeWhatCame()
        for finished in pool.settle() { ended(finished) }
        hashWhatCame()
        limitRedirects()
        try sendProgress()
        if owesSlots, link.sendNow(.slots(slots)) { owesSlots = false }
        let isPending = link.settle { ready() }
        if phase == .draining, runs.isEmpty, link.waitingCount == 0 { stop() }
        return isPending || !notes.decodable.isEmpty
    }

    private func hashWhatCame() {
        guard !notes.hashable.isEmpty else { return }
        let noted = notes.hashable
        notes.hashable.removeAll(keepingCapacity: true)
        for run in noted where !run.isOver { hashOn(run) }
    }

    /// Sends what is due, and has the loop wake for what is not yet.
    private func sendProgress() throws {
        guard !notes.progressed.isEmpty else { return }
        let noted = notes.progressed
        notes.progressed.removeAll(keepingCapacity: true)
        for run in noted where !run.isOver {
            if run.progressDue <= loop.now {
                if link.sendNow(run.takeProgress()) { run.progressTaken() }
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
        ready.tellsHolds = true
        ready.speaksHTTP2 = Multi.speaksHTTP2
        ready.holds = Array((Array(runs.keys) + link.waiting).prefix(WireLimits.heldAttempts))
        return ready
    }
}
