internal import EarshotLoop
internal import Glibc
public import Logging

/// Process of a worker that runs a program for each job: signals around a `ProgramWorker`.
public final class ProgramWorkerProcess {
    private let options: ProgramOptions
    private let logger: Logger
    private let onServing: () -> Void

    /// - Parameter onServing: Called each time a broker has accepted the worker.
    public init(options: ProgramOptions, logger: Logger, onServing: @escaping () -> Void) {
        self.options = options
        self.logger = logger
        self.onServing = onServing
    }

    /// Runs until running jobs have finished after SIGTERM, SIGINT or SIGHUP. A second signal ends it immediately and
    /// kills its programs.
    ///
    /// Changes the signals of this process permanently. Must be called on the main thread before other threads start.
    ///
    /// - Returns: The exit code, 0.
    /// - Throws: Errors of the system. `FolderError` if the runtime folder does not belong to this user alone.
    ///   `ProgramWorkerRefused` if the broker refuses the worker. The error of the tunnel.
    public func run() throws -> Int32 {
        SignalSource.ignoreWriteSignals()
        ProcessName.set("earshot-work")
        var options = options
        let most = ProgramOptions.slots(
            descriptors: try ResourceLimits.raiseDescriptorLimit(
                atLeast: ProgramOptions.descriptors(slots: 1), upTo: ProgramOptions.descriptors(slots: options.slots)))
        if most < options.slots {
            logger.warning(
                "the limit of open files permits fewer programs than --slots; raise it (ulimit -n)",
                metadata: ["slots": "\(most)"])
            options.slots = most
        }
        let signals = try SignalSource([SIGTERM, SIGINT, SIGHUP])
        let loop = try EventLoop()
        // An argument of this process may be wrong, so it is checked once at the start. Later a broker may create the
        // folder again.
        if options.makeTunnel == nil { _ = try PrivateFolder.isOwn(around: options.workPath) }
        var served: ProgramWorker?
        var obstacle: (any Error)?
        let tunnel = options.makeTunnel?(loop) { error in
            obstacle = error
            served?.fail(error)
        }
        let worker = try ProgramWorker(options, tunnel, loop: loop, logger: logger, onServing: onServing)
        served = worker
        if let obstacle { throw obstacle }
        let registration = try loop.add(signals.descriptor, .readable) { _ in
            while signals.next() != nil {
                if worker.phase == .serving { worker.drain() } else { worker.stop() }
            }
        }
        defer { loop.remove(registration) }
        try loop.run()
        tunnel?.close()
        if let fault = worker.fault { throw fault }
        return 0
    }
}
