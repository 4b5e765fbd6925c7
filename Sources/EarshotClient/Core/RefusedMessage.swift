internal import EarshotWire

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
    /// Sentence that says what to change.
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
