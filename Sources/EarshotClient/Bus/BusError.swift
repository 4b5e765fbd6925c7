internal import EarshotHTTP
internal import EarshotWire
internal import Glibc

/// Failure of a request or of the bus.
///
/// ```swift
/// do {
///     let response = try await handler.fetch(url)
/// } catch let error as BusError where error.code == .httpStatus {
///     print(error.status ?? 0, error.page?.fields["content-type"] ?? "")
/// }
/// ```
public struct BusError: Error, Sendable, CustomStringConvertible {
    /// Kind of failure: a code of `protocols/8-codes.md`, or a code of this library. Later versions may add codes.
    public struct Code: Hashable, Sendable, CustomStringConvertible {
        /// Name of the code on the wire, such as `unknown-host`.
        public let name: String
        /// The ``name``.
        public var description: String { name }

        /// Creates the code with a name, for codes without a constant.
        ///
        /// - Parameter name: name on the wire, in lower case with hyphens.
        public init(_ name: String) {
            self.name = name
        }

        /// No broker runs, or none accepted a connection within the `timeout` of
        /// ``Bus/connect(to:application:timeout:lease:bodies:)``.
        public static let noBroker = Code("no-broker")
        /// No bus on the network accepts the client's key, its server key is wrong, or a key file is unusable.
        public static let notAuthorized = Code("not-authorized")
        /// The broker supports another version of the protocol.
        public static let version = Code("version")
        /// The bus was closed.
        public static let closed = Code("closed")
        /// The handler was removed, by this program or by another.
        public static let removed = Code(FailureCode.handlerRemoved.rawValue)
        /// ``Handler/replace(with:priority:_:)`` replaced the request.
        public static let replaced = Code("replaced")
        /// The request is invalid: a malformed URL, name, header field or option.
        public static let invalidRequest = Code("invalid-request")
        /// The connection was lost during a request whose method is not idempotent: the server may have processed it.
        /// Also: the connection was lost before an acknowledgement arrived.
        public static let connectionLost = Code("connection-lost")
        /// The file of the body cannot be read.
        public static let bodyLost = Code("body-lost")
        /// The broker could not store a durable request on its disk.
        public static let notStored = Code(FailureCode.notStored.rawValue)
        /// Another request under the same handler has this ID.
        public static let idInUse = Code("id-in-use")
        /// No such durable request has failed, or a program has received the failure.
        public static let unknownRequest = Code("unknown-request")
        /// The server responded with a status of 400 or more: see ``BusError/status`` and ``BusError/page``.
        public static let httpStatus = Code(FailureCode.httpStatus.rawValue)
        /// The host name does not exist.
        public static let unknownHost = Code(FailureCode.unknownHost.rawValue)
        /// The server refused the connection.
        public static let connectRefused = Code(FailureCode.connectRefused.rawValue)
        /// The server sent no byte for the time of ``FetchOptions/timeout``.
        public static let timeout = Code(FailureCode.timeout.rawValue)
        /// The time of ``FetchOptions/deadline`` passed.
        public static let deadline = Code(FailureCode.deadlineExceeded.rawValue)
        /// The decoded body exceeds ``FetchOptions/maximumBytes``.
        public static let tooLarge = Code(FailureCode.tooLarge.rawValue)
        /// The body does not match ``FetchOptions/digest``.
        public static let digestMismatch = Code(FailureCode.digestMismatch.rawValue)
        /// The certificate or the TLS handshake failed.
        public static let tls = Code(FailureCode.tls.rawValue)
        /// The server has requested a pause that is longer than the request waits; see ``BusError/retryAfter``.
        public static let originCooling = Code(FailureCode.originCoolingDown.rawValue)
        /// The cache has no usable response, and ``CachePolicy/onlyIfCached`` forbids a transfer.
        public static let notCached = Code(FailureCode.notCached.rawValue)
    }

    /// Kind of failure.
    public let code: Code
    /// Whether the failure is transient, so that a later request can succeed. The broker has already tried
    /// ``FetchOptions/retries`` times.
    public let isRetryable: Bool
    /// HTTP status, 400 to 999; nil unless the code is ``Code/httpStatus``.
    public let status: Int?
    /// Response with the server's error page; nil unless the code is ``Code/httpStatus``.
    public let page: Response?
    /// Number of attempts by the broker's workers; 0 if there was none.
    public let attempts: Int
    /// Time until the end of the pause that the server has requested; nil unless the code is ``Code/originCooling``.
    public let retryAfter: Duration?
    /// Sentence for users. It contains no text of a server.
    public let description: String

    init(_ code: Code, _ description: String, isRetryable: Bool = false) {
        self.code = code
        self.description = description
        self.isRetryable = isRetryable
        status = nil
        page = nil
        attempts = 0
        retryAfter = nil
    }

    /// - Parameter errorPage: error page with its body.
    init(_ failure: Terminal.Failure, errorPage: Response?) {
        code = Code(failure.code)
        // Unknown codes of later brokers count as `internal`.
        let known = FailureCode(rawValue: failure.code) ?? .internalError
        isRetryable = known.isRetryable(status: failure.status)
        status = failure.status
        page = errorPage
        attempts = failure.attempts
        retryAfter = failure.retryAfterSeconds.map { .seconds($0) }
        description = failure.detail ?? known.userMessage
    }

    init(_ refusal: RefusedMessage) {
        self.init(Code(refusal.code), Self.sentence(fromWireText: refusal.detail ?? "The broker refused the request."))
    }

    /// Returns text of the wire as a sentence: capitalized, with a full stop.
    static func sentence(fromWireText words: String) -> String {
        words.prefix(1).uppercased() + words.dropFirst() + (words.hasSuffix(".") ? "" : ".")
    }

    static let invalidHandlerName = BusError(
        .invalidRequest, "The handler name is invalid: use 1 to 200 visible ASCII bytes in segments separated by /.")
    static let invalidRequestID = BusError(
        .invalidRequest, "The request ID is invalid: use 1 to 64 visible ASCII bytes.")
    static let invalidPattern = BusError(
        .invalidRequest,
        "The pattern is invalid: use a handler name, or a name that ends in / for all handlers below it.")
    static let busClosed = BusError(.closed, "The bus was closed: connect again for further requests.")
    static let handlerRemoved = BusError(.removed, "The handler was removed, by this program or by another one.")
    static let idInUse = BusError(
        .idInUse, "A request with this ID is being submitted: wait for it, or choose another ID.")
    static let tooManyWaitingRemovals = BusError(
        .noBroker, "Too many removals wait for a broker: start one with `earshot serve`, then repeat this removal.",
        isRetryable: true)
    static let acknowledgementLost = BusError(
        .connectionLost, "The acknowledgement was lost with the connection: the result will be delivered again.")
    static let bodyLost = BusError(
        .bodyLost, "The file of the body is missing, because the broker restarted or its spool was emptied: try again.",
        isRetryable: true)
    static let requestReplaced = BusError(.replaced, "Another request of the handler replaced this one.")

    /// Returns the error for a body file that cannot be opened.
    ///
    /// - Parameter number: the `errno` value.
    static func cannotOpen(_ number: Int32) -> BusError {
        BusError(.bodyLost, unsafe "Cannot open the file of the body: \(String(cString: strerror(number))).")
    }

    /// Returns the error for a body that the broker has sent and that could not be stored.
    ///
    /// - Parameter number: the `errno` value.
    static func cannotStore(_ number: Int32) -> BusError {
        let cause = unsafe String(cString: strerror(number))
        return BusError(
            .bodyLost,
            "Cannot store the body in a temporary file: \(cause). Free space, or set TMPDIR to another folder.",
            isRetryable: true)
    }

    static func noBroker(in folder: RuntimeFolder) -> BusError {
        BusError(
            .noBroker,
            "No broker runs in \(folder.path): start one with `earshot serve`, or connect to a private one.",
            isRetryable: true)
    }
}

extension BusError {
    /// Converts an error of a lower layer. Returns a `BusError` unchanged.
    init(converting error: any Error) {
        switch error {
        case let error as BusError: self = error
        case let error as ClientError:
            let code: Code =
                switch error.code {
                case .invalidRequest: .invalidRequest
                case .key, .refused: .notAuthorized
                default: .noBroker
                }
            self.init(code, Self.sentence(fromWireText: error.description))
        default: self.init(.closed, "The event loop of the bus failed: \(error). Connect again.")
        }
    }
}
