internal import EarshotCache
internal import EarshotCluster
internal import EarshotCore
internal import EarshotDisk
internal import EarshotDurable
internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotQueries
internal import EarshotWire
internal import Glibc
internal import LibCrypto
public import Logging

/// Shell of the broker's core: one thread, one loop, two ROUTER sockets.
///
/// A pass receives messages on both sockets, reports them to the core, lets it assign jobs, and carries out its
/// actions. The shell makes no decisions about requests.
public final class BrokerProcess {
    /// Maximum length of a client's frame in bytes: a body, and reserve so that a longer one can be rejected with a
    /// code.
    private static let clientFrameBytes = WireLimits.requestBodyBytes + WireLimits.headBytes
    /// Number of messages after which free memory is returned to the system, and the delay of that in milliseconds.
    private static let burstMessages = 10_000
    private static let quietMilliseconds = 1_000
    /// Free memory that stays with the allocator until then: output of one pass to some clients. Without it the output of each pass
    /// grows in new pages, a fifth of the broker's time.
    private static let freeBytes: Int32 = 2 << 20
    /// Time in which users' own workers return to a new broker: a second to connect, and the time that their programs have to
    /// exit.
    private static let ownWorkersMilliseconds = 3_000
    /// Time between two looks at the memory that is left. Clients can submit some MiB of requests meanwhile.
    private static let memoryMilliseconds = 10
    /// Maximum time that a supervised broker waits for the end of an earlier one.
    private static let lockMilliseconds: Int32 = 2_000
    /// Time for GOODBYE to leave the sockets.
    private static let farewellMilliseconds = 50

    let options: BrokerOptions
    let logger: Logger
    let loop: EventLoop
    let bus: StreamPort
    let work: StreamPort
    let gateways = GatewayProcesses()
    let spool: Spool
    /// Nil for a broker whose partial bodies end with it.
    let parts: BodyParts?
    var core: BrokerCore
    /// Inline bodies that the core still needs.
    var bodies: [BodyID: [UInt8]] = [:]
    /// Inline bodies that the core has spilled.
    let spilled: SpilledBodies
    /// Files that terminals name and that could not be written, until the core releases them.
    var unwrittenFiles: Set<String> = []
    /// Nil for a broker without a cache.
    let cache: BrokerCache?
    /// Nil for a broker that refuses durable requests.
    let durable: DurableStore?
    /// Whether the cache has answered immediately since the last assignment.
    var hasCacheAnswered = false
    /// Clients whose connection refused a terminal.
    var blocked: Set<ClientID> = []
    /// Clients whose connection refused a PROGRESS or a DATA.
    var late: Set<ClientID> = []
    /// Living processes of workers whose connection is lost.
    var disconnected: [WorkerID: ProcessDescriptor] = [:]
    /// Ends of workers that are not settled yet.
    var workerEnds = WorkerEnds()
    private var isReturningMemory = false
    private var nextMemoryCheck = LoopTime(nanoseconds: 0)
    /// Whether workers connected, introduced themselves or left in this pass.
    private var hasWorkerNews = false
    private var lastBody: UInt64 = 0
    /// Files of jobs, as far as the workers have them.
    var jobFiles: JobFiles
    /// Workers that the gateway relays.
    var remoteWorkers: Set<UInt64> = []
    /// Whether the log has a worker without a complete sandbox.
    var hasLoggedSandbox = false
    /// Whether the log says that the disk of the spool has too little free space.
    var hasLoggedFreeSpace = false
    /// Whether each attempt is logged, and each terminal.
    private(set) var logsAttempts = false
    private(set) var logsAccess = false
    /// Nil without a supervisor.
    private(set) var supervisor: SupervisorLink?
    /// Connection to the engine of the cluster; nil for a broker on its own.
    let engine: EngineClient?
    /// Attempts to connect to the other nodes.
    let probes: PeerProbes
    /// Latest logged reason for which this node is no member.
    var loggedFault: EngineFault?
    /// Warnings about the engine in the log that have not ended.
    var loggedWarnings: Set<EngineWarning> = []
    /// Lock of the runtime folder.
    var lock: LockFile
    /// Nil until the broker serves, and after it begins to drain.
    private(set) var places: BrokerPlaces?
    /// Nil if the broker does not own its process.
    private let signals: SignalSource?
    private var drainStarted: LoopTime?

    /// Turns this process into a broker: locks the runtime folder and binds both sockets.
    ///
    /// - Throws: `BrokerError` if another broker uses a folder or the folder is unusable. `FolderError` if others can
    ///   change a folder. Otherwise the error of the failed call.
    public convenience init(options: BrokerOptions, logger: Logger) throws {
        let signals = try Self.prepareProcess(options)
        try self.init(options: options, logger: logger, signals: signals)
    }

    /// Sets the name, limits, signals and umask of a broker's own process, and binds it to its parent's life.
    private static func prepareProcess(_ options: BrokerOptions) throws -> SignalSource {
        if let parent = options.parentPid, try !ParentProcess.bind(to: parent, signal: SIGKILL) {
            throw BrokerError("the parent process \(parent) is gone")
        }
        ProcessName.set("earshot-broker")
        try ParentProcess.giveUpNewPrivileges()
        try ResourceLimits.forbidCoreDumps()
        SignalSource.ignoreWriteSignals()
        ResourceLimits.keepFreeMemory(bytes: Self.freeBytes)
        let signals = try SignalSource([SIGTERM, SIGINT, SIGHUP])
        umask(0o077)
        return signals
    }

    /// Creates a broker in any process.
    ///
    /// - Parameter signals: Signals of the process; nil if the broker must not handle them.
    init(options: BrokerOptions, logger: Logger, signals: SignalSource?) throws {
        self.options = options
        self.logger = logger
        self.signals = signals
        let share = try BrokerDescriptors(
            limit: ResourceLimits.raiseDescriptorLimit(), workers: options.settings[.workers] ?? 1)
        try Self.makeRuntimeFolder(options)
        let hasPredecessor = unsafe access(options.runtimeFolder + "/broker.lock", F_OK) == 0
        // The kernel kills the broker of a dead supervisor. It may hold its locks for a moment.
        let patience = options.parentPid == nil ? 0 : Self.lockMilliseconds
        jobFiles = JobFiles(hasPredecessor: hasPredecessor)
        guard let lock = try LockFile.take(options.runtimeFolder + "/broker.lock", afterHolder: patience) else {
            throw BrokerError("a broker runs in \(options.runtimeFolder) already")
        }
        self.lock = lock
        let opening = try Self.openDurable(options, logger)
        durable = opening?.store
        let parts = Self.openParts(options, logger)
        self.parts = parts
        spool = try Spool(options.spoolFolder, keeping: opening?.files ?? []) { parts?.recover() }
        spilled = SpilledBodies(in: SpillFile(in: spool))
        loop = try EventLoop()
        bus = try StreamPort(
            try Self.path(options, "bus"), opened: options.busDescriptor, loop, frameBytes: Self.clientFrameBytes,
            bounds: .clients, connectionLimit: share.connections, gateways: gateways, logger: logger)
        // READY and JOB are short. An inline body is at most as long as the setting allows.
        let mostInlineBytes = SettingName.inlineBytes.range.upperBound
        let workerFrameBytes = max(mostInlineBytes, WireLimits.workerHeadBytes) + 1_024
        work = try StreamPort(
            try Self.path(options, "work"), loop, frameBytes: workerFrameBytes,
            bounds: .workers(frameBytes: workerFrameBytes), connectionLimit: share.workerConnections,
            gateways: gateways, logger: logger)
        cache = try Self.openCache(options, logger)
        var facilities = Facilities()
        facilities.isSupervised = options.supervisorDescriptor != nil
        facilities.isCaching = cache != nil
        facilities.isKeeping = durable != nil
        facilities.isKeepingParts = parts != nil
        facilities.hosts = .international
        facilities.publicSuffixes = .installed
        let start = Tick(nanoseconds: loop.now.nanoseconds)
        core = BrokerCore(
            workerLimits: .init(broker: .init(rawValue: Self.randomNumber()), spool: options.spoolFolder),
            secret: options.secret, facilities: facilities, answering: Queries.answer,
            cluster: options.cluster.map {
                Self.facility(of: $0, NodeRecord(runtimeFolder: options.runtimeFolder), start: start)
            }, seed: Self.randomNumber())
        if let cluster = options.cluster { engine = EngineClient(cluster.engine, on: loop) } else { engine = nil }
        probes = PeerProbes(on: loop)
        core.settingsRead(options.settings, now: start)
        applyLogSettings()
        describeSettings()
        try applyUsers()
        if let cache { try listen(to: cache) }
        if let parts { try listen(to: parts) }
        work.barredConnections = 1
        for pid in options.gatewayPids { gateways.insert(pid) }
        let now = Tick(nanoseconds: LoopTime.read().nanoseconds)
        if options.followsBroker || spool.hadUnfinishedFiles { awaitWorkers(now: now) }
        for pid in options.workerPids { (try? ProcessDescriptor(pid: pid)).map(bar) }
        if hasPredecessor { core.awaitOwnWorkers(until: now.advanced(byMilliseconds: Self.ownWorkersMilliseconds)) }
        if let opening { try restore(opening) }
        if let signals { _ = try loop.add(signals.descriptor, .readable) { [unowned self] _ in signalled() } }
        if let descriptor = options.supervisorDescriptor {
            supervisor = try SupervisorLink(
                descriptor, loop: loop, logger: logger, onSettings: { [unowned self] in take($0) },
                onFailures: { [unowned self] in core.childFailures = $0 },
                onWorkerEnd: { [unowned self] in workerReported($0) },
                onReports: { [unowned self] in core.reportEnds($0) },
                onProof: { [unowned self] in core.expectGateway($0) },
                onGateway: { [unowned self] in gateways.insert($0) }, onDoor: { [unowned self] in core.doorNews($0) },
                onKeys: { [unowned self] in core.keysRead($0, now: Tick(nanoseconds: loop.now.nanoseconds)) })
            gateways.readNews = { [unowned self] in supervisor?.takeLines() }
        }
        places = try makePlaces()
        checkFreeSpace()
    }

    /// Serves until a signal or an error ends it.
    public func run() throws -> Int32 {
        start()
        try loop.run()
        finish()
        return 0
    }

    /// Starts to serve. All work happens while the loop runs.
    func start() {
        engine?.start()
        _ = loop.addHook { [unowned self] in pass() }
        logger.info("serving", metadata: ["instance": "\(core.instance)", "runtime": "\(options.runtimeFolder)"])
        sayReady()
    }

    /// Completes all writes of the cache and the durable requests.
    func finish() {
        engine?.stop()
        cache?.finish()
        durable?.finish()
        parts?.finish()
    }

    // MARK: The pass

    private func pass() -> EventLoop.Rest {
        let now = Tick(nanoseconds: loop.now.nanoseconds)
        core.calendarSeconds = Int64(time(nil))
        checkMemory()
        work.take { event in
            workEvent(event, now: now)
            return 1
        }
        bus.take { event in busEvent(event, now: now) }
        for client in writableClients {
            blocked.remove(client)
            late.remove(client)
            core.clientWritable(client)
        }
        takeEngineEvents(now: now)
        core.timePassed(now: now)
        core.dispatch(now: now) { bus.hasUnread($0.rawValue) }
        bus.releaseHeld { core.isCarryingOut(by: ClientID(rawValue: $0)) }
        carryOut()
        // After the immediate answers of the cache, which make claims.
        callEngine(now: now)
        work.flush()
        bus.flush()
        disconnected.removeAll()
        if hasWorkerNews { supervisor?.tell(workersTakenIn: core.workersTakenIn) }
        hasWorkerNews = false
        endIfDrained()
        let end = core.endPass()
        if end.hasSpareRoom || bus.taken + work.taken >= Self.burstMessages { returnMemory() }
        // The flush may have made room without an event.
        if bus.hasPending || work.hasPending || !writableClients.isEmpty || engine?.isQuiet == false { return .none }
        let timer = end.nextTimer.map { LoopTime(nanoseconds: $0.nanoseconds) }
        let next = [timer, nextDrainCheck].compactMap(\.self).min()
        return next.map { .until($0) } ?? .untilEvent
    }

    /// Reports the memory that is left to the core, at most once in `memoryMilliseconds`.
    private func checkMemory() {
        guard loop.now >= nextMemoryCheck else { return }
        nextMemoryCheck = loop.now.advanced(by: .milliseconds(Self.memoryMilliseconds))
        core.memoryChecked(room: MemoryPressure.room())
        boundParts()
    }

    /// Clients that refused a message and accept messages again.
    private var writableClients: [ClientID] {
        blocked.isEmpty && late.isEmpty ? [] : blocked.union(late).filter { bus.hasRoom(for: $0.rawValue) }
    }

    /// - Returns: Number of messages that the event counts in its sender's turn.
    private func busEvent(_ event: PortEvent, now: Tick) -> Int {
        switch event {
        case .connected(let peer):
            core.clientConnected(
                ClientID(rawValue: peer),
                token: SessionToken(high: Self.randomNumber(), low: Self.randomNumber()),
                user: bus.otherUser(of: peer).flatMap { PrincipalName("uid:\($0)") },
                isGateway: bus.isGateway(peer))
        case .message(let peer, let head, let body):
            do throws(WireError) {
                let numbered = try NumberedMessage(head: head)
                let message = numbered.message
                let client = ClientID(rawValue: peer)
                if case .take(let sequence) = message { renameFile(toTake: sequence, by: client) }
                core.clientSaid(
                    message, number: numbered.number, body: requestBody(body, of: message), by: client, now: now)
                if core.isCarryingOut(by: client) { bus.hold(peer) }
                return Self.weight(of: message, headBytes: head.count)
            } catch {
                core.clientSaidNonsense(error, by: ClientID(rawValue: peer), now: now)
            }
        case .surplus(let peer, let head):
            let error = ClientMessage.numbered(
                WireError(.limit, "a message must have one or two frames: a head and a body"), by: head)
            core.clientSaidNonsense(error, by: ClientID(rawValue: peer), now: now)
        case .lost(let peer, _, _):
            core.clientLost(ClientID(rawValue: peer), now: now)
        }
        return 1
    }

    /// Number of messages that one counts as in its sender's turn, by its cost.
    private static func weight(of message: ClientMessage, headBytes: Int) -> Int {
        switch message {
        case .query(let query, _) where query.isOfTables: StreamPort.itemsPerTurn
        case .remove(.subtree): StreamPort.itemsPerTurn
        // It may create a handler, or free one.
        case .subscribe, .unsubscribe, .remove: 4
        // Each of its cookies takes some microseconds.
        case .cookies(_, _, let fields): 1 + fields.count { $0 == UInt8(ascii: "\n") } / 4
        // Fields are compared with those of other requests: as many in the time of a message.
        case .fetch: 1 + headBytes / 512
        default: 1
        }
    }

    private func workEvent(_ event: PortEvent, now: Tick) {
        switch event {
        case .connected(let peer):
            core.workerConnected(
                WorkerID(rawValue: peer), process: work.pid(of: peer), isGateway: work.isGateway(peer), now: now)
        case .message(let peer, let head, let body):
            do throws(WireError) {
                let message = try WorkerMessage(head: head, body: body)
                // Before the core retries the flight.
                if case .failed(_, FailureCode.spoolFailed.rawValue, _, _, _, _, _, _) = message { places?.look() }
                if case .failed(_, FailureCode.spoolFull.rawValue, _, _, _, _, _, _) = message {
                    checkFreeSpace()
                    // The setting spool-free may be 0.
                    if hasLoggedFreeSpace || spool.freeBytes ?? .max < PartFolder.leastBytes { parts?.makeRoom() }
                }
                if case .ready(let ready) = message {
                    guard isPermitted(ready, by: peer) else { return work.close(peer) }
                    hasWorkerNews = true
                    if ready.principal != nil {
                        remoteWorkers.insert(peer)
                    } else if ready.needsFiles {
                        jobFiles.joined(peer)
                    }
                }
                if case .sandbox(let parts) = message { sandboxed(peer, parts) }
                if case .bye = message { hasWorkerNews = true }
                let worker = WorkerID(rawValue: peer)
                if logsAttempts { log(message, by: worker) }
                let files = core.fileWork(before: message, by: worker)
                let (settled, content) = carryOut(files, before: message, body, by: worker)
                core.workerSaid(settled, body: content.map(hold), by: worker, now: now)
            } catch {
                core.workerSaidNonsense(error, by: WorkerID(rawValue: peer), now: now)
            }
        case .surplus(let peer, let head):
            var error = WireError(.limit, "a message must have one or two frames: a head and a body")
            error.attempt = WorkerMessage.attempt(in: head)
            core.workerSaidNonsense(error, by: WorkerID(rawValue: peer), now: now)
        case .lost(let peer, let pid, let process):
            hasWorkerNews = true
            jobFiles.left(peer)
            remoteWorkers.remove(peer)
            if process == nil {
                workerEnded(WorkerID(rawValue: peer), pid: pid)
            } else {
                disconnected[WorkerID(rawValue: peer)] = process
                core.workerDisconnected(WorkerID(rawValue: peer), isProcessAlive: true, now: now)
            }
        }
    }

    /// Stores the body of a FETCH for the core; nil for other messages and for an empty body.
    private func requestBody(_ body: [UInt8]?, of message: ClientMessage) -> RequestBody? {
        guard case .fetch = message, let body, !body.isEmpty else { return nil }
        var hash = SHA256()
        hash.update(body.span)
        let fingerprint = hash.finalize().bytes.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
        return RequestBody(id: hold(body), byteCount: body.count, fingerprint: fingerprint)
    }

    func hold(_ body: [UInt8]) -> BodyID {
        lastBody += 1
        let id = BodyID(rawValue: lastBody)
        bodies[id] = body
        return id
    }

    /// Sets one timer after a burst of messages, a large removal, or the removal of most records. It returns free memory
    /// to the system.
    private func returnMemory() {
        bus.taken = 0
        work.taken = 0
        guard !isReturningMemory else { return }
        isReturningMemory = true
        _ = loop.setTimer(after: .milliseconds(Self.quietMilliseconds)) { [unowned self] in
            isReturningMemory = false
            core.releaseRoom()
            ResourceLimits.returnFreeMemory()
        }
    }

    // MARK: Settings

    private func take(_ settings: Settings) {
        core.settingsRead(settings, now: Tick(nanoseconds: loop.now.nanoseconds))
        applyLogSettings()
        describeSettings()
        do {
            try applyUsers()
        } catch {
            logger.error("cannot apply the setting users; the present users stay", metadata: ["error": "\(error)"])
        }
        readEngine()
    }

    /// Applies the settings of the log. The handler of `earshot` has one level for all copies of the logger.
    func applyLogSettings() {
        var logger = logger
        if let index = core.settings[.logLevel], let level = Logger.Level(rawValue: SettingName.logLevel.text(index)) {
            logger.logLevel = level
        }
        logsAttempts = logger.logLevel <= .debug
        core.logAttempts(logsAttempts)
        logsAccess = core.settings[.accessLog] == 1
    }

    private func readSettings() {
        guard let read = options.readSettings else {
            logger.notice("ignored SIGHUP; the supervisor reads the settings, send it there")
            return
        }
        do {
            take(try read())
            logger.notice("the settings were read again")
        } catch {
            logger.error("cannot read the settings; they stay as they are", metadata: ["error": "\(error)"])
        }
    }

    // MARK: The end

    private var drainTime: Duration { .milliseconds(core.settings[.drainSeconds] ?? 0) }

    private func signalled() {
        while let signal = signals?.next() {
            if signal == SIGHUP { readSettings() } else { drain("signal \(signal)") }
        }
    }

    /// Finishes running work within the drain time and stops the loop. A second call stops it immediately.
    ///
    /// - Parameter cause: Cause for the log.
    func drain(_ cause: String) {
        // From here on its folders may be removed.
        places = nil
        guard drainStarted == nil else {
            logger.notice("stopping without further delay", metadata: ["cause": "\(cause)"])
            loop.stop()
            return
        }
        logger.notice("finishing running work", metadata: ["cause": "\(cause)", "limit": "\(drainTime)"])
        drainStarted = loop.now
        core.drain()
    }

    /// Time of the next check whether a draining broker may end.
    private var nextDrainCheck: LoopTime? {
        guard let drainStarted else { return nil }
        let farewell = drainStarted.advanced(by: .milliseconds(Self.farewellMilliseconds))
        return loop.now < farewell ? farewell : drainStarted.advanced(by: drainTime)
    }

    private func endIfDrained() {
        guard let drainStarted else { return }
        let spent = loop.now.since(drainStarted)
        guard spent >= .milliseconds(Self.farewellMilliseconds) else { return }
        if core.isDrained || spent >= drainTime { loop.stop() }
    }

    // MARK: Set-up

    private func sayReady() {
        guard let descriptor = options.readyDescriptor else { return }
        let line = Array("ready\n".utf8)
        _ = unsafe line.withUnsafeBytes { unsafe write(descriptor, $0.baseAddress, $0.count) }
        close(descriptor)
    }

    static func randomNumber() -> UInt64 {
        Secret.randomBytes(8).reduce(0) { $0 << 8 | UInt64($1) }
    }
}
