internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire

/// State of the broker, asked over one connection.
///
/// It asks for a state only on request. Requests within `freshness` share an answer, so several scrapes and pages cost the
/// broker no more than one.
final class StatusSource {
    /// Time for which a state is used again.
    private static let freshness = Duration.milliseconds(250)
    /// Time for an answer.
    private static let patience = Duration.seconds(2)
    /// Questions without an answer while a broker hangs.
    private static let mostQuestions = 100
    /// Further pages of workers: the broker has at most 1,000, and a page at least 100.
    private static let mostPages = 10

    private let loop: EventLoop
    private var connection: ClientConnection?
    /// Questions without an answer. The connection repeats them to the next broker, so the order stays.
    private var open: [(query: Query, answer: ([UInt8]) -> Void)] = []
    private var lastAnswer: (state: BrokerState, at: LoopTime)?
    private var waiting: [(BrokerState?) -> Void] = []
    private var isQuerying = false
    private var timer: TimerID?
    /// Whether the client is connected to a broker.
    private(set) var isConnected = false
    /// Reason for an absent state.
    private(set) var absenceReason = BrokerState.Unreadiness.noBroker
    /// Error that ended the connection for good; nil while it runs.
    var failure: (any Error)? { connection?.failure }

    init(_ folder: RuntimeFolder, loop: EventLoop) throws {
        self.loop = loop
        connection = try ClientConnection(endpoint: folder.busEndpoint, window: 1, loop: loop) {
            [unowned self] in handle($0)
        }
    }

    /// Calls `answer` with the state of the broker; with nil if no broker answers in time.
    func state(_ answer: @escaping (BrokerState?) -> Void) {
        if let lastAnswer, isConnected, loop.now.since(lastAnswer.at) < Self.freshness {
            return answer(lastAnswer.state)
        }
        guard isConnected else { return answer(nil) }
        waiting.append(answer)
        if timer == nil { timer = loop.setTimer(after: Self.patience) { [unowned self] in conclude(nil) } }
        guard !isQuerying else { return }
        isQuerying = true
        query(.status) { [unowned self] json in gather(BrokerState(json), pages: 0) }
    }

    /// Calls `answer` with the reply to `QUERY why`; with nil if no broker answers in time.
    func reason(_ handler: HandlerID, _ request: RequestID, _ answer: @escaping ([UInt8]?) -> Void) {
        guard isConnected, open.count < Self.mostQuestions else { return answer(nil) }
        var answer: (([UInt8]?) -> Void)? = answer
        let once: ([UInt8]?) -> Void = { json in
            answer?(json)
            answer = nil
        }
        let timer = loop.setTimer(after: Self.patience) { once(nil) }
        query(.why(handler, request)) { [unowned self] json in
            loop.cancelTimer(timer)
            once(json)
        }
    }

    /// Asks for further pages of workers, then answers all waiting requests.
    private func gather(_ state: BrokerState?, pages: Int) {
        guard var state, let after = state.nextWorkers, pages < Self.mostPages else {
            isQuerying = false
            if let state { lastAnswer = (state, loop.now) }
            return conclude(state)
        }
        query(.workers, QueryPage(after: after)) { [unowned self] json in
            state.add(workers: json)
            gather(state, pages: pages + 1)
        }
    }

    private func conclude(_ state: BrokerState?) {
        if let timer { loop.cancelTimer(timer) }
        timer = nil
        let answers = waiting
        waiting = []
        for answer in answers { answer(state) }
    }

    private func query(_ query: Query, _ page: QueryPage = QueryPage(), _ answer: @escaping ([UInt8]) -> Void) {
        open.append((query, answer))
        connection?.query(query, page)
    }

    private func connectionEnded(_ reason: BrokerState.Unreadiness) {
        isConnected = false
        absenceReason = reason
        conclude(nil)
    }

    private func handle(_ event: ClientEvent) {
        switch event {
        case .answer(let query, let json):
            guard let index = open.firstIndex(where: { $0.query == query }) else { return }
            open.remove(at: index).answer(json)
        case .state(.connected), .state(.draining): isConnected = true
        case .state(.disconnected): connectionEnded(.noBroker)
        case .state(.incompatible): connectionEnded(.incompatible)
        case .refused(let refusal) where refusal.subject == .query:
            // The client does not repeat a refused query, so a question about the state must be asked again.
            guard !open.isEmpty else { return }
            let question = open.removeFirst()
            if question.query == .status || question.query == .workers {
                isQuerying = false
                conclude(nil)
            }
        case .terminal, .accepted, .progress, .cancelled, .removed, .changed, .refused: break
        }
    }
}
