internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// Session of the API at the broker. It outlives the HTTP connections that use it, and keeps results until they are
/// acknowledged.
final class APISession {
    /// Number of results that the broker sends without an acknowledgement.
    static let window = 32
    /// Batches that wait for the answers to an earlier one.
    private static let mostBatches = 8
    /// Bytes of bodies in these batches.
    private static let mostWaitingBytes = 8 << 20

    /// Bytes of bodies that the results have in memory. Those of the API's own requests are in files.
    private static let mostBodyBytes = 2 << 20

    /// A terminal without an acknowledgement.
    struct Result {
        let terminal: Terminal
        /// The body, if it is in no file; nil for one beyond the bound.
        let body: [UInt8]?
        let json: [UInt8]

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
        let finish: ([Answer?]?) -> Void
        var firstNumber: UInt64 = 0
        var answers: [Answer?] = []
        var missingAnswers = 0
    }

    let user: UInt32
    /// Name under which other requests find the session; empty for one of a single operation.
    let token: String
    private(set) var results: [Result] = []
    /// Called after each new result, and at the end.
    var onResult: () -> Void = {}
    private(set) var isEnded = false
    private var reader: Reader?
    /// Ends the wait of a long poll, and the session without requests.
    var (readerTimer, expiry): (TimerID?, TimerID?) = (nil, nil)
    private var link: DoorSession?
    private var lastNumber: UInt64 = 0
    private var lastSequence: UInt64 = 0
    private var batches: [Batch] = []
    /// Responses with the body of a result. Their connections own them, so an open file closes with the response.
    private var exchanges: [WeakExchange] = []

    private struct WeakExchange {
        weak var exchange: Exchange?
    }

    init(
        user: UInt32, token: String, _ open: (@escaping () -> Void) -> DoorSession?,
        onReady: @escaping (APISession) -> Void
    ) {
        self.user = user
        self.token = token
        link = open { [unowned self] in onReady(self) }
        isEnded = link == nil
    }

    /// Whether a request or a reader waits.
    var isUsed: Bool {
        if case .stream(let peer, _)? = reader { return peer.phase != .closed }
        return reader != nil || !batches.isEmpty
    }

    // MARK: Requests

    /// Sends messages after the answers to earlier ones. Returns false if too many wait.
    func perform(_ messages: [ClientMessage], _ finish: @escaping ([Answer?]?) -> Void) -> Bool {
        let bytes = (batches.flatMap(\.messages) + messages).reduce(0) { $0 + ($1.body?.count ?? 0) }
        guard batches.isEmpty || batches.count < Self.mostBatches && bytes <= Self.mostWaitingBytes else {
            return false
        }
        batches.append(Batch(messages: messages, finish: finish))
        if batches.count == 1 { begin() }
        return true
    }

    private func begin() {
        guard let link, !batches.isEmpty else { return end() }
        batches[0].firstNumber = lastNumber + 1
        // A FETCH may have no answer. The last one shows that all were carried out.
        let messages = batches[0].messages + [.query(.ping)]
        batches[0].answers = Array(repeating: nil, count: messages.count)
        batches[0].missingAnswers = messages.count { !Self.mayLackAnswer($0) }
        for message in messages {
            lastNumber += 1
            link.send(message, number: lastNumber)
        }
    }

    private static func mayLackAnswer(_ message: ClientMessage) -> Bool {
        guard case .fetch(let fetch) = message else { return false }
        return fetch.options.subscribes && !fetch.options.isDurable
    }

    /// Acknowledges results. Returns false for a number that no result had.
    func acknowledge(_ sequence: UInt64) -> Bool {
        guard sequence <= lastSequence else { return false }
        results.removeAll { $0.sequence <= sequence }
        link?.send(.acknowledge(sequence))
        return true
    }

    /// Ends the session, and with it its requests that are not durable.
    func end() {
        isEnded = true
        link?.close()
        link = nil
        let unanswered = batches
        batches = []
        for batch in unanswered { batch.finish(nil) }
        for case let exchange? in exchanges.map(\.exchange) where !exchange.isOver {
            exchange.fail(ProxyResponse.brokerUnavailable)
        }
        exchanges = []
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
    func deliver(_ loop: EventLoop) {
        switch reader {
        case .poll(let count, _) where results.count >= count: replaceReader(with: nil, loop)
        case .stream(let peer, let last):
            for result in results where result.sequence > last {
                peer.send(event: Array("id: \(result.sequence)\ndata: ".utf8) + result.json + [10, 10])
            }
            reader = .stream(peer, after: max(last, results.last?.sequence ?? 0))
        case .poll, nil: break
        }
        if isEnded { replaceReader(with: nil, loop) }
    }

    /// Answers with the response of a result.
    func answer(_ exchange: Exchange, with result: Result) {
        guard let body = result.body else { return exchange.fail(ProxyResponse.dropped) }
        exchanges.removeAll { $0.exchange?.isOver ?? true }
        exchanges.append(WeakExchange(exchange: exchange))
        exchange.received(result.terminal, body: body)
    }

    func read(_ read: BodyRead) { link?.send(.read(read)) }

    /// Handles messages of the broker. Returns whether more are there already.
    func turn() -> Bool {
        let before = lastSequence
        while let (answer, body) = link?.next() {
            if case .terminal(let terminal) = answer.message, terminal.sequence > 0 {
                received(terminal, body)
            } else if case .data(let data) = answer.message {
                for entry in exchanges { entry.exchange?.received(data, body) }
            } else if let number = answer.to {
                received(answer.message, body, to: number)
            } else if case .error = answer.message {
                // The proof is that of an earlier broker.
                end()
            }
        }
        if link?.isEnded == true { end() } else if lastSequence != before { onResult() }
        return link?.hasPending ?? false
    }

    private func received(_ terminal: Terminal, _ body: [UInt8]) {
        guard terminal.sequence > lastSequence else { return }
        lastSequence = terminal.sequence
        let isKept = results.reduce(body.count) { $0 + ($1.body?.count ?? 0) } <= Self.mostBodyBytes
        results.append(Result(terminal: terminal, body: isKept ? body : nil, json: Self.json(terminal)))
    }

    private func received(_ message: BrokerMessage, _ body: [UInt8], to number: UInt64) {
        guard let batch = batches.first, number >= batch.firstNumber,
            number - batch.firstNumber < UInt64(batch.answers.count)
        else {
            return
        }
        let index = Int(number - batch.firstNumber)
        let isLate = index < batch.messages.count && Self.mayLackAnswer(batch.messages[index])
        if batch.answers[index] == nil, !isLate { batches[0].missingAnswers -= 1 }
        batches[0].answers[index] = (message, body)
        guard batches[0].missingAnswers == 0 else { return }
        let done = batches.removeFirst()
        if !batches.isEmpty { begin() }
        done.finish(done.answers.dropLast())
    }

    /// Describes a terminal for clients of the API.
    private static func json(_ terminal: Terminal) -> [UInt8] {
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
            json.member("length", response.length)
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
