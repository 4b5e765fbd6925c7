internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// Session of the API at the broker. It outlives the HTTP connections that use it, and keeps results until they are
/// acknowledged.
final class APISession {
    /// Number of results that the broker sends without an acknowledgement.
    static let unacknowledgedResultWindow = 32
    /// Batches that wait for the answers to an earlier one.
    private static let maximumWaitingBatches = 8
    /// Bytes of bodies in these batches.
    private static let maximumWaitingBodyBytes = 8 << 20

    /// Bytes of bodies that the results have in memory. Those of the API's own requests are in files.
    private static let maximumStoredBodyBytes = 2 << 20

    /// A terminal without an acknowledgement.
    struct Result {
        let terminal: Terminal
        /// The body, if it is in no file; nil for one beyond the bound.
        let body: [UInt8]?
        let terminalJSON: [UInt8]

        var sequence: UInt64 { terminal.sequence }
    }

    /// Connection that waits for results.
    enum Reader {
        /// A long poll that ends with this number of results.
        case poll(Int, answer: () -> Void)
        /// A stream of server-sent events, and the last result that it has got.
        case stream(WebPeer, after: UInt64)
    }

    typealias Answer = (message: BrokerMessage, body: [UInt8])

    /// Messages that are answered together.
    private struct Batch {
        let messages: [ClientMessage]
        /// Receives the answer to each message, nil for a FETCH that is accepted; nil if the session ends before.
        let onAnswers: ([Answer?]?) -> Void
        var firstMessageNumber: UInt64 = 0
        var receivedAnswers: [Answer?] = []
        var missingAnswerCount = 0
    }

    let user: UInt32
    /// Name under which other requests find the session; empty for one of a single operation.
    let token: String
    private(set) var unacknowledgedResults: [Result] = []
    /// Called after each new result, and at the end.
    var onResult: () -> Void = {}
    private(set) var isEnded = false
    private var reader: Reader?
    /// Ends the wait of a long poll, and the session without requests.
    var (readerTimer, expiry): (TimerID?, TimerID?) = (nil, nil)
    private var brokerSession: DoorSession?
    private var lastMessageNumber: UInt64 = 0
    private var lastResultSequence: UInt64 = 0
    private var batches: [Batch] = []
    /// Responses with the body of a result. Their connections own them, so an open file closes with the response.
    private var resultExchanges: [WeakExchange] = []

    private struct WeakExchange {
        weak var exchange: Exchange?
    }

    init(
        user: UInt32, token: String, _ open: (@escaping () -> Void) -> DoorSession?,
        onReady: @escaping (APISession) -> Void
    ) {
        self.user = user
        self.token = token
        brokerSession = open { [unowned self] in onReady(self) }
        isEnded = brokerSession == nil
    }

    /// Whether a request or a reader waits.
    var hasWaitingRequests: Bool {
        if case .stream(let peer, _)? = reader { return peer.phase != .closed }
        return reader != nil || !batches.isEmpty
    }

    // MARK: Requests

    /// Sends messages after the answers to earlier ones. Returns false if too many wait.
    func perform(_ messages: [ClientMessage], onAnswers finish: @escaping ([Answer?]?) -> Void) -> Bool {
        let bytes = (batches.flatMap(\.messages) + messages).reduce(0) { $0 + ($1.body?.count ?? 0) }
        guard batches.isEmpty || batches.count < Self.maximumWaitingBatches && bytes <= Self.maximumWaitingBodyBytes
        else {
            return false
        }
        batches.append(Batch(messages: messages, onAnswers: finish))
        if batches.count == 1 { sendNextBatch() }
        return true
    }

    private func sendNextBatch() {
        guard let brokerSession, !batches.isEmpty else { return end() }
        batches[0].firstMessageNumber = lastMessageNumber + 1
        // A FETCH may have no answer. The last one shows that all were carried out.
        let messages = batches[0].messages + [.query(.ping)]
        batches[0].receivedAnswers = Array(repeating: nil, count: messages.count)
        batches[0].missingAnswerCount = messages.count { !Self.mayStayUnanswered($0) }
        for message in messages {
            lastMessageNumber += 1
            brokerSession.send(message, number: lastMessageNumber)
        }
    }

    private static func mayStayUnanswered(_ message: ClientMessage) -> Bool {
        guard case .fetch(let fetch) = message else { return false }
        return fetch.options.subscribes && !fetch.options.isDurable
    }

    /// Acknowledges results. Returns false for a number that no result had.
    func acknowledgeResults(through sequence: UInt64) -> Bool {
        guard sequence <= lastResultSequence else { return false }
        unacknowledgedResults.removeAll { $0.sequence <= sequence }
        brokerSession?.send(.acknowledge(sequence))
        return true
    }

    /// Ends the session, and with it its requests that are not durable.
    func end() {
        isEnded = true
        brokerSession?.close()
        brokerSession = nil
        let unanswered = batches
        batches = []
        for batch in unanswered { batch.onAnswers(nil) }
        for case let exchange? in resultExchanges.map(\.exchange) where !exchange.isOver {
            exchange.failWithResponse(ProxyResponse.brokerUnavailable)
        }
        resultExchanges = []
        onResult()
    }

    // MARK: Results

    /// Begins to deliver results to a connection. A session has one: the wait of an earlier one ends.
    func replaceReader(with next: Reader?, _ loop: EventLoop) {
        if let readerTimer { loop.cancelTimer(readerTimer) }
        readerTimer = nil
        let earlier = reader
        reader = next
        switch earlier {
        case .poll(_, let answer): answer()
        case .stream(let peer, _): peer.close()
        case nil: break
        }
    }

    /// Delivers results to the reader.
    func deliverResults(_ loop: EventLoop) {
        switch reader {
        case .poll(let count, _) where unacknowledgedResults.count >= count: replaceReader(with: nil, loop)
        case .stream(let peer, let last):
            for result in unacknowledgedResults where result.sequence > last {
                peer.send(event: Array("id: \(result.sequence)\ndata: ".utf8) + result.terminalJSON + [10, 10])
            }
            reader = .stream(peer, after: max(last, unacknowledgedResults.last?.sequence ?? 0))
        case .poll, nil: break
        }
        if isEnded { replaceReader(with: nil, loop) }
    }

    /// Answers with the response of a result.
    func answer(_ exchange: Exchange, with result: Result) {
        guard let body = result.body else { return exchange.failWithResponse(ProxyResponse.discardedBodyResponse) }
        resultExchanges.removeAll { $0.exchange?.isOver ?? true }
        resultExchanges.append(WeakExchange(exchange: exchange))
        exchange.receivedTerminal(result.terminal, body: body)
    }

    func sendBodyRead(_ read: BodyRead) { brokerSession?.send(.readBody(read)) }

    /// Handles messages of the broker. Returns whether more are there already.
    func handleBrokerMessages() -> Bool {
        let before = lastResultSequence
        while let (answer, body) = brokerSession?.next() {
            if case .terminal(let terminal) = answer.message, terminal.sequence > 0 {
                receivedTerminal(terminal, body: body)
            } else if case .bodyData(let data) = answer.message {
                for entry in resultExchanges { entry.exchange?.receivedBodyData(data, bytes: body) }
            } else if let number = answer.answeredNumber {
                receivedAnswer(answer.message, body: body, to: number)
            } else if case .error = answer.message {
                // The proof is that of an earlier broker.
                end()
            }
        }
        if brokerSession?.isEnded == true { end() } else if lastResultSequence != before { onResult() }
        return brokerSession?.hasPendingMessages ?? false
    }

    private func receivedTerminal(_ terminal: Terminal, body: [UInt8]) {
        guard terminal.sequence > lastResultSequence else { return }
        lastResultSequence = terminal.sequence
        let isKept =
            unacknowledgedResults.reduce(body.count) { $0 + ($1.body?.count ?? 0) } <= Self.maximumStoredBodyBytes
        unacknowledgedResults.append(
            Result(terminal: terminal, body: isKept ? body : nil, terminalJSON: Self.terminalJSON(terminal)))
    }

    private func receivedAnswer(_ message: BrokerMessage, body: [UInt8], to number: UInt64) {
        guard let batch = batches.first, number >= batch.firstMessageNumber,
            number - batch.firstMessageNumber < UInt64(batch.receivedAnswers.count)
        else {
            return
        }
        let index = Int(number - batch.firstMessageNumber)
        let isLate = index < batch.messages.count && Self.mayStayUnanswered(batch.messages[index])
        if batch.receivedAnswers[index] == nil, !isLate { batches[0].missingAnswerCount -= 1 }
        batches[0].receivedAnswers[index] = (message, body)
        guard batches[0].missingAnswerCount == 0 else { return }
        let done = batches.removeFirst()
        if !batches.isEmpty { sendNextBatch() }
        done.onAnswers(done.receivedAnswers.dropLast())
    }

    /// Describes a terminal for clients of the API.
    private static func terminalJSON(_ terminal: Terminal) -> [UInt8] {
        var json = JSONText()
        json.object { json in
            json.member("sequence", Int(terminal.sequence))
            json.member("handler", terminal.handler.description)
            json.member("id", terminal.request.description)
            json.member("durable", terminal.isDurable)
            switch terminal.outcome {
            case .result(let status, _):
                json.member("outcome", "result")
                json.member("status", status)
            case .failed(let failure):
                json.member("outcome", "failed")
                json.member("code", failure.code)
                if let detail = failure.detail { json.member("detail", detail) }
                if let status = failure.status { json.member("status", status) }
                if let seconds = failure.retryAfterSeconds { json.member("retry-after", seconds) }
            }
            if let url = terminal.url { json.member("url", url) }
            guard let response = terminal.response else { return }
            json.member("source", response.source.rawValue)
            json.member("length", response.bodyByteCount)
            if let hash = response.sha256 { json.member("sha-256", hash) }
            json.member("attempts", response.attempts)
            json.member("queued-ms", response.queuedMilliseconds)
            json.member("elapsed-ms", response.elapsedMilliseconds)
            json.member("fields") { json in
                json.array(HeaderFields(lines: response.httpFields).map(\.self)) { json, field in
                    json.object { json in
                        json.member("name", String(decoding: field.name, as: UTF8.self))
                        json.member("value", String(decoding: field.value, as: UTF8.self))
                    }
                }
            }
        }
        return json.bytes
    }
}
