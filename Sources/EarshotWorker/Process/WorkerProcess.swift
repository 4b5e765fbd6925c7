internal import Cares
internal import Curl
internal import Decompression
internal import EarshotHTTP
internal import EarshotLoop
internal import Glibc
public import Logging

/// Worker processes: signals, limits and privileges around a `Worker`.
///
/// A process runs until its jobs have finished after a first signal. A second signal ends it immediately. It changes
/// its signals, limits and privileges permanently, so `run` must be called on the main thread before other threads
/// start.
public enum WorkerProcess {
    /// Maximum address space of a puller in bytes: several times the messages of all slots. It bounds the harm of a
    /// fault in libzmq.
    private static let pullerAddressSpaceBytes = 4 << 30

    /// Returns the maximum number of concurrent transfers of a worker with this limit of descriptors.
    public static func supportedSlots(descriptors: Int) -> Int { Limits.supportedSlots(descriptors: descriptors) }

    /// Loads the libraries of a worker of http and https, which then starts some milliseconds faster and reports
    /// failures.
    public static func loadLibraries(_ options: WorkerOptions) {
        setTLSKeyLogVariable(options.tlsKeyLog)
        _ = Multi.speaksHTTP2
        try? Decompressor.loadLibraries()
    }

    /// Runs a worker of http and https until DRAIN, SIGTERM, SIGINT or SIGXCPU.
    ///
    /// - Throws: Errors of the system. `WorkerUnfit` if a library cannot be loaded or rejects an option. `FolderError`
    ///   if the runtime folder does not belong to this user alone. `WorkerRefused` if the broker refuses the worker.
    public static func run(_ options: WorkerOptions, logger: Logger) throws {
        guard try restrictProcess("earshot-worker", parent: options.parentPid, logger) else { return }
        setTLSKeyLogVariable(options.tlsKeyLog)
        var options = options
        let descriptors = try ResourceLimits.raiseDescriptorLimit(atLeast: Limits.minimumDescriptors)
        options.proxies = ProxyRule { name in
            unsafe getenv(name).map { unsafe String(cString: $0) }
        }
        // A supervisor reports them for all its workers.
        if options.secret == nil {
            for entry in options.proxies.unknownExceptions {
                logger.warning(
                    "ignored an entry of no_proxy", metadata: ["entry": "\(Printable.sanitizedSentence(entry))"])
            }
        }
        options.maximumSlots = min(options.maximumSlots, supportedSlots(descriptors: descriptors))
        options.caFile = try options.caFile.map { try copyToMemoryFile($0) }
        // At the soft limit of processor time the worker drains, and another one takes its place.
        try runWorker(until: [SIGTERM, SIGINT, SIGXCPU], workPath: options.workPath) { loop in
            do {
                return try Transfers(options, loop: loop, logger: logger)
            } catch {
                throw WorkerUnfit(error) ?? error
            }
        }
    }

    /// Runs a worker that starts a program for each job, until SIGTERM, SIGINT or SIGHUP.
    ///
    /// - Parameter onServing: Called each time a broker has accepted the worker.
    /// - Throws: Errors of the system. `FolderError` if the runtime folder does not belong to this user alone.
    ///   `WorkerRefused` if the broker refuses the worker. The error of the tunnel.
    public static func run(_ options: ProgramOptions, logger: Logger, onServing: @escaping () -> Void) throws {
        SignalSource.ignoreWriteSignals()
        ProcessName.setThreadName("earshot-work")
        var options = options
        let descriptors = try ResourceLimits.raiseDescriptorLimit(
            atLeast: ProgramOptions.requiredDescriptors(slots: 1),
            upTo: ProgramOptions.requiredDescriptors(slots: options.slots))
        let supportedSlots = ProgramOptions.supportedSlots(descriptors: descriptors)
        if supportedSlots < options.slots {
            logger.warning(
                "the limit of open files permits fewer programs than --slots; raise it (ulimit -n)",
                metadata: ["slots": "\(supportedSlots)"])
            options.slots = supportedSlots
        }
        let workPath = options.makeTunnel == nil ? options.workPath : nil
        try runWorker(until: [SIGTERM, SIGINT, SIGHUP], workPath: workPath) { [options] loop in
            try Programs(options, loop: loop, logger: logger, onServing: onServing)
        }
    }

    /// Runs a puller until SIGTERM or SIGINT.
    ///
    /// - Throws: Errors of the system. `FolderError` if the runtime folder does not belong to this user alone.
    ///   `WorkerRefused` if the broker refuses the puller. The error of `makeNetwork`.
    public static func run(_ options: PullerOptions, logger: Logger) throws {
        guard try restrictProcess("earshot-puller", parent: options.parentPid, logger) else { return }
        try ResourceLimits.limitMemory(of: getpid(), bytes: pullerAddressSpaceBytes)
        try ResourceLimits.raiseDescriptorLimit()
        try runWorker(until: [SIGTERM, SIGINT], workPath: options.workPath) { loop in
            try Pulls(options, try options.makeNetwork(loop), loop: loop, logger: logger)
        }
    }

    /// Limits a child of the supervisor.
    ///
    /// - Returns: false if its parent has ended.
    private static func restrictProcess(_ name: StaticString, parent: Int32?, _ logger: Logger) throws -> Bool {
        SignalSource.ignoreWriteSignals()
        ProcessName.setThreadName(name)
        try ParentProcess.forbidNewPrivileges()
        try ResourceLimits.forbidCoreDumps()
        ResourceLimits.setRetainedFreeMemory(bytes: Limits.retainedFreeMemoryBytes)
        guard let parent, try !ParentProcess.setParentDeathSignal(parentPid: parent, signal: SIGKILL) else {
            return true
        }
        logger.notice("the parent process has ended")
        return false
    }

    /// Runs a worker.
    ///
    /// - Parameter workPath: Path of the broker's socket; nil for a broker on another machine.
    private static func runWorker<Kind: JobKind>(
        until numbers: [Int32], workPath: String?, makeKind: (EventLoop) throws -> Kind
    ) throws {
        let signals = try SignalSource(numbers)
        let loop = try EventLoop()
        // An argument of this process may be wrong, so it is checked once at the start. Later a broker may create the
        // folder again.
        if let workPath { _ = try PrivateFolder.existsOwned(aroundSocket: workPath) }
        let worker = Worker(try makeKind(loop))
        let registration = try loop.add(signals.descriptor, .readable) { _ in
            while signals.nextSignal() != nil {
                if worker.phase == .serving { worker.drain() } else { worker.stop() }
            }
        }
        defer { loop.remove(registration) }
        try loop.run()
        worker.jobKind.flushLastMessages()
        if let fault = worker.terminatingError { throw fault }
    }

    /// Returns a path to a copy of the file in memory, which the sandbox permits to open, even after the file was
    /// replaced. Returns the path itself of a file that cannot be read.
    private static func copyToMemoryFile(_ path: String) throws(SystemError) -> String {
        guard let file = try? SmallFile.read(path, maximumBytes: Limits.caFileBytes) else { return path }
        let descriptor = try InheritedPipe.makeUnnamedFile(containing: file.content)
        let held = "/proc/self/fd/\(descriptor)"
        guard unsafe access(held, R_OK) != 0 else { return held }
        let error = SystemError("open \(held), which the option ca-file needs", number: errno)
        close(descriptor)
        throw error
    }

    /// Sets the variable that makes libcurl write the secrets of TLS connections to a file, before libcurl is loaded.
    /// An inherited variable is removed, because it would expose the transfers of all clients.
    private static func setTLSKeyLogVariable(_ file: String?) {
        let variable = "SSLKEYLOGFILE"
        if let file { unsafe setenv(variable, file, 1) } else { unsafe unsetenv(variable) }
    }
}

/// The broker's refusal of a worker.
public struct WorkerRefused: Error, CustomStringConvertible {
    /// Reason and next step.
    public let description: String
}

/// Reason why no worker can start on this machine until an administrator changes something.
public struct WorkerUnfit: Error, CustomStringConvertible {
    public let description: String
    /// Whether an option is wrong; otherwise a library is.
    public let isConfigurationError: Bool

    /// Nil for an error that a later start may not meet.
    init?(_ error: any Error) {
        switch error {
        case let error as CaresError where error.code == .badServers:
            description = "c-ares rejects an address of --dns-server; give a numeric address, such as 9.9.9.9"
            isConfigurationError = true
        case let error as CurlError where error.code == .libraryNotLoaded:
            description = "\(error); install libcurl 7.88 or later (Debian: libcurl4)"
            isConfigurationError = false
        case let error as LibraryError:
            description = "\(error); install it (Debian: zlib1g, libbrotli1, libzstd1)"
            isConfigurationError = false
        default: return nil
        }
    }
}
