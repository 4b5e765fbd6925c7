internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire

/// Number of pending requests of a handler, or of all handlers below a name, while results arrive.
///
/// The owner subscribes to the handler and reports its results here. A query follows at the start, after a reconnection,
/// and after results have arrived. Only one query is open at a time.
final class PendingCount {
    private let pattern: HandlerPattern
    /// Number by the last answer; nil before it.
    private(set) var value: Int?
    /// Whether requests are pending other than those in ``keptRequests``; true before the first answer.
    private var hasOthers = true
    /// Sum over the pages of an incomplete answer.
    private var sum = 0
    private var isQuerying = false
    /// Whether results arrived after the open query.
    private var isStale = false
    private var isScheduled = false
    /// Requests whose failures stay on disk. They count as pending, except while another subscriber has not acknowledged
    /// them. At most the durable requests of the handler.
    private var keptRequests: Set<RequestKey> = []

    init(_ pattern: HandlerPattern) {
        self.pattern = pattern
    }

    /// Whether no request is pending but those whose failures stay, and all results have arrived with their bodies.
    func isZero(_ session: BusSession) -> Bool {
        !hasOthers && !isQuerying && !isScheduled && !session.connection.isReadingBodies
    }

    /// Whether a failure stays on disk.
    var hasKept: Bool { !keptRequests.isEmpty }

    /// Queries the number, now or after the open query.
    func query(_ session: BusSession) {
        isStale = isQuerying
        guard !isQuerying else { return }
        isQuerying = true
        sum = 0
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

    /// Takes note of a result, whose request may have been repeated.
    ///
    /// - Parameter isKept: whether it is a failure that stays on disk.
    func ended(_ key: RequestKey, isKept: Bool) {
        if isKept { keptRequests.insert(key) } else { keptRequests.remove(key) }
    }

    /// Takes the JSON of an answer to one of its queries.
    func take(_ query: Query, _ json: [UInt8], _ session: BusSession) {
        guard let answer = JSONValue(json) else { return }
        switch query {
        case .handlers: takeHandlers(answer, session)
        case .requests: takeRequests(answer, session)
        default: break
        }
    }

    private func takeHandlers(_ answer: JSONValue, _ session: BusSession) {
        sum += HandlerRow.rows(answer).reduce(0) { $0 + $1.pending }
        if let after = answer.member("handlers-next")?.text {
            session.connection.query(.handlers, QueryPage(after: after, handler: pattern))
            return
        }
        value = sum
        hasOthers = sum > keptRequests.count
        // The number may exclude some of the kept ones, so the requests themselves decide.
        if sum > 0, !hasOthers {
            session.connection.query(.requests, QueryPage(handler: pattern))
        } else {
            answered(session)
        }
    }

    private func takeRequests(_ answer: JSONValue, _ session: BusSession) {
        hasOthers = RequestRow.rows(answer).contains { !hasEnded($0) }
        if !hasOthers, let after = answer.member("requests-next")?.text {
            session.connection.query(.requests, QueryPage(after: after, handler: pattern))
        } else {
            answered(session)
        }
    }

    /// Whether a request does not count as pending here.
    private func hasEnded(_ row: RequestRow) -> Bool {
        row.state == .delivering || row.code != nil && row.key.map { keptRequests.contains($0) } == true
    }

    private func answered(_ session: BusSession) {
        isQuerying = false
        if isStale, !isScheduled { query(session) }
    }
}
