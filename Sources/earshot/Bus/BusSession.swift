internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// Connection of a command to the bus. A missing broker or a signal ends it with an error.
final class BusSession {
    /// Maximum time until the broker answers or returns after a disconnect.
    private static let defaultAnswerTimeout = Duration.seconds(20)
    /// Maximum time until a bus on a network returns, the time of its lease.
    private static let networkReturnTimeout = Duration.seconds(60)

    /// Time without an answer before the first message about it.
    static let silenceBeforeNotice = Duration.seconds(1)

    let loop: EventLoop
    let connection: ClientConnection
    /// Action for a signal; nil ends the session.
    var onSignal: (() -> Void)?
    /// Action before a message of the session, such as the removal of progress from a terminal.
    var beforeMessage: (() -> Void)?
    /// Whether it reports only its end, and no wait.
    var isQuiet = false
    /// Readable after a signal.
    let signalDescriptor: Int32
    private(set) var commandError: CommandError?

    private let location: BusLocation
    private let signals: SignalSource
    private var answerTimeout: Duration
    private var registration: EventLoop.Registration?
    private var answerTimer: TimerID?
    private var noticeTimer: TimerID?
    private var refusalTimer: TimerID?

    /// Connects to the broker of `location`.
    ///
    /// - Parameters:
    ///   - answerTimeout: maximum time until the broker answers; nil for the default.
    ///   - window: maximum number of unacknowledged terminals.
    ///   - consumerFinishesDeliveries: whether the caller acknowledges each terminal.
    ///   - keepsFailures: whether durable failures stay on disk after their acknowledgement.
    ///   - owner: user whose handlers the names mean; nil for the user of this process.
    /// - Throws: `CommandError` if no broker serves it.
    static func connect(
        to location: BusLocation, answerTimeout: Duration? = nil, window: Int = 256,
        consumerFinishesDeliveries: Bool = false, keepsFailures: Bool = false, owner: HandlerOwner? = nil,
        onEvent: @escaping (BusSession, ClientEvent) -> Void
    ) throws -> BusSession {
        guard try location.isServed() else {
            throw CommandError(.noBroker, "no broker runs \(location.locationPhrase); start one with `earshot serve`")
        }
        let signals = try SignalSource([SIGINT, SIGTERM, SIGHUP], skipsIgnoredSignals: true)
        return try BusSession(
            location, EventLoop(), signals, window: window, answerTimeout: answerTimeout,
            consumerFinishesDeliveries: consumerFinishesDeliveries, keepsFailures: keepsFailures, of: owner, onEvent)
    }

    init(
        _ location: BusLocation, _ loop: EventLoop, _ signals: SignalSource, window: Int,
        answerTimeout: Duration? = nil, consumerFinishesDeliveries: Bool = false, keepsFailures: Bool = false,
        of owner: HandlerOwner? = nil, _ onEvent: @escaping (BusSession, ClientEvent) -> Void
    ) throws {
        self.location = location
        self.loop = loop
        self.signals = signals
        self.answerTimeout = answerTimeout ?? Self.defaultAnswerTimeout
        signalDescriptor = signals.descriptor
        let reference = SessionReference()
        connection = try ClientConnection(
            location.endpoints, sharing: nil, window: window, lease: nil,
            consumerFinishesDeliveries: consumerFinishesDeliveries, keepsFailures: keepsFailures,
            principal: owner?.principal,
            bodies: Environment.value("EARSHOT_BODIES") == "pull" ? .pull : .path, loop: loop
        ) { event in
            guard let session = reference.session else { return }
            if case .state(let state) = event { session.stateChanged(state) }
            if case .messageRefused(let reply) = event, reply.subject == .hello {
                let sentence = reply.detail ?? "the broker refuses this program: \(reply.code)"
                session.end(with: CommandError(.noBroker, sentence))
            }
            onEvent(session, event)
        }
        reference.session = self
        registration = try loop.add(signals.descriptor, .readable) { [unowned self] _ in
            while signals.nextSignal() != nil { handleSignals() }
        }
        beginWaitingForBroker()
    }

    /// Late reference to the session for events of its connection, which is created first.
    private final class SessionReference {
        weak var session: BusSession?
    }

    /// Runs the loop until `isDone`.
    ///
    /// - Throws: the first error.
    func run(until isDone: () -> Bool) throws {
        try loop.run { isDone() || commandError != nil || connection.failure != nil }
        if let commandError { throw commandError }
        if let failure = connection.failure as? ClientError {
            throw CommandError(failure)
        }
        if let failure = connection.failure { throw failure }
    }

    /// Ends the session with an error, unless it already has one.
    func end(with commandError: CommandError) {
        if self.commandError == nil { self.commandError = commandError }
    }

    /// Parses the answer to a query. An answer that is not JSON ends the session with an error.
    func parseAnswer(_ json: [UInt8]) -> JSONValue? {
        let answer = JSONValue(json)
        if answer == nil { end(with: .unreadableAnswer) }
        return answer
    }

    private func handleSignals() {
        if let onSignal { onSignal() } else { end(with: CommandError(.interrupted)) }
    }

    private func stateChanged(_ state: ClientState) {
        switch state {
        case .connected:
            for timer in [answerTimer, noticeTimer, refusalTimer].compactMap(\.self) { loop.cancelTimer(timer) }
            (answerTimer, noticeTimer, refusalTimer) = (nil, nil, nil)
            if case .network = location { answerTimeout = max(answerTimeout, Self.networkReturnTimeout) }
        case .disconnected: beginWaitingForBroker()
        case .draining: if refusalTimer == nil { reportRefusal() }
        case .incompatible:
            let bus = location.locationPhrase
            let sentence = "the broker \(bus) has another protocol version; restart it with the version of this program"
            end(with: CommandError(.noBroker, sentence))
        }
    }

    /// Reports that the bus accepts no requests, once requests of this session wait.
    private func reportRefusal(after delay: Duration = .zero) {
        refusalTimer = loop.setTimer(after: delay) { [unowned self] in
            guard !isQuiet, connection.areRequestsHeld else { return reportRefusal(after: Self.silenceBeforeNotice) }
            beforeMessage?()
            CommandError.writeMessage("the bus accepts no new requests; they wait until `earshot serve` starts again")
        }
    }

    private func beginWaitingForBroker() {
        guard answerTimer == nil else { return }
        noticeTimer = loop.setTimer(after: Self.silenceBeforeNotice) { [unowned self] in
            noticeTimer = nil
            guard !isQuiet else { return }
            beforeMessage?()
            CommandError.writeMessage("waiting for the broker \(location.locationPhrase), at most \(answerTimeout)")
            for failure in location.failingChildren + [connection.connectionFaultText].compactMap(\.self) {
                CommandError.writeMessage(failure)
            }
        }
        answerTimer = loop.setTimer(after: answerTimeout) { [unowned self] in
            let bus = location.locationPhrase
            let sentence = connection.connectionFaultText ?? "no broker answers \(bus); restart `earshot serve`"
            end(with: CommandError(.noBroker, sentence))
        }
    }
}
