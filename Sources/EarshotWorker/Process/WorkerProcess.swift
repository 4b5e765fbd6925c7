internal import Curl
internal import Decompression
internal import EarshotHTTP
internal import EarshotLoop
internal import Glibc
public import Logging

/// A worker process: signals, limits and privileges around a `Worker`.
public final class WorkerProcess {
    private let options: WorkerOptions
    private let logger: Logger

    public init(options: WorkerOptions, logger: Logger) {
        self.options = options
        self.logger = logger
    }

    /// Maximum number of concurrent transfers of a worker with this limit of descriptors.
    public static func slots(descriptors: Int) -> Int { Limits.slots(descriptors: descriptors) }

    /// Loads the libraries of ``run()``, which then takes some milliseconds less and reports failures.
    public func loadLibraries() {
        setKeyLog()
        _ = Multi.speaksHTTP2
        try? Decompressor.loadLibraries()
    }

    /// Runs until running jobs have finished after DRAIN, SIGTERM, SIGINT or SIGXCPU. A second signal ends it immediately.
    ///
    /// Changes the signals, limits and privileges of this process permanently. Must be called on the main thread before
    /// other threads start.
    ///
    /// - Returns: The exit code, 0.
    /// - Throws: Errors of the system. `WorkerUnfit` if a library cannot be loaded or rejects an option. `FolderError` if
    ///   the runtime folder does not belong to this user alone. `WorkerRefused` if the broker refuses the worker.
    public func run() throws -> Int32 {
        SignalSource.ignoreWriteSignals()
        ProcessName.set("earshot-worker")
        try ParentProcess.giveUpNewPrivileges()
        try ResourceLimits.forbidCoreDumps()
        ResourceLimits.keepFreeMemory(bytes: Limits.freeBytes)
        if let parent = options.parentPid, try !ParentProcess.bind(to: parent, signal: SIGKILL) {
            logger.notice("the parent process has ended")
            return 0
        }
        setKeyLog()
        var options = options
        let most = Self.slots(
            descriptors: try ResourceLimits.raiseDescriptorLimit(atLeast: Limits.leastDescriptors))
        options.proxies = ProxyRule { name in
            unsafe getenv(name).map { unsafe String(cString: $0) }
        }
        // A supervisor reports them for all its workers.
        if options.secret == nil {
            for entry in options.proxies.unknownExceptions {
                logger.warning("ignored an entry of no_proxy", metadata: ["entry": "\(Printable.sentence(entry))"])
            }
        }
        options.mostSlots = min(options.mostSlots, most)
        options.caFile = try options.caFile.map { try Self.held($0) }
        // At the soft limit of processor time the worker drains, and another one takes its place.
        let signals = try SignalSource([SIGTERM, SIGINT, SIGXCPU])
        let loop = try EventLoop()
        // An argument of this process may be wrong, so it is checked once at the start. Later a broker may create the
        // folder again.
        _ = try PrivateFolder.isOwn(around: options.workPath)
        let worker: Worker
        do {
            worker = try Worker(options, loop: loop, logger: logger)
        } catch {
            throw WorkerUnfit(error) ?? error
        }
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

    /// Returns a path to a copy of the file in memory, which the sandbox permits to open, even after the file was replaced. Returns
    /// the path itself of a file that cannot be read.
    private static func held(_ path: String) throws(SystemError) -> String {
        guard let file = try? SmallFile.read(path, most: Limits.caFileBytes) else { return path }
        let descriptor = try InheritedPipe.file(holding: file.bytes)
        let held = "/proc/self/fd/\(descriptor)"
        guard unsafe access(held, R_OK) != 0 else { return held }
        let error = SystemError("open \(held), which the option ca-file needs", number: errno)
        close(descriptor)
        throw error
    }

    /// Sets the variable that makes libcurl write the secrets of TLS connections to a file, before libcurl is loaded.
    /// An inherited variable is removed, because it would expose the transfers of all clients.
    private func setKeyLog() {
        let variable = "SSLKEYLOGFILE"
        if let file = options.tlsKeyLog { unsafe setenv(variable, file, 1) } else { unsafe unsetenv(variable) }
    }
}
