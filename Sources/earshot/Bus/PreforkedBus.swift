internal import EarshotClient
internal import EarshotLoop
internal import EarshotWorker
internal import Glibc
internal import LibCrypto
internal import Logging

/// Supervisor and worker of a private bus that are forked before the arguments of `get` are parsed, so that the worker
/// loads libcurl meanwhile.
///
/// Both wait without a visible effect for ``begin(maximumWorkers:cacheFolder:)``, and end if this process ends before.
struct PreforkedBus {
    private let supervisor: PrivateBroker.StartedSupervisor
    /// End of the channel from which the supervisor reads its task.
    private let channel: Int32

    /// Starts it for a command line that probably needs a private bus: a `get` for the user's bus, which does not run.
    static func start(for arguments: ArraySlice<String>) -> PreforkedBus? {
        guard arguments.first == "get",
            !arguments.contains(where: { $0.hasPrefix("--runtime") || $0.hasPrefix("--bus") || $0 == "--no-spawn" }),
            let location = try? BusOptions.defaults.busLocation(), (try? location.isServed()) == false
        else { return nil }
        return start()
    }

    /// Returns nil if this process cannot be forked.
    static func start() -> PreforkedBus? {
        guard let ends = try? LineChannel.makePair() else { return nil }
        defer { close(ends.child) }
        let owner = getpid()
        let supervisor = try? PrivateBroker.StartedSupervisor { (folder, readyDescriptor) throws(SystemError) in
            let copy = try ChildProcess.fork(inheriting: [readyDescriptor, ends.child]) {
                ExitStatus.reportingErrors {
                    let worker = PreforkedWorker.start(in: folder)
                    prepare()
                    guard let task = LineChannel.awaitLine(ends.child) else { return .success }
                    close(ends.child)
                    let words = task.split(separator: " ", maxSplits: 1)
                    let start = PrivateStart(
                        folder: folder, owner: owner, readyDescriptor: readyDescriptor, maximumWorkers: Int(words[0]),
                        cacheFolder: words.count > 1 ? String(words[1]) : nil)
                    return try ServeRun(start, worker).run(ServiceManager.takeFromEnvironment())
                }.rawValue
            }
            guard let copy else { throw SystemError("fork", number: ENOSYS) }
            return copy
        }
        guard let supervisor else {
            close(ends.own)
            return nil
        }
        return PreforkedBus(supervisor: supervisor, channel: ends.own)
    }

    /// Initializes parts of the program while there is time. The broker inherits them, as a later fork.
    private static func prepare() {
        // OpenSSL reads its configuration before the first digest.
        _ = SHA256.digest(of: [UInt8]().span)
        // The control groups that limit the memory are looked up once.
        _ = MemoryPressure.availableBytes()
        // The first run of much code. The supervisor reads the files again, and reports faults.
        _ = try? Configuration(
            file: ConfigurationOptions.pathFromEnvironment, optionChanges: [], pool: ConfigurationOptions.pool
        ).readSettings()
    }

    /// Lets the supervisor start the bus.
    func begin(maximumWorkers: Int, cacheFolder: String?) -> PrivateBroker.StartedSupervisor {
        LineChannel.send("\(maximumWorkers)" + (cacheFolder.map { " \($0)" } ?? ""), to: channel)
        close(channel)
        return supervisor
    }

    /// Ends it if no private bus is needed.
    func cancel() {
        close(channel)
        supervisor.terminate()
    }
}

/// Worker that is forked before the broker, and loads libcurl until the broker accepts connections.
struct PreforkedWorker {
    let process: ChildProcess
    /// Secret of the bus, which the worker knows.
    let secret: String
    /// End of the pipe on which the worker waits.
    private let startDescriptor: Int32

    /// - Returns: nil if this process cannot be forked.
    static func start(in folder: RuntimeFolder) -> PreforkedWorker? {
        guard let gate = try? InheritedPipe.make() else { return nil }
        defer { close(gate.reader) }
        let secret = Supervisor.newSecret()
        var options = WorkerOptions(workPath: folder.workSocketPath, slots: ConfigurationOptions.pool.slotsPerWorker)
        options.joinSupervisor(secret: secret)
        let process = try? ChildProcess.fork(inheriting: [gate.reader]) {
            WorkerProcess.loadLibraries(options)
            guard InheritedPipe.awaitByte(gate.reader) else { return ExitStatus.success.rawValue }
            return ExitStatus.reportingErrors { try ChildRun.worker(options).run(.error, .text) }.rawValue
        }
        guard let process else {
            close(gate.writer)
            return nil
        }
        return PreforkedWorker(process: process, secret: secret, startDescriptor: gate.writer)
    }

    /// Lets the worker connect to the broker. Called once.
    func begin() { InheritedPipe.reportReady(startDescriptor) }
}
