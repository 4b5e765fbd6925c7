internal import EarshotClient
internal import EarshotLoop
internal import Glibc

/// The process that serves a bus: the supervisor, or a broker without one.
struct BusProcess {
    private let process: ProcessDescriptor

    /// Finds the process that serves the bus in `folder`.
    ///
    /// - Throws: `CommandError` if none does.
    init(in folder: RuntimeFolder) throws {
        guard try BusLocation.local(folder).isServed() else { throw Self.noBrokerError(folder) }
        guard !folder.isOwnedByOtherUser else {
            throw CommandError(
                .generalError,
                "the bus in \(folder.path) belongs to another user; run the command as that user (runuser -u)")
        }
        // A supervisor would restart a broker that ends, so its own lock decides.
        let isSupervised = try LockFile.isHeld(folder.supervisorLock)
        guard let process = try LockFile.holder(ofLock: isSupervised ? folder.supervisorLock : folder.brokerLock) else {
            throw CommandError(
                .generalError,
                "cannot find the process that serves \(folder.path) in /proc; send SIGTERM to its `earshot serve`")
        }
        self.process = process
    }

    private static func noBrokerError(_ folder: RuntimeFolder) -> CommandError {
        CommandError(.noBroker, "no broker runs in \(folder.path)")
    }

    /// Stops the bus, and waits for its end.
    ///
    /// - Parameters:
    ///   - now: whether running transfers are aborted.
    ///   - limit: maximum time to wait; nil for none.
    /// - Throws: `CommandError` after a signal, or at the limit. The bus stops all the same.
    func stop(now: Bool, limit: Duration?) throws {
        let signals = try SignalSource([SIGINT, SIGTERM, SIGHUP], skipsIgnoredSignals: true)
        let loop = try EventLoop()
        var commandError: CommandError?
        var hasEnded = false
        let ending = try loop.add(process.descriptor, .readable) { _ in hasEnded = true }
        let signalled = try loop.add(signals.descriptor, .readable) { _ in
            while signals.nextSignal() != nil { commandError = CommandError(.interrupted) }
        }
        defer {
            loop.remove(ending)
            loop.remove(signalled)
        }
        if let limit {
            loop.setTimer(after: limit) {
                commandError = CommandError(
                    .timedOut, "the bus is still stopping; `earshot stop --now` aborts its transfers")
            }
        }
        // A process receives two signals of one kind as one if it is slow, so the second one is of another kind.
        for signal in now ? [SIGTERM, SIGINT] : [SIGTERM] where !process.sendSignal(signal) && !process.hasEnded {
            throw CommandError(.generalError, "cannot signal process \(process.pid): it belongs to another user")
        }
        try loop.run { hasEnded || commandError != nil }
        if !hasEnded, let commandError { throw commandError }
    }
}
