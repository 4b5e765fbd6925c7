internal import ArgumentParser
internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire

/// `earshot wait`: waits until all requests of a handler have ended.
struct WaitCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "wait",
        abstract: "Wait until all requests of a handler have ended.",
        usage: "earshot wait [<options>] <handler>",
        discussion: """
            The exit code is 0 if all requests succeeded that ended meanwhile. If all failed for the same reason, it is \
            the code of the reason, otherwise 2. It is 66 if the handler has no request, and 28 after --timeout.

            The command subscribes to the handler. It acknowledges results without storing them, except durable ones: \
            these stay on disk for `earshot watch`. At most 1023 durable results can wait for that.

              earshot submit --handler night/a --durable https://example.org/dump
              earshot wait --timeout 3600 night/a && earshot watch -d out --count 1 night/a
            """)

    /// Window of the session. Durable results stay unacknowledged in it, and each may have an inline body of 64 KiB.
    static let deliveryWindow = 1_024

    @Argument(
        help: "Handler, or NAME/ for all handlers below NAME.", completion: ShellCompletion.handlerPatterns)
    var handler: HandlerPattern

    @OptionGroup var limit: WaitTimeoutOptions
    @OptionGroup(title: "Output") var failure: FailureOptions
    @OptionGroup(title: "Bus") var place: BusOptions

    func run() throws {
        try runAndExit {
            let wait = HandlerWait(handler, verbose: failure.verbose)
            let session = try BusSession.connect(
                to: place.busLocation(), window: Self.deliveryWindow, consumerFinishesDeliveries: true
            ) { session, event in
                wait.handleEvent(event, session)
            }
            if let limit = limit.timeoutDuration {
                session.loop.setTimer(after: limit) { [unowned session] in
                    session.end(with: CommandError(.timedOut, "\(handler): timeout; \(wait.pendingText) did not end"))
                }
            }
            session.connection.subscribe(handler)
            wait.begin(session)
            try session.run { wait.hasNoPending(session) }
            guard wait.tally.totalCount > 0 else {
                throw CommandError(.noInput, "\(handler) has no request; submit one with `earshot submit --handler`")
            }
            return wait.tally.status
        }
    }
}

/// Results of a handler until none of its requests is pending.
final class HandlerWait {
    private let pattern: HandlerPattern
    private let isVerbose: Bool
    private let pending: PendingCount
    private(set) var tally = Tally()
    /// Durable results that stay unacknowledged.
    private var unacknowledgedCount = 0

    init(_ pattern: HandlerPattern, verbose: Bool) {
        self.pattern = pattern
        isVerbose = verbose
        pending = PendingCount(pattern)
    }

    func hasNoPending(_ session: BusSession) -> Bool { pending.isZero(session) }

    var pendingText: String {
        switch pending.lastCount {
        case nil: "its requests"
        case 1?: "1 request"
        case let count?: "\(count) requests"
        }
    }

    func begin(_ session: BusSession) { pending.query(session) }

    func handleEvent(_ event: ClientEvent, _ session: BusSession) {
        switch event {
        case .terminal(let delivery, _): handleResult(delivery, session)
        case .queryAnswer(let query, let json): pending.handleAnswer(query, json, session)
        case .messageRefused(let reply): session.end(with: .refused(reply))
        case .state(.connected): pending.query(session)
        case .accepted, .progress, .cancelled, .removed, .settingChanged, .state: break
        }
    }

    private func handleResult(_ delivery: DeliveredTerminal, _ session: BusSession) {
        let outcome = FetchOutcome(url: delivery.terminal.url ?? "-", delivery.terminal)
        tally.countOutcome(outcome)
        if outcome.code != nil {
            CommandError.writeMessage(
                "\(delivery.key.handler) \(delivery.key.request) \(outcome.sentence(verbosely: isVerbose))")
        }
        if delivery.terminal.isDurable { unacknowledgedCount += 1 } else { session.connection.finishDelivery(delivery) }
        if unacknowledgedCount >= WaitCommand.deliveryWindow {
            let text = "\(pattern) has more than \(WaitCommand.deliveryWindow - 1) durable results"
            session.end(with: CommandError(.generalError, "\(text); store them with `earshot watch -d DIR \(pattern)`"))
        }
        pending.resultArrived(session)
    }
}
