internal import EarshotBroker
internal import EarshotClient
internal import EarshotCore
internal import EarshotLoop
internal import EarshotWorker
internal import Glibc
internal import LibCrypto
internal import Logging

/// Restarts a broker and its workers when they die, and shuts them down in order. It sleeps between events.
///
/// ```
/// serving -> draining -> killing
/// ```
///
/// After a signal the run ends once all children are gone. The broker is signalled first, so that its running transfers
/// can finish. The workers are signalled after its exit.
final class Supervisor {
    /// Configuration of a supervisor.
    struct Plan {
        let runtimeFolder: RuntimeFolder
        /// Options that all brokers share, and those that all workers share.
        let brokerOptions: BrokerOptions
        let workerOptions: WorkerOptions
        let log: ServiceLog
        /// Secret that proves to a broker which workers belong to its supervisor.
        let secret: String
        /// Worker that waits for the first broker; nil for none.
        let preforked: PreforkedWorker?
        /// Sources of settings for a reload.
        let configuration: Configuration
        /// Whether a single process uses the bus, so that a shutdown needs no drain.
        let isPrivate: Bool
        /// Service manager to notify; nil for none.
        let service: ServiceManager?
        /// Socket for clients that the service manager opened; nil for none.
        let activation: ActivationSocket?
        /// File of the keys of clients on other machines.
        let keysPath: String
        /// Cluster of the bus; nil for a bus that is alone.
        let cluster: ClusterPlan?
    }

    enum Phase {
        case serving
        case draining
        case killing
    }

    /// Time after the drain time until the remaining children are killed.
    static let killDelayAfterDrain = Duration.seconds(3)
    /// Time until the children of a private bus are killed.
    static let privateKillDelay = Duration.seconds(2)

    /// Returns a secret for ``Plan/secret``.
    static func newSecret() -> String { Hex.encode(Secret.randomBytes(32)) }

    /// Called once, when programs can connect.
    var onReady: () -> Void = {}

    let plan: Plan
    let loop: EventLoop
    /// Present settings, including changes by clients. Each broker starts with them.
    var settings: Settings
    /// Channel to the running broker.
    var brokerChannel: LineChannel?
    /// Channels to the running gateways.
    var gatewayChannels: [ChildSlot.Role: LineChannel] = [:]
    /// Secret with which the gateways prove themselves to the present broker; nil before the first one.
    var gatewayProof: String?
    /// Principals of the valid keys as lines for the broker, those that the gateway is sending, and whether the former
    /// wait for room in the channel.
    var keyLines: [String] = []
    var unfinishedKeyLines: [String] = []
    var hasUnsentKeys = false
    /// Whether gateways wait for the proof until the broker can read their process IDs.
    var hasUnsentProof = false
    /// Channel to the running HTTP door, its secret, and its addresses for each new broker.
    var doorChannel: LineChannel?
    var doorProof: String?
    var doorAddresses: String?
    /// Paths of its Unix sockets.
    var doorSockets: [String] = []
    /// Settings sent to the broker without an acknowledgement. Changes that it reports meanwhile are older.
    var unansweredSettings = 0
    /// Whether settings wait for room in the channel.
    var hasUnsentSettings = false
    var childSlots: [ChildSlot]
    private(set) var phase = Phase.serving
    /// Whether crash loops wait for room in the channel.
    var hasUnsentFailures = false
    var generator = SystemRandomNumberGenerator()
    let service: ServiceManager?
    /// Programs for requests that end.
    let hooks: BusHooks
    /// State sent to the service manager: readiness, status line, pending reload.
    var isServiceReady = false
    var reportedState = ""
    var isReloading = false
    /// Number of workers connected to the broker, as reported by it.
    var acceptingWorkerCount = 0 {
        didSet {
            guard acceptingWorkerCount > 0, !hasHadWorkers else { return }
            hasHadWorkers = true
            reportReady()
        }
    }
    /// Whether a broker has served.
    private(set) var isReady = false
    /// Whether a worker has been connected.
    private var hasHadWorkers = false
    private var hasReportedReady = false
    /// Gateways that have accepted connections.
    private(set) var listeningGateways: Set<ChildSlot.Role> = []
    private let signals: SignalSource
    /// Forked worker that has no slot yet.
    private var preforked: PreforkedWorker?
    private var runError: (any Error)?

    /// - Parameters:
    ///   - hook: program for requests that end; nil for none.
    ///   - signals: SIGTERM, SIGINT and SIGHUP.
    init(_ plan: Plan, _ settings: Settings, hook: HookProgram?, _ signals: SignalSource) throws(SystemError) {
        self.plan = plan
        self.settings = settings
        self.signals = signals
        preforked = plan.preforked
        service = plan.service
        loop = try EventLoop()
        hooks = BusHooks(hook, loop, plan.log)
        childSlots = [ChildSlot(.broker)] + (0..<(settings[.workers] ?? 1)).map { _ in ChildSlot(.worker) }
        if servesRemoteClients { childSlots.append(ChildSlot(.gateway)) }
        if plan.cluster != nil { childSlots += [ChildSlot(.nodeGateway), ChildSlot(.puller)] }
    }

    /// Supervises until a signal arrives and all children are gone.
    func run() throws {
        let registration = try loop.add(signals.descriptor, .readable) { [unowned self] _ in
            while let signal = signals.nextSignal() {
                if signal == SIGHUP { readSettings() } else { handleSignals() }
            }
        }
        defer { loop.remove(registration) }
        FailureReport(plan.runtimeFolder).remove()
        // Of two forks, the worker takes longer to become ready, unless it has begun.
        for slot in plan.isPrivate && preforked == nil ? childSlots.reversed() : childSlots { try start(slot) }
        notifyService()
        try loop.run()
        FailureReport(plan.runtimeFolder).remove()
        if let runError { throw runError }
    }

    /// Drain time: how long running transfers may take after a signal.
    var drainTime: Duration { .milliseconds(settings[.drainSeconds] ?? 0) }

    // MARK: Children

    private func start(_ slot: ChildSlot) throws(SystemError) {
        switch slot.role {
        case .broker: try startBroker(slot)
        case .worker:
            if let preforked, slot.lastExit == nil {
                self.preforked = nil
                return try watch(preforked.process, in: slot)
            }
            var options = plan.workerOptions
            if let slots = settings[.slots] { options.slots = slots }
            try start(slot, .worker(options), inheriting: [])
        case .gateway: try startGateway(slot)
        case .nodeGateway: try startNodeGateway(slot)
        case .puller: try startPuller(slot)
        case .door: try startDoor(slot)
        }
    }

    private func startBroker(_ slot: ChildSlot) throws(SystemError) {
        let ends = try LineChannel.makePair()
        defer { close(ends.child) }
        let channel = try LineChannel(ends.own, loop: loop) { [unowned self] line in handleBrokerLine(line) }
        var options = plan.brokerOptions
        options.supervisorDescriptor = ends.child
        // For a fork. A new program receives them by the channel.
        options.settings = settings
        if let activation = plan.activation, activation.isInPlace { options.busDescriptor = activation.descriptor }
        options.gatewayPids = childSlots.compactMap { $0.role.isGateway ? $0.child?.pid : nil }
        if !plan.isPrivate { renewProof() }
        let inherited = [ends.child] + [options.busDescriptor].compactMap(\.self)
        let isFork: Bool
        if isReady {
            // Surviving workers may still run transfers of the previous broker.
            options.hasPredecessor = true
            options.workerPids = childSlots.compactMap { $0.role.isWorker ? $0.child?.pid : nil }
            isFork = try start(slot, .broker(options, cluster: plan.cluster?.path), inheriting: inherited)
        } else {
            let pipe = try InheritedPipe.make()
            defer { close(pipe.writer) }
            options.readyDescriptor = pipe.writer
            do throws(SystemError) {
                isFork = try start(
                    slot, .broker(options, cluster: plan.cluster?.path), inheriting: inherited + [pipe.writer])
                try awaitReady(pipe.reader)
            } catch {
                close(pipe.reader)
                throw error
            }
        }
        channel.onBacklogSent = { [unowned self] in
            if hasUnsentSettings { sendSettings() }
            if hasUnsentFailures { reportFailures() }
            updateGateways()
        }
        if !isFork { channel.send(settings.supervisorLines + [Settings.endOfSettingsLine]) }
        channel.send(failures.map(\.supervisorLine) + [ChildCrashLoop.endOfCrashLoopsLine])
        if let line = proofLine { channel.send([line]) }
        channel.send(doorLines)
        // The first broker of a bus without programs gets no further line.
        if hooks.isEnabled { channel.send([hooks.reportingCommand]) }
        self.brokerChannel = channel
        sendKeys()
        hasUnsentFailures = false
        unansweredSettings = 0
        hasUnsentSettings = false
    }

    /// - Returns: whether the child is a fork of this process.
    @discardableResult
    func start(_ slot: ChildSlot, _ run: ChildRun, inheriting inherited: [Int32]) throws(SystemError) -> Bool {
        var fork: ChildProcess?
        // A fork starts faster, which matters for a private bus. Other processes are new programs, so that their memory
        // layouts differ. So are replacements, because the cause of a crash may know the layout of a fork.
        if plan.isPrivate, slot.lastExit == nil {
            let (level, format) = (settings.logLevel, plan.log.format)
            fork = try ChildProcess.fork(inheriting: inherited) {
                ExitStatus.reportingErrors { try run.run(level, format) }.rawValue
            }
        }
        let child = if let fork { fork } else { try spawnProgram(run, inheriting: inherited) }
        try watch(child, in: slot)
        return fork != nil
    }

    /// Assigns a started child to its slot, and watches for its exit.
    private func watch(_ child: ChildProcess, in slot: ChildSlot) throws(SystemError) {
        slot.child = child
        slot.startTime = LoopTime.readClock()
        slot.registration = try loop.add(child.descriptor, .readable) { [unowned self] _ in childEnded(slot) }
        if slot.role == .worker {
            limitMemory(of: child)
            slot.oomKillsAtStart = MemoryPressure.outOfMemoryKillCount()
        }
        startHealthyRunTimer(slot)
    }

    /// Starts the program of a run as a new process.
    private func spawnProgram(_ run: ChildRun, inheriting inherited: [Int32]) throws(SystemError) -> ChildProcess {
        let secret = run.needsSecret ? try InheritedPipe.makeReader(containing: plan.secret) : nil
        defer { if let secret { close(secret) } }
        let arguments = run.arguments(in: plan.runtimeFolder, secret: secret, settings.logLevel, plan.log.format)
        return try ChildProcess.spawn(run.program, arguments, inheriting: [secret].compactMap(\.self) + inherited)
    }

    /// Watches the readiness pipe. An earlier exit of the broker also closes it.
    private func awaitReady(_ reader: Int32) throws(SystemError) {
        var registration: EventLoop.Registration?
        registration = try loop.add(reader, .readable) { [unowned self] _ in
            if let registration { loop.remove(registration) }
            var byte: UInt8 = 0
            if unsafe read(reader, &byte, 1) == 1, !isReady {
                isReady = true
                plan.preforked?.begin()
                addDoor()
                reportReady()
                notifyService()
            }
            close(reader)
        }
    }

    /// Whether each gateway that this bus has accepts connections, and the door, unless it has failed to start.
    var isGatewayReady: Bool {
        (listeningGateways.contains(.gateway) || !servesRemoteClients) && (isDoorOpen || isDoorFailing)
            && (listeningGateways.contains(.nodeGateway) || plan.cluster == nil)
    }

    /// Whether the door accepts connections, if this bus has one.
    var isDoorOpen: Bool { listeningGateways.contains(.door) || !hasDoor }
    private var isDoorFailing: Bool { childSlots.contains { $0.role == .door && $0.rule.consecutiveEarlyExits > 0 } }

    /// Records that a gateway, or the door, accepts connections.
    func gatewayListens(_ role: ChildSlot.Role) {
        listeningGateways.insert(role)
        reportReady()
        notifyService()
    }

    /// Reports readiness once. A shared bus needs a worker for it; a private bus does not, because its workers start
    /// while the owner continues.
    func reportReady() {
        guard isReady, !hasReportedReady, hasHadWorkers || plan.isPrivate, isGatewayReady else { return }
        hasReportedReady = true
        onReady()
    }

    private func childEnded(_ slot: ChildSlot) {
        guard let child = slot.child, let exit = child.reap() else { return }
        if let registration = slot.registration { loop.remove(registration) }
        for timer in [slot.killTimer, slot.healthyRunTimer].compactMap(\.self) { loop.cancelTimer(timer) }
        slot.healthyRunTimer = nil
        slot.lastExit = exit
        slot.child = nil
        slot.registration = nil
        if slot.role == .broker {
            // The next broker starts with all changes that this one has acknowledged.
            brokerChannel?.deliverPendingLines()
            brokerChannel = nil
            acceptingWorkerCount = 0
            notifyService()
        }
        gatewayChannels[slot.role] = nil
        if slot.role == .door { doorEnded() }
        if slot.role == .worker { reportEnd(of: slot, child.pid, exit) }
        switch phase {
        case .draining, .killing:
            if slot.role == .broker {
                stopWorkers()
                // Runs while killed workers exit. The end of the run removes files that they add meanwhile.
                if plan.isPrivate { PrivateFolder.remove(plan.runtimeFolder.path) }
            }
            endIfNoChildren()
        case .serving:
            guard !slot.isRetiring else {
                removeSlot(slot)
                return
            }
            if let status = permanentFault(exit, of: slot.role) {
                runError = CommandError(status)
                killChildren()
                return
            }
            let pause = childDied(
                slot, after: LoopTime.readClock().since(slot.startTime),
                "\(slot.role.nameWithArticle) (\(child.pid)) ended with \(exit)")
            loop.setTimer(after: pause) { [unowned self] in restart(slot) }
        }
    }

    /// Returns the status of an exit after which a restart is useless; the child has reported the cause. An unfit
    /// directory, library or option is permanent before the first success, and may be repaired later. Data of a newer
    /// version is always permanent.
    private func permanentFault(_ exit: ChildProcess.Exit, of role: ChildSlot.Role) -> ExitStatus? {
        let hasServed =
            switch role {
            case .broker: isReady
            case .worker: hasHadWorkers
            case .gateway, .nodeGateway, .door: listeningGateways.contains(role)
            // Both need the same library and the same file.
            case .puller: listeningGateways.contains(.nodeGateway)
            }
        switch exit {
        case .code(ExitStatus.configurationError.rawValue):
            return role == .broker || !hasServed ? .configurationError : nil
        case .code(ExitStatus.cannotServe.rawValue): return hasServed ? nil : .cannotServe
        default: return nil
        }
    }

    /// Starts the child of a slot. Retries after a delay if the start fails.
    func restart(_ slot: ChildSlot) {
        guard phase == .serving, !slot.isRetiring else { return }
        // A worker would end at once. Checked here, the cause is known for the status.
        slot.startFailureReason = slot.role == .worker ? plan.workerOptions.caFile.flatMap(TrustFile.pathFault) : nil
        if let reason = slot.startFailureReason { return retry(slot, after: reason) }
        do throws(SystemError) {
            try start(slot)
        } catch {
            retry(slot, after: "\(error)")
        }
    }

    private func retry(_ slot: ChildSlot, after cause: String) {
        let pause = childDied(slot, after: .zero, "cannot start \(slot.role.nameWithArticle): \(cause)")
        loop.setTimer(after: max(pause, RestartRule.minimumPause)) { [unowned self] in restart(slot) }
    }

    // MARK: The end

    private func handleSignals() {
        switch phase {
        case .serving where !plan.isPrivate:
            phase = .draining
            for slot in childSlots where slot.role == .broker { slot.child?.sendSignal(SIGTERM) }
            // Without a running broker there is nothing to drain.
            if !childSlots.contains(where: { $0.role == .broker && $0.child != nil }) {
                for slot in childSlots { slot.child?.sendSignal(SIGTERM) }
            }
            loop.setTimer(after: drainTime + Self.killDelayAfterDrain) { [unowned self] in killChildren() }
            announceStop(limit: drainTime + Self.killDelayAfterDrain)
            endIfNoChildren()
        case .serving:
            // No client waits. The first signal lets the broker store durable state, and the second one stops it at
            // once.
            phase = .killing
            for slot in childSlots {
                guard slot.role == .broker else {
                    slot.child?.sendSignal(SIGKILL)
                    continue
                }
                slot.child?.sendSignal(SIGTERM)
                slot.child?.sendSignal(SIGINT)
            }
            loop.setTimer(after: Self.privateKillDelay) { [unowned self] in killChildren() }
            endIfNoChildren()
        case .draining: killChildren()
        case .killing: break
        }
    }

    /// Stops the workers and the gateways at once, workers by two signals. Without a broker their results have no
    /// recipient.
    private func stopWorkers() {
        for slot in childSlots where slot.role != .broker {
            slot.child?.sendSignal(SIGTERM)
            if slot.role.isWorker { slot.child?.sendSignal(SIGINT) }
        }
    }

    private func killChildren() {
        phase = .killing
        for slot in childSlots { slot.child?.sendSignal(SIGKILL) }
        endIfNoChildren()
    }

    private func endIfNoChildren() {
        if childSlots.allSatisfy({ $0.child == nil }) { loop.stop() }
    }
}
