internal import EarshotBroker
internal import EarshotClient
internal import EarshotCore
internal import EarshotDisk
internal import EarshotLoop
internal import EarshotWire
internal import EarshotWorker
internal import Glibc
internal import Logging

/// Run of `earshot serve`, with its options: starts a `Supervisor`, and waits for its end.
struct ServeRun {
    let folder: RuntimeFolder
    /// Options that all brokers share, and those that all workers share.
    let broker: BrokerOptions
    let worker: WorkerOptions
    let configuration: Configuration
    let logFormat: LogFormat
    /// Descriptor for the readiness message; nil for none.
    let readyDescriptor: Int32?
    /// File of the keys of clients on other machines.
    let keysPath: String
    /// File of the cluster; nil for a bus that is alone.
    let clusterPath: String?
    /// Process ID of the only user of the bus; nil for a shared bus.
    let ownerPID: Int32?
    /// Worker that has been forked already; nil for none.
    var preforked: PreforkedWorker?

    /// Supervises until a signal ends the run.
    ///
    /// - Parameter manager: service manager to notify; nil for none.
    func run(_ manager: ServiceManager?) throws -> ExitStatus {
        // A fork inherits no signal handlers.
        SignalSource.ignoreWriteSignals()
        // Comes first: the death of the owner sends a signal, which must lead to a shutdown.
        let signals = try SignalSource([SIGTERM, SIGINT, SIGHUP])
        // Limits the crash report of Swift's runtime to the backtrace, because memory contents are confidential.
        unsafe setenv("SWIFT_BACKTRACE", "registers=none,images=none", 0)
        if let ownerPID, try !ParentProcess.setParentDeathSignal(parentPid: ownerPID, signal: SIGTERM) {
            return .success
        }
        let activation: ActivationSocket?
        do throws(SystemError) {
            activation = try ownerPID == nil ? ActivationSocket.takeFromEnvironment(at: folder.path + "/bus") : nil
        } catch {
            throw CommandError(.configurationError, "cannot \(error); correct ListenStream= of the socket unit")
        }
        let initial = try configuration.readSettings()
        let descriptors = try BrokerDescriptors(
            processLimit: ResourceLimits.hardDescriptorLimit(), workerCount: initial[.workers] ?? 1)
        // Programs for requests that end inherit the limit, so a usual one stays.
        try ResourceLimits.raiseDescriptorLimit(upTo: Self.warningDescriptorLimit)
        let cluster = try clusterPath.map { path in try ClusterPlan(path) }
        // The owner of a private bus receives its results itself.
        let hook = ownerPID == nil ? try configuration.hookProgram() : nil
        // The broker opens the folder to others, or closes it, by the setting `users`.
        try folder.prepare(isShared: ownerPID == nil)
        guard let lock = try LockFile.acquire(folder.supervisorLock) else {
            throw CommandError(
                .cannotServe, "another supervisor runs in \(folder.path); stop it, or give another --runtime")
        }
        let secret = preforked?.secret ?? Supervisor.newSecret()
        var broker = broker
        broker.workerSecret = secret
        broker.parentPid = getpid()
        var spoolLock: LockFile?
        if ownerPID != nil {
            broker.spoolFolder = folder.makePrivateSpool(besideParts: broker.partsFolder)
            // While it is held, no other bus takes the bodies of this one or removes its spool.
            if broker.spoolFolder != folder.innerSpoolPath {
                spoolLock = try? LockFile.acquire(String(broker.spoolFolder.dropLast("spool".count)) + "lock")
            }
        }
        // The owner of a private bus ends it, and would wait for the end of the watch.
        broker.watchesForRemovedPaths = ownerPID == nil
        var worker = worker
        worker.joinSupervisor(secret: secret)
        let plan = Supervisor.Plan(
            runtimeFolder: folder, brokerOptions: broker, workerOptions: worker, log: ServiceLog("serve", logFormat),
            secret: secret, preforked: preforked, configuration: configuration, isPrivate: ownerPID != nil,
            service: ownerPID == nil ? manager : nil, activation: activation, keysPath: keysPath, cluster: cluster)
        // The command that owns a private bus reports them.
        if ownerPID == nil { for fault in ProxyNotice().noProxyWarnings { plan.log.write(.warning, fault) } }
        let supervisor = try Supervisor(plan, initial, hook: hook, signals)
        let count = initial[.workers] ?? 0
        if ownerPID == nil {
            if let sentence = Configuration.unknownVariables { plan.log.write(.warning, sentence) }
            warnAboutDescriptorLimit(descriptors, initial, plan.log)
        }
        supervisor.onReady = { [unowned supervisor] in
            let door = supervisor.isDoorOpen ? "" : ", without the HTTP door, which cannot be started"
            if ownerPID == nil { plan.log.write(.notice, "ready, bus \(folder.busEndpoint), \(count) workers" + door) }
            if let readyDescriptor { InheritedPipe.reportReady(readyDescriptor) }
        }
        try supervisor.run()
        if ownerPID != nil {
            // Its workers, which had the bodies, have ended.
            if let parts = broker.partsFolder {
                _ = try? PartFolder(parts).recoverBodies(fromSpool: broker.spoolFolder)
            }
            folder.removePrivate(besideParts: broker.partsFolder)
        }
        withExtendedLifetime((lock, spoolLock)) {}
        return .success
    }
}

extension ServeRun {
    /// Limit of descriptors up to which its consequences are worth a warning: the default of Linux is 1,024.
    private static let warningDescriptorLimit = 512

    /// Warns once if the limit of descriptors bounds the number of connections or of transfers.
    private func warnAboutDescriptorLimit(_ descriptors: BrokerDescriptors, _ settings: Settings, _ log: ServiceLog) {
        let slots = settings[.slots] ?? 0
        let supportedSlots = WorkerProcess.supportedSlots(descriptors: descriptors.processLimit)
        guard descriptors.processLimit <= Self.warningDescriptorLimit || supportedSlots < slots else { return }
        let connections = descriptors.maximumClientConnections
        let transfers = min(supportedSlots, slots) * (settings[.workers] ?? 0)
        log.write(
            .warning,
            "the limit of open files, \(descriptors.processLimit), permits \(connections) connections of programs and "
                + "\(transfers) transfers; raise it (ulimit -n, LimitNOFILE=)",
            [("connections", "\(connections)"), ("transfers", "\(transfers)")])
    }

    /// Creates the supervisor of a private bus. Equivalent to parsing `start.arguments`.
    init(_ start: PrivateStart, _ preforked: PreforkedWorker?) {
        self.preforked = preforked
        folder = start.folder
        var broker = BrokerOptions(runtimeFolder: start.folder.path, spoolFolder: start.folder.innerSpoolPath)
        broker.cacheFolder = start.cacheFolder
        broker.partsFolder = RuntimeFolder.partsPath(besideCache: start.cacheFolder)
        self.broker = broker
        let pool = ConfigurationOptions.pool
        worker = WorkerOptions(workPath: start.folder.workSocketPath, slots: pool.slotsPerWorker)
        configuration = Configuration(
            file: ConfigurationOptions.pathFromEnvironment,
            optionChanges: [
                .setValue(.logLevel, LogSeverity.error.index), .setList(.allowedUsers, []),
                .setList(.clientListenAddresses, []),
            ],
            pool: pool, maximumWorkers: start.maximumWorkers)
        keysPath = ""
        clusterPath = nil
        logFormat = .text
        readyDescriptor = start.readyDescriptor
        ownerPID = start.ownerProcessID
    }
}

extension WorkerOptions {
    /// Makes a worker a child of this process, which is its supervisor.
    mutating func joinSupervisor(secret: String) {
        self.secret = secret
        parentPid = getpid()
        followsLogLevel = true
    }
}
