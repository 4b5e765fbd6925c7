internal import EarshotLoop
internal import Glibc
public import Logging

/// The process of the puller: signals, limits and privileges around a `PullWorker`.
public final class PullerProcess {
    /// Maximum address space in bytes: several times the messages of all slots. It contains faults of libzmq.
    private static let memoryBytes = 4 << 30

    private let options: PullerOptions
    private let logger: Logger

    public init(options: PullerOptions, logger: Logger) {
        self.options = options
        self.logger = logger
    }

    /// Runs until running pulls have finished after SIGTERM or SIGINT. A second signal ends it immediately.
    ///
    /// Changes the signals, limits and privileges of this process permanently. Must be called on the main thread before
    /// other threads start.
    ///
    /// - Returns: The exit code, 0.
    /// - Throws: Errors of the system. `FolderError` if the runtime folder does not belong to this user alone.
    ///   `PullerRefused` if the broker refuses the puller. The error of `makeNetwork`.
    public func run() throws -> Int32 {
        SignalSource.ignoreWriteSignals()
        ProcessName.set("earshot-puller")
        try ParentProcess.giveUpNewPrivileges()
        try ResourceLimits.forbidCoreDumps()
        ResourceLimits.keepFreeMemory(bytes: Limits.freeBytes)
        if let parent = options.parentPid, try !ParentProcess.bind(to: parent, signal: SIGKILL) {
            logger.notice("the parent process has ended")
            return 0
        }
        try ResourceLimits.limitMemory(of: getpid(), bytes: Self.memoryBytes)
        try ResourceLimits.raiseDescriptorLimit()
        let signals = try SignalSource([SIGTERM, SIGINT])
        let loop = try EventLoop()
        _ = try PrivateFolder.isOwn(around: options.workPath)
        let worker = try PullWorker(options, try options.makeNetwork(loop), loop: loop, logger: logger)
        let registration = try loop.add(signals.descriptor, .readable) { _ in
            while signals.next() != nil {
                if worker.phase == .serving { worker.drain() } else { worker.stop() }
            }
        }
        defer { loop.remove(registration) }
        try loop.run()
        if let fault = worker.fault { throw fault }
        return 0
    }
}
