internal import EarshotWire

/// Client program, which repeats its open requests after a disconnection.
struct SimulatedClient {
    /// One of its requests: numbers of handler and request ID.
    struct WantedRequest: Hashable, Comparable {
        var handler: Int
        var request: Int

        static func < (left: WantedRequest, right: WantedRequest) -> Bool {
            (left.handler, left.request) < (right.handler, right.request)
        }
    }

    var link: UInt64?
    /// Delivery window.
    var window: Int
    var isSlow: Bool
    /// Principal for which it acts; nil for the administrator.
    var principal: PrincipalName?
    /// Numbers of the handlers it uses.
    var handlers: [Int]
    /// Requested lease in milliseconds.
    var leaseMilliseconds: Int
    /// Token from the WELCOME of its session.
    var token: SessionToken?
    /// Whether it awaits a WELCOME before sending more, because a resumed session may need no repetition.
    var awaitsWelcome = false
    var wantedFetches: [WantedRequest: Fetch] = [:]
    /// Numbers of the messages of its session.
    var messageNumbers = SimulatedMessageNumbers()
    /// Last terminal received in its session.
    var lastReceivedTerminal: UInt64 = 0
    var hasPlannedAcknowledgement = false
}

/// Numbers of a client's messages, and the messages whose answers it lacks.
struct SimulatedMessageNumbers {
    /// Messages without an answer, oldest first. A FETCH leaves with the answer to a later message.
    private var unansweredMessages: [(number: UInt64, message: ClientMessage)] = []
    private var lastSent: UInt64 = 0
    private var lastAnswered: UInt64 = 0
    /// Numbers whose answers the present connection may bring a second time.
    private var repeatedNumbers: ClosedRange<UInt64>?
    /// Number of HELLOs without WELCOME. Until then answers belong to the session before BYE.
    private var unansweredHellos = 0

    /// Number of the last message; nil before the first one.
    var lastNumber: UInt64? { lastSent > 0 ? lastSent : nil }

    /// The number that HELLO names.
    var firstUnansweredNumber: UInt64 {
        min(unansweredMessages.first { $0.message.countsAsUnanswered }?.number ?? .max, lastAnswered + 1)
    }

    /// Begins a new session.
    mutating func beginSession() {
        unansweredMessages = []
        (lastSent, lastAnswered) = (0, 0)
        repeatedNumbers = nil
    }

    mutating func helloSent(unanswered: UInt64?) {
        unansweredHellos = unansweredHellos > 0 && unanswered == nil ? unansweredHellos + 1 : 1
        repeatedNumbers = unanswered.map { $0...max($0, lastSent) }
    }

    mutating func welcomeReceived() { unansweredHellos = max(0, unansweredHellos - 1) }

    /// Numbers a message. Some numbers are skipped.
    mutating func numberMessage(_ message: ClientMessage) -> NumberedMessage {
        guard message.canHaveNumber else { return NumberedMessage(message) }
        lastSent += lastSent % 13 == 12 ? 3 : 1
        unansweredMessages.append((lastSent, message))
        return NumberedMessage(message, number: lastSent)
    }

    /// Returns a message without an answer.
    func unansweredMessage(_ number: UInt64) -> ClientMessage? {
        unansweredMessages.first { $0.number == number }?.message
    }

    /// Handles an answer.
    /// - Returns: false for a second one.
    mutating func recordAnswer(_ number: UInt64) -> Bool {
        guard unansweredHellos == 0 else { return true }
        guard let index = unansweredMessages.firstIndex(where: { $0.number == number }) else {
            return repeatedNumbers?.contains(number) == true
        }
        unansweredMessages.remove(at: index)
        lastAnswered = max(lastAnswered, number)
        unansweredMessages.removeAll { entry in
            if case .fetch = entry.message { entry.number < number } else { false }
        }
        return true
    }

    /// Resumes the session.
    /// - Parameter number: last number that the broker knows.
    /// - Returns: messages to repeat, and queries to ask again.
    mutating func resumeSession(after number: UInt64) -> (messages: [NumberedMessage], queries: [ClientMessage]) {
        let isLost: ((number: UInt64, message: ClientMessage)) -> Bool = { entry in
            if case .query = entry.message { entry.number <= number } else { false }
        }
        let queries = unansweredMessages.filter(isLost).map(\.message)
        unansweredMessages.removeAll(where: isLost)
        let messages = unansweredMessages.filter { $0.number > number }.map {
            NumberedMessage($0.message, number: $0.number)
        }
        return (messages, queries)
    }
}
