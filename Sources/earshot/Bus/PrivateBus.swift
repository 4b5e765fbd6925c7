internal import EarshotClient
internal import EarshotLoop
internal import Glibc

/// Private bus for one run of `earshot get`, with which it ends.
final class PrivateBus {
    /// Maximum time until it is ready.
    private static let readyTimeout = Duration.seconds(20)

    private let broker: PrivateBroker
    private let state: State

    /// State shared with events that arrive before the bus exists.
    private final class State {
        var isReady = false
        var hasEnded = false
        var onDeath: () -> Void = {}
    }

    /// Starts the bus and waits until it is ready.
    ///
    /// - Parameters:
    ///   - preforked: its supervisor and a worker; nil to fork them now.
    ///   - cache: directory of its cache; nil for none.
    ///   - isQuiet: whether a slow start is not reported.
    /// - Throws: `CommandError` if it does not become ready or a signal arrives first.
    static func start(
        _ loop: EventLoop, _ signals: SignalSource, _ preforked: PreforkedBus?, workers: Int, cache: String?,
        isQuiet: Bool
    ) throws -> PrivateBus {
        let state = State()
        let broker: PrivateBroker
        do {
            let onEvent = { (event: PrivateBroker.Event) in
                switch event {
                case .ready: state.isReady = true
                case .ended:
                    state.hasEnded = true
                    state.onDeath()
                }
            }
            if let preforked = preforked ?? PreforkedBus.start() {
                let supervisor = preforked.begin(maximumWorkers: workers, cacheFolder: cache)
                broker = try PrivateBroker(supervisor, loop: loop, onEvent: onEvent)
            } else {
                broker = try PrivateBroker.start(
                    maximumWorkers: workers, cacheFolder: cache, loop: loop, launch: launch, onEvent: onEvent)
            }
        } catch let error as ClientError {
            throw CommandError(.noBroker, "no broker runs, and a private one cannot start: \(error.description)")
        }
        var isSignalled = false
        let registration = try loop.add(signals.descriptor, .readable) { _ in isSignalled = true }
        let notice = loop.setTimer(after: BusSession.silenceBeforeNotice) {
            if !isQuiet { CommandError.writeMessage("waiting for a private broker to start, at most \(readyTimeout)") }
        }
        defer { loop.cancelTimer(notice) }
        try loop.run(for: readyTimeout) { state.isReady || state.hasEnded || isSignalled }
        loop.remove(registration)
        guard state.isReady else {
            // The supervisor has already reported the cause.
            if case .code(let code)? = broker.endAndWait(), let status = ExitStatus(rawValue: code), status.reportsCause
            {
                throw CommandError(status)
            }
            throw signals.nextSignal() == nil
                ? CommandError(
                    .noBroker, "no broker runs, and a private one did not start; start one with `earshot serve`")
                : CommandError(.interrupted)
        }
        return PrivateBus(broker, state)
    }

    /// Starts the supervisor as a new program.
    private static func launch(_ start: PrivateStart) throws(SystemError) -> ChildProcess {
        try ChildProcess.spawn(ChildProcess.executablePath, start.arguments, inheriting: [start.readyDescriptor])
    }

    private init(_ broker: PrivateBroker, _ state: State) {
        self.broker = broker
        self.state = state
    }

    /// Runtime directory of the bus.
    var folder: RuntimeFolder { broker.folder }

    /// Calls `handler` if the bus dies before ``end()``.
    func onDeath(_ handler: @escaping () -> Void) {
        state.onDeath = handler
        if state.hasEnded { handler() }
    }

    /// Ends all processes of the bus and removes its directory.
    func end() { broker.endAndWait() }
}
