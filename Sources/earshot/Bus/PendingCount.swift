internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire

/// Number of pending requests of a handler, or of all handlers below a name, while results arrive.
///
/// The owner subscribes to the handler and reports its results here. A query follows at the start, after a
/// reconnection, and after results have arrived. Only one query is open at a time.
final class PendingCount {
    private let pattern: HandlerPattern
    /// Number by the last answer; nil before it.
    private(set) var lastCount: Int?
    /// Whether requests are pending other than those in ``keptRequests``; true before the first answer.
    private var hasOtherPending = true
    /// Sum over the pages of an incomplete answer.
    private var partialSum = 0
    private var isQuerying = false
    /// Whether results arrived after the open query.
    private var isStale = false
    private var isScheduled = false
    /// Requests whose failures stay on disk. They count as pending, except while another subscriber has not
    /// acknowledged them. At most the durable requests of the handler.
    private var keptRequests: Set<RequestKey> = []

    init(_ pattern: HandlerPattern) {
        self.pattern = pattern
    }

    /// Whether no request is pending except those whose failures stay, and all results have arrived with their bodies.
    func isZero(_ session: BusSession) -> Bool {
        !hasOtherPending && !isQuerying && !isScheduled && !session.connection.isReadingBodies
    }

    /// Whether a failure stays on disk.
    var hasKeptFailures: Bool { !keptRequests.isEmpty }

    /// Queries the number, now or after the open query.
    func query(_ session: BusSession) {
        isStale = isQuerying
        guard !isQuerying else { return }
        isQuerying = true
        partialSum = 0
        session.connection.query(.handlers, QueryPage(handler: pattern))
    }

    /// Queries the number in the next pass. The connection acknowledges the results at the end of this one, so all
    /// further results that then become due precede the answer.
    func resultArrived(_ session: BusSession) {
        isStale = true
        guard !isScheduled else { return }
        isScheduled = true
        session.loop.setTimer(after: .zero) { [unowned self, unowned session] in
            isScheduled = false
            query(session)
        }
    }

    /// Records a result, whose request may have been repeated.
    ///
    /// - Parameter isFailureKept: whether it is a failure that stays on disk.
    func requestEnded(_ key: RequestKey, isFailureKept: Bool) {
        if isFailureKept { keptRequests.insert(key) } else { keptRequests.remove(key) }
    }

    /// Handles the JSON of an answer to one of its queries.
    func handleAnswer(_ query: Query, _ json: [UInt8], _ session: BusSession) {
        guard let answer = session.parseAnswer(json) else { return }
        switch query {
        case .handlers: handleHandlersAnswer(answer, session)
        case .requests: handleRequestsAnswer(answer, session)
        default: break
        }
    }

    private func handleHandlersAnswer(_ answer: JSONValue, _ session: BusSession) {
        partialSum += HandlerRow.rows(answer).reduce(0) { $0 + $1.pendingCount }
        if let after = answer.member("handlers-next")?.scalarText {
            session.connection.query(.handlers, QueryPage(cursor: after, handler: pattern))
            return
        }
        lastCount = partialSum
        hasOtherPending = partialSum > keptRequests.count
        // The number may exclude some of the kept ones, so the requests themselves decide.
        if partialSum > 0, !hasOtherPending {
            session.connection.query(.requests, QueryPage(handler: pattern))
        } else {
            finishQuery(session)
        }
    }

    private func handleRequestsAnswer(_ answer: JSONValue, _ session: BusSession) {
        hasOtherPending = RequestRow.rows(answer).contains { !hasEnded($0) }
        if !hasOtherPending, let after = answer.member("requests-next")?.scalarText {
            session.connection.query(.requests, QueryPage(cursor: after, handler: pattern))
        } else {
            finishQuery(session)
        }
    }

    /// Whether a request does not count as pending here.
    private func hasEnded(_ row: RequestRow) -> Bool {
        row.state == .delivering || row.code != nil && row.key.map { keptRequests.contains($0) } == true
    }

    private func finishQuery(_ session: BusSession) {
        isQuerying = false
        if isStale, !isScheduled { query(session) }
    }
}
