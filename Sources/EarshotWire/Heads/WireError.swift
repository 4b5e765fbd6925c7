/// Why a head was refused.
///
/// Names verb, handler and request of the message as far as its first line could be read, so that the answer names them.
public struct WireError: Error, Equatable, Sendable {
    /// A code of the table in `protocols/3-CODES.md`, section "Errors".
    public struct Code: RawRepresentable, Hashable, Sendable {
        public let rawValue: String

        public init(rawValue: String) {
            self.rawValue = rawValue
        }

        /// The head does not follow the grammar, or a value is out of its range.
        public static let badMessage = Code(rawValue: "bad-message")
        /// The verb is not one of this protocol's.
        public static let unknownVerb = Code(rawValue: "unknown-verb")
        /// The peer speaks another version.
        public static let version = Code(rawValue: "version")
        /// The head, or one value in it, is over its bound.
        public static let limit = Code(rawValue: "limit")
    }

    public var code: Code
    /// A sentence about what to change; holds nothing the peer supplied.
    public var detail: String
    /// The verb, when it was one of the protocol's.
    public var verb: String?
    public var handler: HandlerID?
    public var request: RequestID?
    /// The attempt a worker's DONE or FAILED was about: it has ended, though not how can be read.
    public var attempt: AttemptID?

    public init(_ code: Code, _ detail: String) {
        self.code = code
        self.detail = detail
    }
}
