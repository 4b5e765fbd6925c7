internal import EarshotLoop
package import EarshotWire

/// Request without a terminal, which `ClientCore` keeps to send it to the next broker again.
struct OpenRequest: Equatable {
    /// Maximum repetitions of a request whose file was missing: a broker can end twice in succession.
    static let maximumMissingFiles = 3

    var fetch: Shared<Fetch>
    /// Position in the order of creation, in which requests are repeated.
    let creationOrder: UInt64
    /// Time of the creation. The next broker learns the age of a request.
    let createdAt: LoopTime
    /// Number of deliveries whose file was missing.
    var missingFileCount = 0
    /// Number of the terminal that must be acknowledged first, because it occupies the ID; nil if the request can be
    /// sent.
    var blockingTerminalSequence: UInt64?
    /// Number of its message in the session; `.max` if it was not sent in it.
    var messageNumber = UInt64.max
    /// Whether it was sent over any connection. A repetition does not replace the handler's requests again.
    var wasSent = false
    /// Whether it was sent in a lost session and is not idempotent: the server may have processed it.
    var mayHaveBeenProcessed = false

    /// Whether the broker neither knows the request nor has to purge others for it.
    var isUnknownToBroker: Bool {
        messageNumber == .max && blockingTerminalSequence == nil && !options.isDurable
            && !(options.replacesHandler && !wasSent)
    }

    private var options: Fetch.Options { fetch.value.options }

    /// Handles the loss of its session.
    mutating func sessionLost() {
        mayHaveBeenProcessed = mayHaveBeenProcessed || wasSent && !options.isRepeatable
        messageNumber = .max
    }

    /// Returns the FETCH to send at this time.
    mutating func takeFetchMessage(now: LoopTime) -> ClientMessage {
        defer { wasSent = true }
        let age = (now.nanoseconds - createdAt.nanoseconds) / 1_000_000
        guard wasSent || age > 0 else { return .fetch(fetch.value) }
        var fetch = fetch.value
        if wasSent { fetch.options.replacesHandler = false }
        fetch.options.ageMilliseconds = min(max(0, Int(age)), WireLimits.durationSeconds * 1_000)
        return .fetch(fetch)
    }
}

/// Identity of a request in the broker: its handler, and the ID chosen by the client.
package struct RequestKey: Hashable, Sendable {
    /// Handler of the request.
    package var handler: HandlerID
    /// ID of the request under its handler.
    package var request: RequestID

    /// Creates a key.
    ///
    /// - Parameters:
    ///   - handler: handler of the request.
    ///   - request: ID of the request under its handler.
    package init(_ handler: HandlerID, _ request: RequestID) {
        self.handler = handler
        self.request = request
    }

    init(_ fetch: Fetch) {
        self.init(fetch.handler, fetch.request)
    }
}

/// Refusal of a message by the broker, or a message of the broker that this version cannot read.
package struct RefusedMessage: Equatable, Sendable {
    /// The refused message.
    package enum Subject: Equatable, Sendable {
        case hello
        case fetch(RequestKey)
        case retry(RequestKey)
        case query
        case other
    }

    /// A code of the table in `protocols/8-codes.md`, or one of the library.
    package var code: String
    /// Sentence for users: the reason, and the change that is needed.
    package var detail: String?
    package var subject: Subject

    package init(_ subject: Subject, code: String, detail: String? = nil) {
        self.subject = subject
        self.code = code
        self.detail = detail
    }

    init(_ subject: Subject, _ reply: ErrorReply) { self.init(subject, code: reply.code, detail: reply.detail) }

    /// The request of a refused FETCH or RETRY.
    package var key: RequestKey? {
        switch subject {
        case .fetch(let key), .retry(let key): key
        case .hello, .query, .other: nil
        }
    }
}
