internal import EarshotBroker
internal import EarshotClient
internal import EarshotCore
internal import EarshotLoop
internal import EarshotWorker
internal import Glibc
internal import LibCrypto
internal import Logging

/// One run of `earshot serve`: its arguments as values.
struct ServeRun {
    let folder: RuntimeFolder
    /// What each broker and each worker is told, but for what is of one of them alone.
    let broker: BrokerOptions
    let worker: WorkerOptions
    let configuration: Configuration
    let logLevel: Logger.Level
    /// Told `ready` when programs can connect; nil for nobody.
    let readyDescriptor: Int32?
    /// The process for which alone the bus is; nil for everybody.
    let owner: Int32?

    /// Supervises until a signal ends it.
    ///
    /// - Parameter manager: who started it and wants to hear of it; nil for nobody.
    func run(_ manager: ServiceManager?) throws -> ExitStatus {
        // A copy of a process begins with the default of each signal.
        SignalSource.ignoreBrokenPipes()
        // First: an owner that dies sends one, which is to end all in order.
        let signals = try SignalSource([SIGTERM, SIGINT, SIGHUP])
        // What Swift's runtime tells of a child that crashed: where, but nothing of its memory, which is
        // confidential.
        unsafe setenv("SWIFT_BACKTRACE", "registers=none,images=none", 0)
        if let owner, try !ParentProcess.bind(to: owner, signal: SIGTERM) { return .done }
        let initial = try configuration.read()
        try folder.prepare()
        guard let lock = try LockFile.take(folder.supervisorLock) else {
            throw Complaint(.cannotServe, "another supervisor serves in \(folder.path)")
        }
        let secret = Hex.encode(Secret.randomBytes(32))
        var broker = broker
        broker.secret = secret
        broker.parentPid = getpid()
        var worker = worker
        worker.secret = secret
        worker.parentPid = getpid()
        let plan = Supervisor.Plan(
            folder: folder, broker: broker, worker: worker, logLevel: logLevel, secret: secret,
            configuration: configuration, isPrivate: owner != nil, service: owner == nil ? manager : nil)
        let supervisor = try Supervisor(plan, initial, signals)
        let count = initial[.workers] ?? 0
        supervisor.onReady = {
            if owner == nil { Complaint.say("ready, bus \(folder.busEndpoint), \(count) workers") }
            if let readyDescriptor { InheritedPipe.sayReady(readyDescriptor) }
        }
        try supervisor.run()
        if owner != nil { Folder.remove(folder.path) }
        withExtendedLifetime(lock) {}
        return .done
    }
}

extension ServeRun {
    /// The supervisor of a private bus: what `earshot` makes of `start.arguments`, without reading them.
    init(_ start: PrivateStart) {
        folder = start.folder
        var broker = BrokerOptions(runtimeFolder: start.folder.path, spoolFolder: start.folder.ownSpool)
        broker.cacheFolder = start.cacheFolder
        self.broker = broker
        let pool = ConfigurationOptions.pool
        worker = WorkerOptions(workPath: start.folder.workPath, slots: pool.slots)
        configuration = Configuration(
            file: ConfigurationOptions.usualFile, flags: [], pool: pool, mostWorkers: start.mostWorkers)
        logLevel = .error
        readyDescriptor = start.readyDescriptor
        owner = start.owner
    }
}
