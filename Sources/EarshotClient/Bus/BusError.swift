internal import EarshotHTTP
internal import EarshotWire
internal import Glibc

/// Why there is no response.
///
/// ```swift
/// do {
///     let response = try await handler.fetch(url)
/// } catch let error as BusError where error.code == .httpStatus {
///     print(error.status ?? 0, error.page?.fields["content-type"] ?? "")
/// }
/// ```
public struct BusError: Error, Sendable, CustomStringConvertible {
    /// What kind of trouble it is: a code of `protocols/3-CODES.md`, or one of this library's own. More may come.
    public struct Code: Hashable, Sendable, CustomStringConvertible {
        /// The code's name on the wire, such as `unknown-host`.
        public let name: String
        public var description: String { name }

        /// The code of this name.
        public init(_ name: String) {
            self.name = name
        }

        /// No broker runs, or it went and none came for as long as the bus was told to wait.
        public static let noBroker = Code("no-broker")
        /// The broker speaks another version of the protocol.
        public static let version = Code("version")
        /// The bus was closed.
        public static let closed = Code("closed")
        /// The handler was removed, here or by another program.
        public static let removed = Code(FailureCode.removed.rawValue)
        /// ``Handler/replace(with:priority:_:)`` put another request into this one's place.
        public static let replaced = Code("replaced")
        /// The request cannot be said: a URL, a name or a field that is none.
        public static let invalidRequest = Code("invalid-request")
        /// The broker was lost, and the request is of a method that may not be done twice: nobody knows whether it was.
        /// Or it was lost before it heard of an acknowledgement.
        public static let connectionLost = Code("connection-lost")
        /// The body came and its file could not be read.
        public static let bodyLost = Code("body-lost")
        /// What was submitted could not be kept on the broker's disk.
        public static let notStored = Code(FailureCode.notStored.rawValue)
        /// Another request has this ID under this handler.
        public static let idInUse = Code("id-in-use")
        /// The server answered with a status of 400 or more: see ``BusError/status`` and ``BusError/page``.
        public static let httpStatus = Code(FailureCode.httpStatus.rawValue)
        /// The host name does not exist.
        public static let unknownHost = Code(FailureCode.unknownHost.rawValue)
        /// The server refused the connection.
        public static let connectRefused = Code(FailureCode.connectRefused.rawValue)
        /// No byte came for as long as ``FetchOptions/timeout`` says.
        public static let timeout = Code(FailureCode.timeout.rawValue)
        /// ``FetchOptions/deadline`` passed.
        public static let deadline = Code(FailureCode.deadline.rawValue)
        /// The body is larger than ``FetchOptions/mostBytes``.
        public static let tooLarge = Code(FailureCode.tooLarge.rawValue)
        /// The body does not have ``FetchOptions/digest``.
        public static let digestMismatch = Code(FailureCode.digestMismatch.rawValue)
        /// The server's certificate, or the handshake.
        public static let tls = Code(FailureCode.tls.rawValue)
        /// Nothing that may be used is kept, and ``CachePolicy/onlyIfCached`` asks nobody.
        public static let notCached = Code(FailureCode.notCached.rawValue)
    }

    public let code: Code
    /// Whether asking again may end better. The bus has tried again by itself as often as ``FetchOptions/retries``
    /// says.
    public let isRetryable: Bool
    /// What the server answered, 400 to 999; nil unless the code is ``Code/httpStatus``.
    public let status: Int?
    /// The error page; nil unless the code is ``Code/httpStatus``.
    public let page: Response?
    /// Attempts made by the broker; 0 if there was none.
    public let attempts: Int
    /// A sentence for people. It holds nothing that a server sent.
    public let description: String

    init(_ code: Code, _ description: String, isRetryable: Bool = false) {
        self.code = code
        self.description = description
        self.isRetryable = isRetryable
        status = nil
        page = nil
        attempts = 0
    }

    /// - Parameter page: The error page with its body.
    init(_ failure: Terminal.Failure, page: Response?) {
        code = Code(failure.code)
        // A code of a later version is a fault like any other.
        let known = FailureCode(rawValue: failure.code) ?? .internalError
        isRetryable = known.isRetryable(status: failure.status)
        status = failure.status
        self.page = page
        attempts = failure.attempts
        description = failure.detail ?? known.sentence
    }

    init(_ reply: ErrorReply) {
        self.init(Code(reply.code), Self.sentence(reply.detail ?? "The broker refused the request."))
    }

    /// Words of the wire, which begin small there and have no full stop.
    static func sentence(_ words: String) -> String {
        words.prefix(1).uppercased() + words.dropFirst() + (words.hasSuffix(".") ? "" : ".")
    }

    static let noName = BusError(
        .invalidRequest, "A handler's name is 1 to 200 bytes of visible ASCII in segments separated by /.")
    static let noPattern = BusError(
        .invalidRequest, "This takes a handler's name, or one with a slash behind it for all below.")
    static let closed = BusError(.closed, "The bus was closed.")
    static let removed = BusError(.removed, "The handler was removed.")
    static let idInUse = BusError(.idInUse, "A request of this ID is on its way.")
    static let unacknowledged = BusError(
        .connectionLost, "The broker was lost before it heard the acknowledgement: the result comes again.")
    static let bodyLost = BusError(.bodyLost, "The body came and its file was gone.", isRetryable: true)
    static let replaced = BusError(.replaced, "Another request took the place of this one.")

    /// A body's file that the process cannot open, by the `errno` value.
    static func cannotOpen(_ number: Int32) -> BusError {
        BusError(.bodyLost, unsafe "The body's file cannot be opened: \(String(cString: strerror(number))).")
    }

    static func noBroker(in folder: RuntimeFolder) -> BusError {
        BusError(
            .noBroker,
            "There is no broker in \(folder.path): start one with `earshot serve`, or connect to a private one.",
            isRetryable: true)
    }
}

extension BusError {
    /// What went wrong below: the error itself if it is one of these.
    init(_ error: any Error) {
        switch error {
        case let error as BusError: self = error
        case let error as ClientError:
            self.init(error.code == .invalidRequest ? .invalidRequest : .noBroker, Self.sentence(error.description))
        default: self.init(.closed, "The bus cannot go on: \(error).")
        }
    }
}
