import EarshotLoop
import EarshotWire
import Testing

@testable import EarshotClient

let hello = Hello()
/// Clock that stands still, so that no request states an age.
let stoppedClock: @Sendable () -> LoopTime = { LoopTime(nanoseconds: 0) }
let handler = HandlerID("gallery/1")!

func key(_ request: String) -> RequestKey { RequestKey(handler, RequestID(request)!) }

func requestRemoved(_ request: String) -> BrokerMessage {
    .requestRemoved(handler, key(request).request, wasOpen: true)
}

func pattern(_ text: String) -> HandlerPattern { HandlerPattern(text)! }

func fetch(_ request: String) -> Fetch {
    Fetch(handler: handler, request: RequestID(request)!, url: "http://127.0.0.1/\(request)")
}

func welcome(_ instance: UInt64, isPulling: Bool = false) -> BrokerMessage {
    var welcome = Welcome(broker: BrokerInstance(rawValue: instance), window: 256)
    welcome.pullsBodies = isPulling
    return .welcome(welcome)
}

func result(_ request: String, sequence: UInt64, file: String? = nil) -> Terminal {
    var response = Terminal.Response(url: "http://127.0.0.1/\(request)")
    response.bodyFilePath = file
    return Terminal(
        handler: handler, request: RequestID(request)!, sequence: sequence,
        outcome: .result(status: 200, response))
}

func progress(_ request: String) -> Progress {
    Progress(handler: handler, request: RequestID(request)!, receivedBytes: 1, totalBytes: 2)
}

/// Returns a core after WELCOME.
func ready() -> ClientCore {
    var core = ClientCore(hello: hello, clock: stoppedClock)
    _ = core.linkOpened()
    _ = core.received(welcome(1))
    return core
}

func reconnect(_ core: inout ClientCore) {
    _ = core.linkLost()
    _ = core.linkOpened()
    _ = core.received(welcome(2))
}

func sent(_ actions: [ClientAction]) -> [ClientMessage] {
    actions.compactMap { if case .send(let message) = $0 { message } else { nil } }
}

func delivery(_ actions: [ClientAction]) -> DeliveredTerminal? {
    guard case .deliver(let delivery)? = actions.first else { return nil }
    return delivery
}

func deliveries(_ actions: [ClientAction]) -> [Terminal] {
    actions.compactMap { if case .deliver(let delivery) = $0 { delivery.terminal } else { nil } }
}

let token = SessionToken(highBits: 1, lowBits: 2)

/// Returns the WELCOME of a broker that grants a lease.
///
/// `lastReceived` is the last number of a resumed session.
func welcome(_ instance: UInt64, lastReceived: UInt64?) -> BrokerMessage {
    var welcome = Welcome(broker: BrokerInstance(rawValue: instance), window: 256)
    welcome.leaseMilliseconds = 5_000
    welcome.token = token
    welcome.lastReceivedNumber = lastReceived
    return .welcome(welcome)
}

/// Returns whether a broker message is an answer to a message of this kind.
func isAnswer(_ answer: BrokerMessage, to message: ClientMessage) -> Bool {
    switch (answer, message) {
    case (.handlersRemoved(let pattern, _), .removeHandlers(let requested)): pattern == requested
    case (.requestRemoved(let handler, let request, _), .removeRequest(let requested, let of)):
        handler == requested && request == of
    case (.queryAnswer(let query), .query(let requested, _)): query == requested
    case (.settingChanged, .changeSetting): true
    case (.fileTaken(let sequence, _), .takeFile(let requested)): sequence == requested
    case (.fetchAccepted(let handler, let request), _): isAbout(handler, request, message)
    case (.terminal(let terminal), _) where terminal.sequence == 0:
        isAbout(terminal.handler, terminal.request, message)
    case (.ok, _): message.isAnsweredByOK
    default: false
    }
}

private func isAbout(_ handler: HandlerID, _ request: RequestID, _ message: ClientMessage) -> Bool {
    switch message {
    case .fetch(let fetch): fetch.handler == handler && fetch.request == request
    case .retry(let requested, let of): requested == handler && of == request
    default: false
    }
}

/// Returns whether a message is the one that a broker refuses.
func isSame(_ message: ClientMessage, _ refused: ClientMessage) -> Bool {
    if case (.fetch(let fetch), .fetch(let other)) = (message, refused) {
        return fetch.handler == other.handler && fetch.request == other.request
    }
    return message == refused
}

extension ClientCore {
    private var openMessages: [(number: UInt64, message: ClientMessage)] {
        let questions = unansweredMessages.map { ($0.messageNumber, $0.content.message) }
        let sent = requests.values.filter { $0.messageNumber < .max }
        let fetches = sent.map { ($0.messageNumber, ClientMessage.fetch($0.fetch.value)) }
        let others = noticeLog.entries.map { ($0.number, $0.message) }
        return (questions + fetches + others).sorted { $0.0 < $1.0 }
    }

    /// Handles the answer to the first message of its kind, or another message.
    mutating func received(_ message: BrokerMessage, count: Int = 0) -> [ClientAction] {
        let to = message.isReply ? openMessages.first { isAnswer(message, to: $0.message) }?.number : nil
        return messageReceived(NumberedAnswer(message, answeredNumber: to), count: count)
    }

    /// Handles the refusal of an open message.
    mutating func refused(_ message: ClientMessage, _ reply: ErrorReply) -> [ClientAction] {
        let to = openMessages.first { isSame($0.message, message) }?.number
        return messageReceived(NumberedAnswer(.error(reply), answeredNumber: to))
    }

    mutating func fetch(_ fetch: Fetch) -> [ClientAction] { self.fetch(Shared(fetch)) }
}

extension EventLoop {
    /// Returns the passes in 100 ms of a loop without work. The first ones process events of a connection's start, on a busy
    /// machine over a longer time.
    func idlePasses() throws -> Int {
        var passes = 0
        let hook = addHook {
            passes += 1
            return .untilEvent
        }
        defer { removeHook(hook) }
        for _ in 0..<20 {
            passes = 0
            try run(for: .milliseconds(100)) { false }
            if passes <= 2 { break }
        }
        return passes
    }
}

extension ClientMessage {
    /// The same message, of a request that did not wait for its broker.
    var withoutAge: ClientMessage {
        guard case .fetch(var fetch) = self else { return self }
        fetch.options.ageMilliseconds = 0
        return .fetch(fetch)
    }
}
