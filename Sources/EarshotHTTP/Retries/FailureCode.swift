/// Why a request failed: the operand of FAILED, and the one place that knows which failures another attempt may cure.
public enum FailureCode: String, Hashable, Sendable, CaseIterable {
    /// The server answered with a status of 400 or more.
    case httpStatus = "http-status"
    case connectRefused = "connect-refused"
    /// No connection for another reason than a refusal.
    case connectFailed = "connect-failed"
    /// The address policy allows none of the host's addresses.
    case addressRefused = "address-refused"
    /// The name does not exist.
    case unknownHost = "unknown-host"
    /// The name could not be looked up.
    case dnsFailed = "dns-failed"
    /// No byte for too long.
    case timeout
    case connectTimeout = "connect-timeout"
    /// More bytes, decoded, than asked for.
    case tooLarge = "too-large"
    /// More decoded bytes for each encoded one than allowed.
    case tooCompressed = "too-compressed"
    /// A certificate or a handshake.
    case tls
    case redirectLoop = "redirect-loop"
    case tooManyRedirects = "too-many-redirects"
    /// `redirect: error`, another scheme than http and https, or more than one place to go.
    case redirectRefused = "redirect-refused"
    /// Fewer bytes than announced, or no sign that all of them came.
    case truncated
    /// The connection broke.
    case reset
    /// No worker registered the scheme.
    case unsupportedScheme = "unsupported-scheme"
    case malformedURL = "malformed-url"
    case badHeader = "bad-header"
    case unsupportedMethod = "unsupported-method"
    /// The answer is not HTTP.
    case protocolError = "protocol-error"
    /// The body is damaged in its content coding, or has a transfer coding that the worker did not request.
    case encodingError = "encoding-error"
    case spoolFull = "spool-full"
    /// The body's file could not be made or written, for another reason than a full disk.
    case spoolFailed = "spool-failed"
    /// The request's own deadline passed.
    case deadline
    case digestMismatch = "digest-mismatch"
    /// Somebody removed the handler.
    case removed
    case cancelled
    case queueFull = "queue-full"
    /// The origin asked to be left alone for longer than anybody is made to wait.
    case originCooling = "origin-cooling"
    case workerLost = "worker-lost"
    /// A worker of a user's own could not do it, for a reason of its own.
    case workerFailed = "worker-failed"
    /// Workers died of it, two of them.
    case poisonous
    /// The request allows nothing but the cache, which has no answer.
    case notCached = "not-cached"
    /// A durable request or its result could not be written, or durable requests are off.
    case notStored = "not-stored"
    /// A durable request was not acknowledged within the time that it is kept.
    case expired
    /// The broker is shutting down.
    case stopping
    /// A fault of Earshot.
    case internalError = "internal"

    /// Whether another attempt may end better.
    ///
    /// - Parameter status: The status the server sent; matters for `httpStatus` alone, which is not retryable without.
    public func isRetryable(status: Int?) -> Bool {
        switch self {
        case .httpStatus:
            switch status {
            case 408, 429, 500, 502, 503, 504: true
            default: false
            }
        case .connectRefused, .connectFailed, .dnsFailed, .timeout, .connectTimeout, .truncated, .reset, .workerLost,
            .spoolFailed:
            true
        case .addressRefused, .unknownHost, .tooLarge, .tooCompressed, .tls, .redirectLoop, .tooManyRedirects,
            .redirectRefused,
            .unsupportedScheme,
            .malformedURL, .badHeader, .unsupportedMethod, .protocolError, .encodingError, .spoolFull, .deadline,
            .digestMismatch, .removed, .cancelled, .queueFull, .originCooling, .workerFailed, .poisonous,
            .notCached,
            .notStored, .expired, .stopping, .internalError:
            false
        }
    }

    /// Whether a fault in a server's HTTP/2 may cause it, so that another attempt should use HTTP/1.1.
    public var mayComeFromHTTP2: Bool {
        switch self {
        case .timeout, .truncated, .reset: true
        default: false
        }
    }

    /// A sentence for people. It holds nothing a peer sent.
    public var sentence: String {
        switch self {
        case .httpStatus: "The server answered with an error status."
        case .connectRefused: "The server refused the connection."
        case .connectFailed: "No connection to the server could be made."
        case .addressRefused: "The policy for addresses does not allow to connect to this host."
        case .unknownHost: "The host name does not exist."
        case .dnsFailed: "The host name could not be looked up."
        case .timeout: "The server sent nothing for too long."
        case .connectTimeout: "Connecting to the server took too long."
        case .tooLarge: "The body is larger than allowed."
        case .tooCompressed: "The body decodes to more than the setting max-ratio allows for its size."
        case .tls: "The secure connection failed: its certificate or its handshake."
        case .redirectLoop: "The redirects lead back to where they began."
        case .tooManyRedirects: "There are too many redirects."
        case .redirectRefused: "The server redirects to where this request does not follow."
        case .truncated: "The body ended before its announced length."
        case .reset: "The connection broke."
        case .unsupportedScheme: "No worker fetches URLs of this scheme."
        case .malformedURL: "The URL is malformed."
        case .badHeader: "The request's header fields are malformed or not allowed."
        case .unsupportedMethod: "The method is not supported."
        case .protocolError: "The server does not speak HTTP."
        case .encodingError: "The body is damaged in its content coding."
        case .spoolFull: "There is no room left for the body."
        case .spoolFailed: "The folder for the body cannot be used."
        case .deadline: "The deadline of the request passed."
        case .digestMismatch: "The body does not have the expected digest."
        case .removed: "The handler was removed."
        case .cancelled: "The request was cancelled."
        case .queueFull: "The queue is full."
        case .originCooling: "The server asked to be left alone for a long time."
        case .workerLost: "The worker that fetched it was lost."
        case .workerFailed: "The worker for this scheme could not do it."
        case .poisonous: "Workers died repeatedly while they ran it alone."
        case .notCached: "The cache has no answer, and nothing else may be asked."
        case .notStored: "It could not be kept on the disk."
        case .expired: "It was kept for as long as durable requests are."
        case .stopping: "The broker is stopping."
        case .internalError: "Something went wrong inside Earshot."
        }
    }
}
