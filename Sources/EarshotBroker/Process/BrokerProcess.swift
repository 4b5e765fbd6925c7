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
    /// Free memory that stays with the allocator until a burst has ended: output of one pass to some clients. Without
    /// it the output of each pass grows in new pages, a fifth of the broker's time.
    private static let retainedFreeMemoryBytes: Int32 = 2 << 20
    /// Time in which users' own workers return to a new broker: a second to connect, and the time that their programs
    /// have to exit.
    private static let userWorkerReconnectMilliseconds = 3_000
    /// Maximum time that a supervised broker waits for the end of an earlier one.
    private static let lockTimeoutMilliseconds: Int32 = 2_000
    /// Time for GOODBYE to leave the sockets.
    private static let goodbyeMilliseconds = 50

    private enum Phase {
        case opening
        case serving(PathWatch)
        /// From here on its folders may be removed.
        case draining(since: LoopTime)
    }

    let options: BrokerOptions
    let logger: Logger
    let loop: EventLoop
    let clientPort: StreamPort
    let workerPort: StreamPort
    let spool: SpoolFiles
    /// Nil for a broker whose partial bodies end with it.
    let parts: BodyParts?
    var core: BrokerCore
    let bodies: Bodies
    /// Nil for a broker without a cache.
    let cache: BrokerCache?
    /// Nil for a broker that refuses durable requests.
    let durableStore: DurableStore?
    /// Clients whose connection refused a message, and whether it refused a terminal.
    var refusingClients: [ClientID: Bool] = [:]
    var workerProcesses = WorkerProcesses()
    /// Files of jobs, as far as the workers have them.
    var jobFiles: JobFiles
    /// Whether each terminal is logged.
    private(set) var isAccessLogEnabled = false
    /// Nil without a supervisor.
    private(set) var supervisor: SupervisorLink?
    /// Nil for a broker on its own.
    private let cluster: ClusterLink?
    private let memoryUpkeep: MemoryUpkeep
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
        if let parent = options.parentPid, try !ParentProcess.setParentDeathSignal(parentPid: parent, signal: SIGKILL) {
            throw BrokerError("the parent process \(parent) is gone")
        }
        ProcessName.setThreadName("earshot-broker")
        try ParentProcess.forbidNewPrivileges()
        try ResourceLimits.forbidCoreDumps()
        SignalSource.ignoreWriteSignals()
        ResourceLimits.setRetainedFreeMemory(bytes: Self.retainedFreeMemoryBytes)
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
            processLimit: ResourceLimits.raiseDescriptorLimit(), workerCount: options.settings[.workers] ?? 1)
        try Self.makeRuntimeFolder(options)
        let hasPredecessor = unsafe access(options.runtimeFolder + "/broker.lock", F_OK) == 0
        // The kernel kills the broker of a dead supervisor. It may hold its locks for a moment.
        let maximumWait = options.parentPid == nil ? 0 : Self.lockTimeoutMilliseconds
        jobFiles = JobFiles(hasPredecessor: hasPredecessor)
        guard
            let lock = try LockFile.acquire(
                options.runtimeFolder + "/broker.lock", maximumWaitMilliseconds: maximumWait)
        else {
            throw BrokerError("a broker runs in \(options.runtimeFolder) already")
        }
        self.lock = lock
        let opening = try Self.openDurableStore(options: options, logger: logger)
        durableStore = opening?.store
        let parts = Self.openPartFolder(options: options, logger: logger)
        self.parts = parts
        spool = try SpoolFiles(options.spoolFolder, keeping: opening?.resultFiles ?? []) {
            parts?.recoverPartsFromSpools()
        }
        bodies = Bodies(spillingTo: SpillFile(in: spool))
        loop = try EventLoop()
        memoryUpkeep = MemoryUpkeep(on: loop)
        let gateways = GatewayProcesses()
        clientPort = try StreamPort(
            try Self.socketPath(options, "bus"), inheritedSocket: options.busDescriptor, loop,
            frameBytes: Self.clientFrameBytes, bounds: .forClients,
            connectionLimit: share.maximumClientConnections, gateways: gateways, logger: logger)
        // READY and JOB are short. An inline body is at most as long as the setting allows.
        let maximumInlineBytes = SettingName.inlineBytes.storedValueRange.upperBound
        let workerFrameBytes = max(maximumInlineBytes, WireLimits.workerHeadBytes) + 1_024
        workerPort = try StreamPort(
            try Self.socketPath(options, "work"), loop, frameBytes: workerFrameBytes,
            bounds: .forWorkers(frameBytes: workerFrameBytes), connectionLimit: share.maximumWorkerConnections,
            gateways: gateways, logger: logger)
        cache = try Self.openCache(options, logger)
        var features = ShellFeatures()
        features.isSupervised = options.supervisorDescriptor != nil
        features.isCaching = cache != nil
        features.isStoringDurableRequests = durableStore != nil
        features.isKeepingParts = parts != nil
        features.hostNameEncoder = .usingLibidn2
        features.publicSuffixes = .usingLibpsl
        let start = MonotonicTime(nanoseconds: loop.now.nanoseconds)
        let record = NodeRecord(runtimeFolder: options.runtimeFolder)
        core = BrokerCore(
            workerLimits: .init(broker: .init(rawValue: Self.randomNumber()), spoolPath: options.spoolFolder),
            secret: options.workerSecret, features: features, answering: Queries.answer,
            cluster: options.cluster?.clusterServices(record, brokerID: Self.randomNumber(), start: start),
            seed: Self.randomNumber())
        if let membership = options.cluster {
            cluster = ClusterLink(membership, record, on: loop, logger: logger)
        } else {
            cluster = nil
        }
        core.replaceSettings(options.settings, now: start)
        settingsChanged()
        try applyPermittedUsers()
        if let cache { try watchCacheAnswers(cache) }
        if let parts { try watchPartTotals(parts) }
        workerPort.admission.barredConnectionLimit = 1
        for pid in options.gatewayPids { gateways.insert(pid) }
        let now = MonotonicTime(nanoseconds: LoopTime.readClock().nanoseconds)
        if options.hasPredecessor || spool.hadUnfinishedFiles { awaitWorkers(now: now) }
        for pid in options.workerPids { (try? ProcessDescriptor(pid: pid)).map(barFromSockets) }
        if hasPredecessor {
            core.awaitOwnWorkers(until: now.advanced(byMilliseconds: Self.userWorkerReconnectMilliseconds))
        }
        if let opening { try beginRestoring(opening) }
        if let signals {
            _ = try loop.add(signals.descriptor, .readable) { [unowned self] _ in handleSignals(from: signals) }
        }
        if let descriptor = options.supervisorDescriptor {
            supervisor = try SupervisorLink(
                descriptor, loop: loop, logger: logger, onNewSettings: { [unowned self] in applySettings($0) },
                onChildFailures: { [unowned self] in core.childFailures = $0 },
                onWorkerEnd: { [unowned self] in workerEndReported($0) },
                onEndReportingChange: { [unowned self] in core.setReportsRequestEnds($0) },
                onGatewayProof: { [unowned self] in core.expectGateway($0) },
                onGatewayStart: { gateways.insert($0) }, onDoorEvent: { [unowned self] in core.doorEventReceived($0) },
                onPrincipalKeys: { [unowned self] in
                    core.gatewayKeysChanged($0, now: MonotonicTime(nanoseconds: loop.now.nanoseconds))
                })
            gateways.readSupervisorLines = { [unowned self] in supervisor?.processPendingLines() }
        }
        phase = .serving(try makePathWatch())
        logLowFreeSpace()
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
        _ = loop.addHook { [unowned self] in runPass() }
        logger.info("serving", metadata: ["instance": "\(core.brokerInstance)", "runtime": "\(options.runtimeFolder)"])
        reportReady()
    }

    /// Completes all writes of the cache and the durable requests.
    func finish() {
        cluster?.stop()
        cache?.finish()
        durableStore?.finish()
        parts?.finish()
    }

    // MARK: The pass

    private func runPass() -> EventLoop.SleepLimit {
        let now = MonotonicTime(nanoseconds: loop.now.nanoseconds)
        core.unixTimeSeconds = Int64(time(nil))
        if memoryUpkeep.isCheckDue() {
            core.availableMemoryChanged(bytes: MemoryPressure.availableBytes())
            applyPartBounds()
        }
        workerPort.processInput { event in
            handleWorkerEvent(event, now: now)
            return 1
        }
        clientPort.processInput { event in handleClientEvent(event, now: now) }
        for client in writableClients {
            refusingClients[client] = nil
            core.clientSocketWritable(client)
        }
        cluster?.deliverEvents(to: &core, now: now)
        core.timePassed(now: now)
        core.dispatch(now: now) { clientPort.mayHaveUnreadInput($0.rawValue) }
        clientPort.resumeReading { core.isExecutingMessage(of: ClientID(rawValue: $0)) }
        carryOutActions()
        // After the immediate answers of the cache, which make claims.
        cluster?.sendEngineCalls(of: &core, now: now)
        workerPort.flush()
        clientPort.flush()
        workerProcesses.disconnectedProcesses.removeAll()
        stopIfDrained()
        let end = core.endPass()
        supervisor?.reportWorkerCount(acceptingWorkers: end.acceptingWorkerCount)
        if end.canReleaseMemory
            || clientPort.processedMessageCount + workerPort.processedMessageCount >= MemoryUpkeep.burstMessages
        {
            returnMemory()
        }
        // The flush may have made room without an event.
        if clientPort.hasPendingInput || workerPort.hasPendingInput || !writableClients.isEmpty
            || cluster?.hasNoPendingEvents == false
        {
            return .noSleep
        }
        let timer = end.nextTimer.map { LoopTime(nanoseconds: $0.nanoseconds) }
        let next = [timer, nextDrainCheck].compactMap(\.self).min()
        return next.map { .until($0) } ?? .untilEvent
    }

    /// Clients that refused a message and accept messages again.
    private var writableClients: [ClientID] {
        refusingClients.isEmpty ? [] : refusingClients.keys.filter { clientPort.hasRoom(for: $0.rawValue) }
    }

    /// - Returns: Number of messages that the event counts in its sender's turn.
    private func handleClientEvent(_ event: PortEvent, now: MonotonicTime) -> Int {
        switch event {
        case .connected(let peer):
            core.clientConnected(
                ClientID(rawValue: peer),
                token: SessionToken(highBits: Self.randomNumber(), lowBits: Self.randomNumber()),
                user: clientPort.userUnlessAdministrator(of: peer).flatMap { PrincipalName("uid:\($0)") },
                isGateway: clientPort.isGateway(peer))
        case .message(let peer, let head, let body):
            do throws(WireError) {
                let numbered = try NumberedMessage(head: head)
                let message = numbered.message
                let client = ClientID(rawValue: peer)
                if case .takeFile(let sequence) = message { renameFileBeforeTake(sequence, by: client) }
                let effort = core.pendingWorkCount
                core.clientMessageReceived(
                    message, number: numbered.number, body: storeRequestBody(body, of: message), from: client, now: now)
                if core.isExecutingMessage(of: client) { clientPort.pauseReading(peer) }
                return max(message.turnWeight(headBytes: head.count), (core.pendingWorkCount - effort) / 2)
            } catch {
                core.malformedClientMessageReceived(error, from: ClientID(rawValue: peer), now: now)
            }
        case .excessFrames(let peer, let head):
            let error = ClientMessage.addingNumber(
                to: WireError(.limitExceeded, "a message must have one or two frames: a head and a body"), from: head)
            core.malformedClientMessageReceived(error, from: ClientID(rawValue: peer), now: now)
        case .lost(let peer, _, _):
            core.clientLost(ClientID(rawValue: peer), now: now)
        }
        return 1
    }

    private func handleWorkerEvent(_ event: PortEvent, now: MonotonicTime) {
        switch event {
        case .connected(let peer):
            core.workerConnected(
                WorkerID(rawValue: peer), process: workerPort.pid(of: peer), isGateway: workerPort.isGateway(peer),
                now: now)
        case .message(let peer, let head, let body):
            do throws(WireError) {
                let message = try WorkerMessage(head: head, body: body)
                // Before the core retries the flight.
                if case .failed(_, FailureCode.spoolFailed.rawValue, _, _, _, _, _, _) = message {
                    watchedPaths?.checkPaths()
                }
                if case .failed(_, FailureCode.spoolFull.rawValue, _, _, _, _, _, _) = message {
                    logLowFreeSpace()
                    // The setting spool-free may be 0.
                    if spool.isShortOfFreeSpace || spool.freeBytes ?? .max < PartFolder.minimumKeptBytes {
                        parts?.removeAllParts()
                    }
                }
                if case .ready(let ready) = message {
                    guard isPermitted(ready, by: peer) else { return workerPort.close(peer) }
                    if ready.needsFileContents, ready.principal == nil { jobFiles.workerJoined(peer) }
                }
                if case .sandbox(let parts) = message { sandboxReported(peer, parts) }
                let worker = WorkerID(rawValue: peer)
                if logger.logLevel <= .debug { logAttemptEnd(message, by: worker) }
                let files = core.fileWork(before: message, by: worker)
                let (resolved, content) = carryOutFileWork(files, before: message, body, by: worker)
                core.workerMessageReceived(resolved, body: content.map(bodies.insert), from: worker, now: now)
            } catch {
                core.malformedWorkerMessageReceived(error, from: WorkerID(rawValue: peer), now: now)
            }
        case .excessFrames(let peer, let head):
            var error = WireError(.limitExceeded, "a message must have one or two frames: a head and a body")
            error.attempt = WorkerMessage.attempt(in: head)
            core.malformedWorkerMessageReceived(error, from: WorkerID(rawValue: peer), now: now)
        case .lost(let peer, let pid, let process):
            jobFiles.workerLeft(peer)
            if process == nil {
                workerProcessEnded(WorkerID(rawValue: peer), pid: pid)
            } else {
                workerProcesses.disconnectedProcesses[WorkerID(rawValue: peer)] = process
                core.workerDisconnected(WorkerID(rawValue: peer), isProcessAlive: true, now: now)
            }
        }
    }

    /// Stores the body of a FETCH for the core; nil for other messages and for an empty body.
    private func storeRequestBody(_ body: [UInt8]?, of message: ClientMessage) -> RequestBody? {
        guard case .fetch = message, let body, !body.isEmpty else { return nil }
        var hash = SHA256()
        hash.update(body.span)
        let fingerprint = hash.finalize().bytes.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
        return RequestBody(bodyID: bodies.insert(body), byteCount: body.count, digestPrefix: fingerprint)
    }

    private func returnMemory() {
        clientPort.processedMessageCount = 0
        workerPort.processedMessageCount = 0
        memoryUpkeep.scheduleReturn { [unowned self] in core.releaseSpareCapacity() }
    }

    // MARK: Settings

    private func applySettings(_ settings: Settings) {
        core.replaceSettings(settings, now: MonotonicTime(nanoseconds: loop.now.nanoseconds))
        settingsChanged()
        do {
            try applyPermittedUsers()
        } catch {
            logger.error("cannot apply the setting users; the present users stay", metadata: ["error": "\(error)"])
        }
        if let read = options.readEngineOptions { cluster?.readLogins(read) }
    }

    /// Applies the settings of the log, and describes the settings to other nodes. The handler of `earshot` has one
    /// level for all copies of the logger.
    func settingsChanged() {
        var logger = logger
        if let index = core.settings[.logLevel],
            let level = Logger.Level(rawValue: SettingName.logLevel.valueText(index))
        {
            logger.logLevel = level
        }
        core.setLogsAttempts(logger.logLevel <= .debug)
        isAccessLogEnabled = core.settings[.accessLog] == 1
        cluster?.publishSettingsDigests(of: &core)
    }

    private func readSettings() {
        guard let read = options.readSettings else {
            logger.notice("ignored SIGHUP; the supervisor reads the settings, send it there")
            return
        }
        do {
            applySettings(try read())
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

    private var maximumDrainTime: Duration { .milliseconds(core.settings[.drainSeconds] ?? 0) }

    private func handleSignals(from signals: SignalSource) {
        while let signal = signals.nextSignal() {
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
        logger.notice("finishing running work", metadata: ["cause": "\(cause)", "limit": "\(maximumDrainTime)"])
        phase = .draining(since: loop.now)
        core.beginDraining()
    }

    /// Time of the next check whether a draining broker may end.
    private var nextDrainCheck: LoopTime? {
        guard case .draining(let drainStarted) = phase else { return nil }
        let farewell = drainStarted.advanced(by: .milliseconds(Self.goodbyeMilliseconds))
        return loop.now < farewell ? farewell : drainStarted.advanced(by: maximumDrainTime)
    }

    private func stopIfDrained() {
        guard case .draining(let drainStarted) = phase else { return }
        let spent = loop.now.since(drainStarted)
        guard spent >= .milliseconds(Self.goodbyeMilliseconds) else { return }
        if core.isDrained || spent >= maximumDrainTime { loop.stop() }
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
