internal import EarshotWire

/// Client program, which repeats its open requests after a disconnection.
struct SimulatedClient {
    /// One of its requests: numbers of handler and request ID.
    struct Want: Hashable, Comparable {
        var handler: Int
        var request: Int

        static func < (left: Want, right: Want) -> Bool {
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
    var lease: Int
    /// Token from the WELCOME of its session.
    var token: SessionToken?
    /// Whether it awaits a WELCOME before sending more, because a resumed session may need no repetition.
    var awaitsWelcome = false
    var wantedFetches: [Want: Fetch] = [:]
    /// Numbers of the messages of its session.
    var numbers = SimulatedNumbers()
    /// Last terminal received in its session.
    var received: UInt64 = 0
    var willAcknowledge = false
}

/// Numbers of a client's messages, and the messages whose answers it lacks.
struct SimulatedNumbers {
    /// Messages without an answer, oldest first. A FETCH leaves with the answer to a later message.
    private var open: [(number: UInt64, message: ClientMessage)] = []
    private var lastSent: UInt64 = 0
    private var lastAnswered: UInt64 = 0
    /// Numbers whose answers the present connection may bring a second time.
    private var repeatedNumbers: ClosedRange<UInt64>?
    /// Number of HELLOs without WELCOME. Until then answers belong to the session before BYE.
    private var greetings = 0

    /// Number of the last message; nil before the first one.
    var lastNumber: UInt64? { lastSent > 0 ? lastSent : nil }

    /// The number that HELLO names.
    var unanswered: UInt64 {
        min(open.first { $0.message.countsAsUnanswered }?.number ?? .max, lastAnswered + 1)
    }

    /// Begins a new session.
    mutating func begin() {
        open = []
        (lastSent, lastAnswered) = (0, 0)
        repeatedNumbers = nil
    }

    mutating func helloSent(unanswered: UInt64?) {
        greetings = greetings > 0 && unanswered == nil ? greetings + 1 : 1
        repeatedNumbers = unanswered.map { $0...max($0, lastSent) }
    }

    mutating func welcomed() { greetings = max(0, greetings - 1) }

    /// Numbers a message. Some numbers are skipped.
    mutating func sent(_ message: ClientMessage) -> NumberedMessage {
        guard message.canHaveNumber else { return NumberedMessage(message) }
        lastSent += lastSent % 13 == 12 ? 3 : 1
        open.append((lastSent, message))
        return NumberedMessage(message, number: lastSent)
    }

    /// Returns a message without an answer.
    func message(_ number: UInt64) -> ClientMessage? { open.first { $0.number == number }?.message }

    /// Handles an answer.
    /// - Returns: false for a second one.
    mutating func answered(_ number: UInt64) -> Bool {
        guard greetings == 0 else { return true }
        guard let index = open.firstIndex(where: { $0.number == number }) else {
            return repeatedNumbers?.contains(number) == true
        }
        open.remove(at: index)
        lastAnswered = max(lastAnswered, number)
        open.removeAll { entry in
            if case .fetch = entry.message { entry.number < number } else { false }
        }
        return true
    }

    /// Resumes the session.
    /// - Parameter number: last number that the broker knows.
    /// - Returns: messages to repeat, and queries to ask again.
    mutating func resumed(after number: UInt64) -> (messages: [NumberedMessage], queries: [ClientMessage]) {
        let isLost: ((number: UInt64, message: ClientMessage)) -> Bool = { entry in
            if case .query = entry.message { entry.number <= number } else { false }
        }
        let queries = open.filter(isLost).map(\.message)
        open.removeAll(where: isLost)
        let messages = open.filter { $0.number > number }.map { NumberedMessage($0.message, number: $0.number) }
        return (messages, queries)
    }
}
