/// Reason why a reader of this module rejected a head: code and detail of an ERROR.
public struct WireError: Error, Equatable, Sendable {
    /// A code of the table in `protocols/8-codes.md`, section "Errors".
    public struct Code: RawRepresentable, Hashable, Sendable {
        public let rawValue: String

        public init(rawValue: String) {
            self.rawValue = rawValue
        }

        /// The head violates the grammar, or a value is out of range.
        public static let badMessage = Code(rawValue: "bad-message")
        /// The protocol has no such verb.
        public static let unknownVerb = Code(rawValue: "unknown-verb")
        /// The peer speaks another version.
        public static let unsupportedVersion = Code(rawValue: "version")
        /// The head, or a value in it, exceeds its bound.
        public static let limitExceeded = Code(rawValue: "limit")
    }

    public var code: Code
    /// Sentence with the remedy, without peer-supplied text.
    public var detail: String
    /// The number of a client's message, if it is legible.
    public var messageNumber: UInt64?
    /// The attempt of a DONE or FAILED that could not be parsed. The attempt has ended with an unknown outcome.
    public var attempt: AttemptID?

    public init(_ code: Code, _ detail: String) {
        self.code = code
        self.detail = detail
    }
}
