internal import EarshotHTTP
internal import EarshotLoop
internal import Glibc
public import Logging

/// A worker as a process of its own: the system's side of it, around a `Worker`.
public final class WorkerProcess {
    private let options: WorkerOptions
    private let logger: Logger

    public init(options: WorkerOptions, logger: Logger) {
        self.options = options
        self.logger = logger
    }

    /// Works until the broker says DRAIN, or SIGTERM or SIGINT comes, and what ran is finished; a second signal ends it
    /// at once. Changes this process for good: its signals, limits and privileges. Call it on the main thread before
    /// other threads start.
    ///
    /// - Returns: the exit code, 0.
    /// - Throws: what the system or c-ares refused; `FolderError` for a runtime folder that is not this user's alone;
    ///   `WorkerRefused` when the broker refuses it.
    public func run() throws -> Int32 {
        SignalSource.ignoreBrokenPipes()
        ProcessName.set("earshot-worker")
        try ParentProcess.giveUpNewPrivileges()
        try ResourceLimits.forbidCoreDumps()
        ResourceLimits.keepFreeMemory(bytes: Limits.freeBytes)
        if let parent = options.parentPid, try !ParentProcess.bind(to: parent, signal: SIGKILL) {
            logger.notice("the parent is gone")
            return 0
        }
        setKeyLog()
        var options = options
        let most = Limits.slots(descriptors: try ResourceLimits.raiseDescriptorLimit())
        options.proxies = ProxyRule { name in
            unsafe getenv(name).map { unsafe String(cString: $0) }
        }
        options.mostSlots = min(options.mostSlots, most)
        let signals = try SignalSource([SIGTERM, SIGINT])
        let loop = try EventLoop()
        // Later on it is a broker's to make again; now it is an argument of this process.
        _ = try PrivateFolder.isClosed(around: options.workPath)
        let worker = try Worker(options, loop: loop, logger: logger)
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

    /// Sets the variable with which libcurl writes the secrets of TLS connections to a file, before it is loaded. The
    /// one that a bus inherits is removed: a variable left in an environment must not expose what all clients fetch.
    private func setKeyLog() {
        let variable = "SSLKEYLOGFILE"
        if let file = options.tlsKeyLog { unsafe setenv(variable, file, 1) } else { unsafe unsetenv(variable) }
    }
}
