internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire

/// State of the broker, queried over one connection.
///
/// It queries the state only on request. Requests within `stateCacheTime` share an answer, so several scrapes and pages
/// cost the broker no more than one.
final class StatusSource {
    /// Time for which a state is used again.
    private static let stateCacheTime = Duration.milliseconds(250)
    /// Time for an answer.
    private static let answerTimeout = Duration.seconds(2)
    /// Maximum number of unanswered queries while a broker hangs.
    private static let maximumUnansweredQueries = 100
    /// Further pages of workers: the broker has at most 1,000, and a page at least 100.
    private static let maximumWorkerPages = 10

    private let loop: EventLoop
    private var connection: ClientConnection?
    /// Queries without an answer. The connection repeats them to the next broker, so the order stays.
    private var unansweredQueries: [(query: Query, answer: ([UInt8]) -> Void)] = []
    private var lastAnswer: (state: BrokerState, at: LoopTime)?
    private var waitingStateRequests: [(BrokerState?) -> Void] = []
    private var isFetchingState = false
    private var queryTimer: TimerID?
    /// Whether the client is connected to a broker.
    private(set) var isConnected = false
    /// Reason for an absent state.
    private(set) var unreadinessReason = BrokerState.Unreadiness.noBroker
    /// Error that ended the connection for good; nil while it runs.
    var failure: (any Error)? { connection?.failure }

    init(_ folder: RuntimeFolder, loop: EventLoop) throws {
        self.loop = loop
        connection = try ClientConnection(endpoint: folder.busEndpoint, window: 1, loop: loop) { [unowned self] in
            handle($0)
        }
    }

    /// Calls `answer` with the state of the broker; with nil if no broker answers in time.
    func fetchState(_ answer: @escaping (BrokerState?) -> Void) {
        if let lastAnswer, isConnected, loop.now.since(lastAnswer.at) < Self.stateCacheTime {
            return answer(lastAnswer.state)
        }
        guard isConnected else { return answer(nil) }
        waitingStateRequests.append(answer)
        if queryTimer == nil {
            queryTimer = loop.setTimer(after: Self.answerTimeout) { [unowned self] in answerWaitingRequests(nil) }
        }
        guard !isFetchingState else { return }
        isFetchingState = true
        sendQuery(.status) { [unowned self] json in fetchWorkerPages(BrokerState(json), pages: 0) }
    }

    /// Calls `answer` with the reply to `QUERY why`; with nil if no broker answers in time.
    func fetchRequestReason(handler: HandlerID, request: RequestID, answer: @escaping ([UInt8]?) -> Void) {
        guard isConnected, unansweredQueries.count < Self.maximumUnansweredQueries else { return answer(nil) }
        var answer: (([UInt8]?) -> Void)? = answer
        let once: ([UInt8]?) -> Void = { json in
            answer?(json)
            answer = nil
        }
        let timer = loop.setTimer(after: Self.answerTimeout) { once(nil) }
        sendQuery(.explainRequest(handler, request)) { [unowned self] json in
            loop.cancelTimer(timer)
            once(json)
        }
    }

    /// Queries further pages of workers, then answers all waiting requests.
    private func fetchWorkerPages(_ state: BrokerState?, pages: Int) {
        guard var state, let after = state.nextWorkers, pages < Self.maximumWorkerPages else {
            isFetchingState = false
            if let state { lastAnswer = (state, loop.now) }
            return answerWaitingRequests(state)
        }
        sendQuery(.workers, page: QueryPage(cursor: after)) { [unowned self] json in
            state.addWorkersPage(json)
            fetchWorkerPages(state, pages: pages + 1)
        }
    }

    private func answerWaitingRequests(_ state: BrokerState?) {
        if let queryTimer { loop.cancelTimer(queryTimer) }
        queryTimer = nil
        let answers = waitingStateRequests
        waitingStateRequests = []
        for answer in answers { answer(state) }
    }

    private func sendQuery(_ query: Query, page: QueryPage = QueryPage(), answer: @escaping ([UInt8]) -> Void) {
        unansweredQueries.append((query, answer))
        connection?.query(query, page)
    }

    private func connectionEnded(_ reason: BrokerState.Unreadiness) {
        isConnected = false
        unreadinessReason = reason
        answerWaitingRequests(nil)
    }

    private func handle(_ event: ClientEvent) {
        switch event {
        case .queryAnswer(let query, let json):
            guard let index = unansweredQueries.firstIndex(where: { $0.query == query }) else { return }
            unansweredQueries.remove(at: index).answer(json)
        case .state(.connected), .state(.draining): isConnected = true
        case .state(.disconnected): connectionEnded(.noBroker)
        case .state(.incompatible): connectionEnded(.incompatible)
        case .messageRefused(let refusal) where refusal.subject == .query:
            // The client does not repeat a refused query, so a query about the state must be sent again.
            guard !unansweredQueries.isEmpty else { return }
            let refused = unansweredQueries.removeFirst()
            if refused.query == .status || refused.query == .workers {
                isFetchingState = false
                answerWaitingRequests(nil)
            }
        case .terminal, .accepted, .progress, .cancelled, .removed, .settingChanged, .messageRefused: break
        }
    }
}
