internal import EarshotLoop
internal import Glibc
public import Logging

/// A worker that runs a program for each job, as a process of its own: the system's side of it, around a
/// `ProgramWorker`.
public final class ProgramWorkerProcess {
    private let options: ProgramOptions
    private let logger: Logger
    private let onServing: () -> Void

    /// - Parameter onServing: called when a broker has taken it in, and again for each later broker.
    public init(options: ProgramOptions, logger: Logger, onServing: @escaping () -> Void) {
        self.options = options
        self.logger = logger
        self.onServing = onServing
    }

    /// Works until SIGTERM, SIGINT or SIGHUP comes and what ran is finished; a second signal ends it at once, with the
    /// programs that it runs. Changes this process's signals for good. Call it on the main thread before other threads
    /// start.
    ///
    /// - Returns: the exit code, 0.
    /// - Throws: what the system refused; `FolderError` for a runtime folder that is not this user's alone;
    ///   `ProgramWorkerRefused` when the broker refuses it.
    public func run() throws -> Int32 {
        SignalSource.ignoreBrokenPipes()
        ProcessName.set("earshot-work")
        let signals = try SignalSource([SIGTERM, SIGINT, SIGHUP])
        let loop = try EventLoop()
        // Later on it is a broker's to make again; now it is an argument of this process.
        _ = try PrivateFolder.isClosed(around: options.workPath)
        let worker = try ProgramWorker(options, loop: loop, logger: logger, onServing: onServing)
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
