internal import EarshotClient
internal import EarshotLoop
internal import Glibc

/// A private broker for one run of this program.
final class PrivateBus {
    /// How long it may take to come up.
    private static let patience = Duration.seconds(20)

    private let broker: PrivateBroker
    private let state: State

    /// What the broker's events find, which come before there is a bus.
    private final class State {
        var isReady = false
        var hasEnded = false
        var onDeath: () -> Void = {}
    }

    /// Starts it and waits until it serves.
    ///
    /// - Parameter cache: the folder of its cache; nil for none.
    /// - Throws: `Complaint` when it does not come up, or a signal came first.
    static func start(_ loop: EventLoop, _ signals: SignalSource, workers: Int, cache: String?) throws -> PrivateBus {
        let state = State()
        let broker: PrivateBroker
        do {
            broker = try PrivateBroker.start(mostWorkers: workers, cacheFolder: cache, loop: loop, launch: launch) {
                event in
                switch event {
                case .ready: state.isReady = true
                case .ended:
                    state.hasEnded = true
                    state.onDeath()
                }
            }
        } catch let error as ClientError {
            throw Complaint(.noBroker, "no broker runs, and \(error.description)")
        }
        var isSignalled = false
        let registration = try loop.add(signals.descriptor, .readable) { _ in isSignalled = true }
        let notice = loop.setTimer(after: BusSession.silence) {
            Complaint.say("waiting for a private broker to start")
        }
        defer { loop.cancelTimer(notice) }
        try loop.run(for: patience) { state.isReady || state.hasEnded || isSignalled }
        loop.remove(registration)
        guard state.isReady else {
            // It has said what is wrong with the settings.
            if broker.end() == .code(ExitStatus.configuration.rawValue) { throw Complaint(.configuration) }
            throw signals.next() == nil
                ? Complaint(.noBroker, "no broker runs, and a private one did not start") : Complaint(.interrupted)
        }
        return PrivateBus(broker, state)
    }

    /// Starts its supervisor: a copy of this process, or this program anew where no copy can be made.
    private static func launch(_ start: PrivateStart) throws(SystemError) -> ChildProcess {
        let inherited = [start.readyDescriptor]
        let copy = try ChildProcess.fork(inheriting: inherited) {
            ExitStatus.concluding { try ServeRun(start).run(ServiceManager.take()) }.rawValue
        }
        if let copy { return copy }
        return try ChildProcess.spawn(ChildProcess.thisProgram, start.arguments, inheriting: inherited)
    }

    private init(_ broker: PrivateBroker, _ state: State) {
        self.broker = broker
        self.state = state
    }

    /// Where it listens.
    var folder: RuntimeFolder { broker.folder }

    /// Calls `handler` if it dies before it is ended.
    func onDeath(_ handler: @escaping () -> Void) {
        state.onDeath = handler
        if state.hasEnded { handler() }
    }

    /// Ends all its processes and removes its folder.
    func end() { broker.end() }
}
