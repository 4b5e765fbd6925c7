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
    /// Free memory that stays with the allocator until a burst has ended: output of one pass to some clients. Without it the output
    /// of each pass grows in new pages, a fifth of the broker's time.
    private static let freeBytes: Int32 = 2 << 20
    /// Time in which users' own workers return to a new broker: a second to connect, and the time that their programs have to
    /// exit.
    private static let ownWorkersMilliseconds = 3_000
    /// Maximum time that a supervised broker waits for the end of an earlier one.
    private static let lockMilliseconds: Int32 = 2_000
    /// Time for GOODBYE to leave the sockets.
    private static let farewellMilliseconds = 50

    private enum Phase {
        case opening
        case serving(PathWatch)
        /// From here on its folders may be removed.
        case draining(since: LoopTime)
    }

    let options: BrokerOptions
    let logger: Logger
    let loop: EventLoop
    let bus: StreamPort
    let work: StreamPort
    let spool: SpoolFiles
    /// Nil for a broker whose partial bodies end with it.
    let parts: BodyParts?
    var core: BrokerCore
    let bodies: Bodies
    /// Nil for a broker without a cache.
    let cache: BrokerCache?
    /// Nil for a broker that refuses durable requests.
    let durable: DurableStore?
    /// Clients whose connection refused a message, and whether it refused a terminal.
    var refusing: [ClientID: Bool] = [:]
    var workers = WorkerProcesses()
    /// Files of jobs, as far as the workers have them.
    var jobFiles: JobFiles
    /// Whether each terminal is logged.
    private(set) var logsAccess = false
    /// Nil without a supervisor.
    private(set) var supervisor: SupervisorLink?
    /// Nil for a broker on its own.
    private let cluster: ClusterLink?
    private let memory: MemoryUpkeep
    /// Lock of the runtime folder.
    var lock: LockFile
    private var phase = Phase.opening

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
        try ParentProcess.forbidNewPrivileges()
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
        spool = try SpoolFiles(options.spoolFolder, keeping: opening?.files ?? []) { parts?.recover() }
        bodies = Bodies(spillingTo: SpillFile(in: spool))
        loop = try EventLoop()
        memory = MemoryUpkeep(on: loop)
        let gateways = GatewayProcesses()
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
        var features = ShellFeatures()
        features.isSupervised = options.supervisorDescriptor != nil
        features.isCaching = cache != nil
        features.isKeeping = durable != nil
        features.isKeepingParts = parts != nil
        features.hosts = .international
        features.publicSuffixes = .installed
        let start = Tick(nanoseconds: loop.now.nanoseconds)
        let record = NodeRecord(runtimeFolder: options.runtimeFolder)
        core = BrokerCore(
            workerLimits: .init(broker: .init(rawValue: Self.randomNumber()), spool: options.spoolFolder),
            secret: options.secret, features: features, answering: Queries.answer,
            cluster: options.cluster?.services(record, broker: Self.randomNumber(), start: start),
            seed: Self.randomNumber())
        if let membership = options.cluster {
            cluster = ClusterLink(membership, record, on: loop, logger: logger)
        } else {
            cluster = nil
        }
        core.settingsRead(options.settings, now: start)
        settingsChanged()
        try applyUsers()
        if let cache { try listen(to: cache) }
        if let parts { try listen(to: parts) }
        work.admission.barredConnections = 1
        for pid in options.gatewayPids { gateways.insert(pid) }
        let now = Tick(nanoseconds: LoopTime.read().nanoseconds)
        if options.followsBroker || spool.hadUnfinishedFiles { awaitWorkers(now: now) }
        for pid in options.workerPids { (try? ProcessDescriptor(pid: pid)).map(barFromSockets) }
        if hasPredecessor { core.awaitOwnWorkers(until: now.advanced(byMilliseconds: Self.ownWorkersMilliseconds)) }
        if let opening { try restore(opening) }
        if let signals { _ = try loop.add(signals.descriptor, .readable) { [unowned self] _ in signalled(signals) } }
        if let descriptor = options.supervisorDescriptor {
            supervisor = try SupervisorLink(
                descriptor, loop: loop, logger: logger, onSettings: { [unowned self] in take($0) },
                onFailures: { [unowned self] in core.childFailures = $0 },
                onWorkerEnd: { [unowned self] in workerReported($0) },
                onReports: { [unowned self] in core.reportEnds($0) },
                onProof: { [unowned self] in core.expectGateway($0) },
                onGateway: { gateways.insert($0) }, onDoor: { [unowned self] in core.doorReported($0) },
                onKeys: { [unowned self] in core.keysRead($0, now: Tick(nanoseconds: loop.now.nanoseconds)) })
            gateways.readSupervisor = { [unowned self] in supervisor?.takeLines() }
        }
        phase = .serving(try makePlaces())
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
        cluster?.start()
        _ = loop.addHook { [unowned self] in pass() }
        logger.info("serving", metadata: ["instance": "\(core.instance)", "runtime": "\(options.runtimeFolder)"])
        reportReady()
    }

    /// Completes all writes of the cache and the durable requests.
    func finish() {
        cluster?.stop()
        cache?.finish()
        durable?.finish()
        parts?.finish()
    }

    // MARK: The pass

    private func pass() -> EventLoop.Rest {
        let now = Tick(nanoseconds: loop.now.nanoseconds)
        core.calendarSeconds = Int64(time(nil))
        if memory.mayLook() {
            core.memoryChecked(room: MemoryPressure.availableBytes())
            boundParts()
        }
        work.take { event in
            workEvent(event, now: now)
            return 1
        }
        bus.take { event in busEvent(event, now: now) }
        for client in writableClients {
            refusing[client] = nil
            core.clientWritable(client)
        }
        cluster?.takeEvents(into: &core, now: now)
        core.timePassed(now: now)
        core.dispatch(now: now) { bus.hasUnread($0.rawValue) }
        bus.releaseHeld { core.isCarryingOut(by: ClientID(rawValue: $0)) }
        carryOut()
        // After the immediate answers of the cache, which make claims.
        cluster?.call(for: &core, now: now)
        work.flush()
        bus.flush()
        workers.disconnected.removeAll()
        endIfDrained()
        let end = core.endPass()
        supervisor?.report(acceptingWorkers: end.acceptingWorkers)
        if end.canShrink || bus.takenMessages + work.takenMessages >= MemoryUpkeep.burstMessages { returnMemory() }
        // The flush may have made room without an event.
        if bus.hasPending || work.hasPending || !writableClients.isEmpty || cluster?.isQuiet == false { return .none }
        let timer = end.nextTimer.map { LoopTime(nanoseconds: $0.nanoseconds) }
        let next = [timer, nextDrainCheck].compactMap(\.self).min()
        return next.map { .until($0) } ?? .untilEvent
    }

    /// Clients that refused a message and accept messages again.
    private var writableClients: [ClientID] {
        refusing.isEmpty ? [] : refusing.keys.filter { bus.hasRoom(for: $0.rawValue) }
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
                let effort = core.effort
                core.received(
                    message, number: numbered.number, body: requestBody(body, of: message), from: client, now: now)
                if core.isCarryingOut(by: client) { bus.pauseReading(peer) }
                return max(message.weight(headBytes: head.count), (core.effort - effort) / 2)
            } catch {
                core.receivedMalformed(error, from: ClientID(rawValue: peer), now: now)
            }
        case .surplus(let peer, let head):
            let error = ClientMessage.numbered(
                WireError(.limit, "a message must have one or two frames: a head and a body"), by: head)
            core.receivedMalformed(error, from: ClientID(rawValue: peer), now: now)
        case .lost(let peer, _, _):
            core.clientLost(ClientID(rawValue: peer), now: now)
        }
        return 1
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
                if case .failed(_, FailureCode.spoolFailed.rawValue, _, _, _, _, _, _) = message {
                    watchedPaths?.look()
                }
                if case .failed(_, FailureCode.spoolFull.rawValue, _, _, _, _, _, _) = message {
                    checkFreeSpace()
                    // The setting spool-free may be 0.
                    if spool.isShort || spool.freeBytes ?? .max < PartFolder.leastBytes { parts?.makeRoom() }
                }
                if case .ready(let ready) = message {
                    guard isPermitted(ready, by: peer) else { return work.close(peer) }
                    if ready.needsFiles, ready.principal == nil { jobFiles.workerJoined(peer) }
                }
                if case .sandbox(let parts) = message { sandboxed(peer, parts) }
                let worker = WorkerID(rawValue: peer)
                if logger.logLevel <= .debug { log(message, by: worker) }
                let files = core.fileWork(before: message, by: worker)
                let (resolved, content) = carryOut(files, before: message, body, by: worker)
                core.received(resolved, body: content.map(bodies.insert), from: worker, now: now)
            } catch {
                core.receivedMalformed(error, from: WorkerID(rawValue: peer), now: now)
            }
        case .surplus(let peer, let head):
            var error = WireError(.limit, "a message must have one or two frames: a head and a body")
            error.attempt = WorkerMessage.attempt(in: head)
            core.receivedMalformed(error, from: WorkerID(rawValue: peer), now: now)
        case .lost(let peer, let pid, let process):
            jobFiles.workerLeft(peer)
            if process == nil {
                workerEnded(WorkerID(rawValue: peer), pid: pid)
            } else {
                workers.disconnected[WorkerID(rawValue: peer)] = process
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
        return RequestBody(id: bodies.insert(body), byteCount: body.count, fingerprint: fingerprint)
    }

    private func returnMemory() {
        bus.takenMessages = 0
        work.takenMessages = 0
        memory.returnLater { [unowned self] in core.releaseRoom() }
    }

    // MARK: Settings

    private func take(_ settings: Settings) {
        core.settingsRead(settings, now: Tick(nanoseconds: loop.now.nanoseconds))
        settingsChanged()
        do {
            try applyUsers()
        } catch {
            logger.error("cannot apply the setting users; the present users stay", metadata: ["error": "\(error)"])
        }
        if let read = options.readEngine { cluster?.readLogins(read) }
    }

    /// Applies the settings of the log, and describes the settings to other nodes. The handler of `earshot` has one level for all
    /// copies of the logger.
    func settingsChanged() {
        var logger = logger
        if let index = core.settings[.logLevel], let level = Logger.Level(rawValue: SettingName.logLevel.text(index)) {
            logger.logLevel = level
        }
        core.logAttempts(logger.logLevel <= .debug)
        logsAccess = core.settings[.accessLog] == 1
        cluster?.describeSettings(of: &core)
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

    /// Nil before the broker serves, and once it drains.
    var watchedPaths: PathWatch? {
        guard case .serving(let watchedPaths) = phase else { return nil }
        return watchedPaths
    }

    private var drainTime: Duration { .milliseconds(core.settings[.drainSeconds] ?? 0) }

    private func signalled(_ signals: SignalSource) {
        while let signal = signals.next() {
            if signal == SIGHUP { readSettings() } else { drain("signal \(signal)") }
        }
    }

    /// Finishes running work within the drain time and stops the loop. A second call stops it immediately.
    ///
    /// - Parameter cause: Cause for the log.
    func drain(_ cause: String) {
        if case .draining = phase {
            logger.notice("stopping without further delay", metadata: ["cause": "\(cause)"])
            loop.stop()
            return
        }
        logger.notice("finishing running work", metadata: ["cause": "\(cause)", "limit": "\(drainTime)"])
        phase = .draining(since: loop.now)
        core.drain()
    }

    /// Time of the next check whether a draining broker may end.
    private var nextDrainCheck: LoopTime? {
        guard case .draining(let drainStarted) = phase else { return nil }
        let farewell = drainStarted.advanced(by: .milliseconds(Self.farewellMilliseconds))
        return loop.now < farewell ? farewell : drainStarted.advanced(by: drainTime)
    }

    private func endIfDrained() {
        guard case .draining(let drainStarted) = phase else { return }
        let spent = loop.now.since(drainStarted)
        guard spent >= .milliseconds(Self.farewellMilliseconds) else { return }
        if core.isDrained || spent >= drainTime { loop.stop() }
    }

    // MARK: Set-up

    private func reportReady() {
        guard let descriptor = options.readyDescriptor else { return }
        let line = Array("ready\n".utf8)
        _ = unsafe line.withUnsafeBytes { unsafe write(descriptor, $0.baseAddress, $0.count) }
        close(descriptor)
    }

    static func randomNumber() -> UInt64 {
        Secret.randomBytes(8).reduce(0) { $0 << 8 | UInt64($1) }
    }
}
