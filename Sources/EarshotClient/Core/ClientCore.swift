internal import DequeModule
internal import EarshotLoop
internal import EarshotWire

/// State machine of a client: open requests, subscriptions and answers, over any number of connections.
///
/// All of them outlive connections and brokers. After each WELCOME the core repeats the removals without an answer,
/// then the subscriptions, each open request, and the other messages without an answer. A repeated request is
/// idempotent, and its terminal is delivered once.
///
/// With a lease, WELCOME may state that the broker kept the session. Then the core repeats only the messages that the
/// broker did not receive. It recognises repeated terminals by their sequence numbers, and the broker repeats lost
/// answers. Each answer names its message by number.
struct ClientCore {
    /// State of the connection: `disconnected -> greeting -> ready`, and from both back to `disconnected`.
    enum Phase: Equatable {
        /// Disconnected.
        case disconnected
        /// HELLO is sent; WELCOME is pending.
        case greeting
        /// WELCOME was received. Messages are sent immediately.
        case ready
    }

    /// Message whose answer is pending.
    enum Awaited: Equatable {
        case cancel(RequestKey)
        /// Repetition of a durable request. Its answer is ACCEPTED, FAILED without a number, or ERROR.
        case retry(RequestKey)
        /// Removal of a request whose ID is used again. Messages before its answer concern the old request.
        case removeReplaced(RequestKey)
        case remove(HandlerPattern)
        case query(Query, QueryPage)
        /// TAKE of the file of a terminal with this sequence number.
        case takeFile(UInt64)
        case changeSetting(SettingWords)
        /// Request without subscription. Its answer is OK, or as that of a repetition if it is durable.
        case submitRequest(Fetch)
    }

    /// A message that awaits an answer.
    struct PendingMessage {
        let content: Awaited
        /// Position in the order of creation, in which submissions and requests are repeated.
        let creationOrder: UInt64
        /// Number of the message in the session.
        var messageNumber: UInt64
        /// Whether it was sent, in any session.
        var wasSent: Bool
        /// Whether a broker that accepts no requests has refused this submission, which waits for the next broker.
        var isRefused = false
    }

    /// Maximum removals that wait for a connection: one for each of 10,000 handlers, with names of up to 200 bytes. At
    /// the bound a further removal is refused, so a program without a broker cannot fill its memory.
    static let maximumUnsentRemovals = 10_000
    /// Maximum refusals of a resumption with `session-in-use` before a new session is started.
    static let maximumResumptionRefusals = 100

    let hello: Hello
    /// Returns the time.
    let clock: @Sendable () -> LoopTime
    /// Whether the consumer finishes every delivery; otherwise only those whose body is a file.
    let consumerFinishesDeliveries: Bool
    var phase = Phase.disconnected
    var isDraining = false
    /// Whether the broker has refused a request of this connection because it accepts none.
    var isBrokerRefusing = false
    var requests: [RequestKey: OpenRequest] = [:]
    var lastCreationOrder: UInt64 = 0
    /// Replaced requests whose terminals may still arrive, with the number of the message that proves the replacement
    /// once the broker has received it.
    var replacedRequests: [RequestKey: UInt64] = [:]
    /// Requests with a `blockingTerminalSequence`, so that an acknowledgement does not search all requests.
    var waitingRequests: Set<RequestKey> = []
    var subscriptions: [HandlerPattern] = []
    /// Cookies for the jars of handlers, in the order of the calls.
    var cookies: [StoredCookies] = []
    /// The latest broker; nil before the first WELCOME.
    var broker: BrokerInstance?
    var unansweredMessages = Deque<PendingMessage>()
    /// Submissions of lost sessions that are not idempotent.
    var lostSubmissions: [RequestKey] = []
    var deliveryLedger = DeliveryLedger()
    /// Bodies that the broker sends.
    var pulls = BodyPulls()
    /// Whether the broker sends the bodies that it has in files.
    var isPulling = false
    /// Whether the consumer moves files of its own requests, so that the core requests their ownership.
    var takesFiles = false
    /// Terminals that wait for TAKEN, by sequence number.
    var terminalsAwaitingTaken: [UInt64: DeliveredTerminal] = [:]
    /// Number of sessions. It distinguishes late deliveries of a lost session.
    var sessionNumber: UInt64 = 0
    /// Token to resume the session; nil if the next connection starts a new one.
    var sessionToken: SessionToken?
    /// Folder of body files, as named by the last broker.
    var spool: String?
    /// Numbers of the session's messages.
    var sentNumbers = SentNumbers()
    /// FETCHes that an ERROR may name.
    var sentFetches = SentFetches()
    /// SUBSCRIBE, UNSUBSCRIBE, PRIORITY and COOKIES that the broker may not have received. Empty without a lease.
    var noticeLog = NoticeLog()
    /// Unanswered removals while disconnected.
    var unsentRemovals = 0
    /// Consecutive refusals of a resumption with `session-in-use`.
    var resumptionRefusals = 0

    init(
        hello: Hello, consumerFinishesDeliveries: Bool = false,
        clock: @escaping @Sendable () -> LoopTime = LoopTime.readClock
    ) {
        self.hello = hello
        self.clock = clock
        self.consumerFinishesDeliveries = consumerFinishesDeliveries
    }

    // MARK: The connection

    /// Handles a new connection. Messages wait in the shell until it is established.
    mutating func linkOpened() -> [ClientAction] {
        phase = .greeting
        updateUnsentRemovalCount()
        var hello = hello
        hello.token = sessionToken
        if sessionToken != nil { hello.firstUnansweredNumber = sentNumbers.lowestUnansweredNumber }
        return [.send(.hello(hello))]
    }

    /// Handles the loss of the connection. Without a lease this ends the session.
    mutating func linkLost() -> [ClientAction] {
        let wasDisconnected = phase == .disconnected
        phase = .disconnected
        isDraining = false
        isBrokerRefusing = false
        if noticeLog.isFull { sessionToken = nil }
        pulls.voidAllReads()
        let lost = sessionToken == nil ? endSession() : []
        updateUnsentRemovalCount()
        return (wasDisconnected ? [] : [.report(.stateChanged(.disconnected))]) + lost
    }

    private mutating func updateUnsentRemovalCount() {
        unsentRemovals = unansweredMessages.count { if case .remove = $0.content { true } else { false } }
    }

    /// Ends the client: BYE ends the lease.
    mutating func endClient() -> [ClientAction] {
        guard phase == .ready, sessionToken != nil else { return [] }
        sessionToken = nil
        return [.send(.bye)]
    }

    /// Handles a message of the broker.
    ///
    /// - Parameter count: number of bytes in its body.
    mutating func messageReceived(_ message: consuming NumberedAnswer, count: Int = 0) -> [ClientAction] {
        let actions = handleAnswer(message, count)
        return sentNumbers.hasHeldMessages ? actions + sendHeldMessages() : actions
    }

    private mutating func handleAnswer(_ answer: consuming NumberedAnswer, _ count: Int) -> [ClientAction] {
        // About an earlier message: the refusal of HELLO has no number.
        if case .error = answer.message, phase != .ready, answer.answeredNumber != nil { return [] }
        var number = phase == .ready ? answer.answeredNumber : nil
        // The broker did not carry out the message, which is sent to it again.
        if case .error(let reply) = answer.message, reply.code == "hello-required" { number = nil }
        if case .terminal(let terminal) = answer.message { return terminalReceived(terminal, answering: number) }
        let requested = number.flatMap { recordAnswer(to: $0) }
        switch answer.message {
        case .welcome(let welcome): return welcomeReceived(welcome)
        case .fetchAccepted(let handler, let request):
            let key = RequestKey(handler, request)
            let isOpen = requested != nil || number != nil && requests[key]?.messageNumber == number
            return isOpen && !hasPendingRemoval(key) ? [.report(.accepted(key))] : []
        // Returned above.
        case .terminal: return []
        case .progress(let progress): return progressReceived(progress)
        case .handlersRemoved(_, let count):
            guard case .remove(let pattern)? = requested else { return [] }
            return [.report(.removed(pattern, count: count))]
        case .requestRemoved(_, _, let wasOpen):
            guard case .cancel(let key)? = requested else { return [] }
            return [.report(.cancelled(key, wasOpen: wasOpen))]
        case .queryAnswer:
            guard case .query(let query, _)? = requested else { return [] }
            return [.report(.queryAnswered(query))]
        case .settingChanged(let setting):
            guard case .changeSetting? = requested else { return [] }
            return [.report(.settingChanged(setting))]
        case .bodyData(let data): return dataReceived(data, count: count)
        case .fileTaken(_, let path):
            guard case .takeFile(let sequence)? = requested else { return [] }
            return fileTaken(sequence, path)
        case .error(let reply): return messageRefused(reply, answering: number, requested)
        case .ok: return []
        case .goodbye(let reason):
            guard reason == "draining" else { return [.reconnect] }
            isDraining = true
            return [.report(.stateChanged(.draining))]
        }
    }

    /// Acknowledges all deliveries finished in a pass with one ACK, and continues to read bodies.
    mutating func passEnded() -> [ClientAction] { acknowledge() + continueReading() }

    /// Returns a message with its number. The shell calls it for each message that it sends, in their order.
    mutating func numbered(_ message: ClientMessage) -> NumberedMessage { sentNumbers.numbered(message) }

    private mutating func acknowledge() -> [ClientAction] {
        guard phase == .ready, let sequence = deliveryLedger.takeAcknowledgement() else { return [] }
        pulls.terminalsAcknowledged(sequence)
        var actions = send(.acknowledge(sequence))
        for key in waitingRequests {
            guard let blocking = requests[key]?.blockingTerminalSequence, blocking <= sequence else { continue }
            waitingRequests.remove(key)
            requests[key]?.blockingTerminalSequence = nil
            if !isDraining { actions += sendOpenRequest(key) }
        }
        return actions
    }

    /// Whether requests wait for the next broker, because the last one accepted none. O(requests).
    var areRequestsHeld: Bool {
        if unansweredMessages.contains(where: \.isRefused) { return true }
        return (isDraining || isBrokerRefusing)
            && requests.values.contains { $0.messageNumber == .max && $0.blockingTerminalSequence == nil }
    }

    // MARK: Calls of the consumer

    /// Starts a request, or a submission if `subscribes` is false.
    ///
    /// - Parameter old: open requests of the handler, if this one replaces them; nil searches all requests in
    ///   O(requests).
    mutating func fetch(_ fetch: Shared<Fetch>, inPlaceOf old: [RequestKey]? = nil) -> [ClientAction] {
        guard fetch.value.options.subscribes else { return sendAwaitingAnswer(.submitRequest(fetch.value)) }
        guard fetch.value.options.replacesHandler else { return submit(fetch, missingFileCount: 0) }
        let replacedKeys = forgetRequests(of: .handler(fetch.value.handler), among: old)
        for key in replacedKeys { replacedRequests[key] = .max }
        let actions = submit(fetch, missingFileCount: 0)
        if phase == .ready {
            for key in replacedKeys where replacedRequests[key] != nil {
                replacedRequests[key] = sentNumbers.lastAssignedNumber
            }
        }
        return actions
    }

    mutating func cancel(_ key: RequestKey) -> [ClientAction] {
        let request = requests.removeValue(forKey: key)
        if request == nil { forgetSubmissions { $0 == key } }
        waitingRequests.remove(key)
        discardBodies { $0 == key }
        // The broker does not know the request: no REMOVE, because those would accumulate without bound while
        // disconnected.
        if request?.isUnknownToBroker == true { return [.report(.cancelled(key, wasOpen: true))] }
        return sendAwaitingAnswer(.cancel(key))
    }

    mutating func retry(_ key: RequestKey) -> [ClientAction] { sendAwaitingAnswer(.retry(key)) }

    /// - Parameter old: open requests of the pattern; nil searches all requests in O(requests).
    /// - Returns: nil if the removal is refused, because `maximumUnsentRemovals` wait for a connection. Nothing
    ///   changes.
    mutating func remove(_ pattern: HandlerPattern, _ old: [RequestKey]? = nil) -> [ClientAction]? {
        if phase != .ready {
            guard unsentRemovals < Self.maximumUnsentRemovals else { return nil }
            unsentRemovals += 1
        }
        forgetRequests(of: pattern, among: old)
        cookies.removeAll { pattern.matches($0.handler) }
        // A subscription to a subtree stays.
        subscriptions.removeAll { if case .handler(let handler) = $0 { pattern.matches(handler) } else { false } }
        return sendAwaitingAnswer(.remove(pattern))
    }

    mutating func subscribe(_ pattern: HandlerPattern) -> [ClientAction] {
        guard !subscriptions.contains(pattern) else { return [] }
        subscriptions.append(pattern)
        return sendNotice(.subscribe(pattern))
    }

    mutating func unsubscribe(_ pattern: HandlerPattern) -> [ClientAction] {
        subscriptions.removeAll { $0 == pattern }
        return sendNotice(.unsubscribe(pattern))
    }

    /// Stores cookies in the jar of a handler's root, and again in that of each later broker until the handler is
    /// removed.
    ///
    /// - Parameter fields: `Set-Cookie` fields of the URL's server, separated by LF.
    mutating func storeCookies(_ fields: [UInt8], from url: String, for handler: HandlerID) -> [ClientAction] {
        let message = ClientMessage.storeCookies(handler, url: url, fields: fields)
        cookies.append(StoredCookies(handler: handler, cookiesMessage: message, broker: phase == .ready ? broker : nil))
        return sendNotice(message)
    }

    mutating func setPriority(_ key: RequestKey, _ priority: PriorityClass) -> [ClientAction] {
        if var fetch = requests[key]?.fetch.value {
            fetch.options.priority = priority
            requests[key]?.fetch = Shared(fetch)
        }
        return sendNotice(.setPriority(key.handler, key.request, priority))
    }

    mutating func query(_ query: Query, _ page: QueryPage = QueryPage()) -> [ClientAction] {
        sendAwaitingAnswer(.query(query, page))
    }

    mutating func changeSetting(_ setting: SettingWords) -> [ClientAction] {
        sendAwaitingAnswer(.changeSetting(setting))
    }

    /// Returns whether a delivery belongs to the current session.
    func isOfCurrentSession(_ id: DeliveredTerminal.ID) -> Bool { id.sessionNumber == sessionNumber }

    /// Finishes a delivery. Deliveries of earlier sessions have no effect.
    mutating func finishDelivery(_ id: DeliveredTerminal.ID) {
        guard isOfCurrentSession(id) else { return }
        deliveryLedger.finish(id.sequence)
    }

    /// Repeats the request of a delivery whose file the consumer cannot read.
    ///
    /// - Returns: nil if the request lost its file too often, is not idempotent, or belongs to another client.
    mutating func resubmitRequest(of delivery: DeliveredTerminal) -> [ClientAction]? {
        finishDelivery(delivery.id)
        guard var fetch = delivery.fetch, fetch.options.isRepeatable,
            delivery.missingFileCount < OpenRequest.maximumMissingFiles
        else { return nil }
        // The first attempt replaced the earlier requests of the handler. A second REPLACE would purge later ones.
        fetch.options.replacesHandler = false
        return submit(Shared(fetch), missingFileCount: delivery.missingFileCount + 1)
    }
}

/// Cookies that the consumer stored in a jar of the broker, to be stored again in the empty jars of another broker.
struct StoredCookies {
    let handler: HandlerID
    /// The message that carries them.
    let cookiesMessage: ClientMessage
    /// Broker to which the message was sent; nil for none.
    var broker: BrokerInstance?
}

/// Reference to a large immutable value, passed without copies.
final class Shared<Value: Sendable & Equatable>: Sendable, Equatable {
    let value: Value

    init(_ value: Value) {
        self.value = value
    }

    static func == (left: Shared, right: Shared) -> Bool { left === right || left.value == right.value }
}
