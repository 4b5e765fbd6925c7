/// Reason why a request failed: operand of FAILED, and the only definition of which failures are retryable.
public enum FailureCode: String, Hashable, Sendable, CaseIterable {
    /// The server responded with a status of 400 or more.
    case httpStatus = "http-status"
    case connectRefused = "connect-refused"
    /// Connection failure for a reason other than a refusal.
    case connectFailed = "connect-failed"
    /// The address policy denies all addresses of the host.
    case addressRefused = "address-refused"
    /// The host name does not exist.
    case unknownHost = "unknown-host"
    /// The host name could not be resolved.
    case dnsFailed = "dns-failed"
    /// No data received within the timeout.
    case timeout
    case connectTimeout = "connect-timeout"
    /// The proxy refused to connect to the server.
    case proxyRefused = "proxy-refused"
    /// The proxy cannot connect to the server at present: its status is 429, 502, 503 or 504.
    case proxyUnavailable = "proxy-unavailable"
    /// The decoded body exceeds the requested maximum.
    case tooLarge = "too-large"
    /// The ratio of decoded to encoded bytes exceeds the limit.
    case tooCompressed = "too-compressed"
    /// TLS handshake or certificate failure.
    case tls
    case redirectLoop = "redirect-loop"
    case tooManyRedirects = "too-many-redirects"
    /// `redirect: error`, a scheme other than http and https, or several targets.
    case redirectRefused = "redirect-refused"
    /// The body ended before its announced length, or without a valid end.
    case truncated
    /// The connection broke.
    case connectionReset = "reset"
    /// No worker registered the scheme.
    case unsupportedScheme = "unsupported-scheme"
    case malformedURL = "malformed-url"
    case badHeader = "bad-header"
    case unsupportedMethod = "unsupported-method"
    /// The response is not HTTP.
    case protocolError = "protocol-error"
    /// The body's content coding is corrupt, or it has a transfer coding that the worker did not request.
    case encodingError = "encoding-error"
    case spoolFull = "spool-full"
    /// The body's file could not be created or written, for a reason other than a full disk.
    case spoolFailed = "spool-failed"
    /// The request's own deadline has passed.
    case deadlineExceeded = "deadline"
    case digestMismatch = "digest-mismatch"
    /// The handler was removed.
    case handlerRemoved = "removed"
    case cancelled
    case queueFull = "queue-full"
    /// The user of the request has reached a quota. The detail names it.
    case quotaExceeded = "quota"
    /// The server's `Retry-After` exceeds the configured maximum.
    case originCoolingDown = "origin-cooling"
    case workerLost = "worker-lost"
    /// A custom worker reported a failure of its own.
    case workerFailed = "worker-failed"
    /// Two workers died while they executed the request alone.
    case poisonRequest = "poisonous"
    /// The request permits only a response from the cache, and there is none.
    case notCached = "not-cached"
    /// A durable request or its result could not be written, or durable requests are disabled.
    case notStored = "not-stored"
    /// A durable request was not acknowledged within its retention period.
    case retentionExpired = "expired"
    /// The broker is shutting down.
    case brokerStopping = "stopping"
    /// Internal error of Earshot.
    case internalError = "internal"

    /// Returns whether another attempt may succeed.
    ///
    /// - Parameter status: HTTP status; used only for `httpStatus`, which is not retryable without it.
    public func isRetryable(status: Int?) -> Bool {
        switch self {
        case .httpStatus:
            switch status {
            case 408, 429, 500, 502, 503, 504: true
            default: false
            }
        case .connectRefused, .connectFailed, .dnsFailed, .timeout, .connectTimeout, .proxyUnavailable, .truncated,
            .connectionReset, .workerLost, .spoolFailed:
            true
        case .addressRefused, .unknownHost, .proxyRefused, .tooLarge, .tooCompressed, .tls, .redirectLoop,
            .tooManyRedirects, .redirectRefused, .unsupportedScheme, .malformedURL, .badHeader, .unsupportedMethod,
            .protocolError, .encodingError, .spoolFull, .deadlineExceeded, .digestMismatch, .handlerRemoved, .cancelled,
            .queueFull, .quotaExceeded, .originCoolingDown, .workerFailed, .poisonRequest, .notCached, .notStored,
            .retentionExpired, .brokerStopping, .internalError:
            false
        }
    }

    /// Whether a server's HTTP/2 implementation may cause the failure, so that another attempt should use HTTP/1.1.
    public var mayBeCausedByHTTP2: Bool {
        switch self {
        case .timeout, .truncated, .connectionReset: true
        default: false
        }
    }

    /// Message for the user. It contains no text from a peer.
    public var userMessage: String {
        switch self {
        case .httpStatus: "The server answered with an error status."
        case .connectRefused: "The server refused the connection."
        case .connectFailed: "No connection to the server could be made."
        case .addressRefused: "The address policy forbids connections to this host."
        case .unknownHost: "The host name does not exist."
        case .dnsFailed: "The host name could not be resolved."
        case .timeout: "The server sent no data within the timeout."
        case .connectTimeout: "The connection to the server timed out."
        case .proxyRefused: "The proxy refused to connect to the server."
        case .proxyUnavailable: "The proxy cannot connect to the server at present."
        case .tooLarge: "The body is larger than allowed."
        case .tooCompressed: "The body decodes to more than the setting max-ratio allows for its size."
        case .tls: "The secure connection failed: its certificate or its handshake."
        case .redirectLoop: "The redirects form a loop."
        case .tooManyRedirects: "There are too many redirects."
        case .redirectRefused: "The server sent a redirect that this request forbids."
        case .truncated: "The body ended before its announced length."
        case .connectionReset: "The connection broke."
        case .unsupportedScheme: "No worker fetches URLs of this scheme."
        case .malformedURL: "The URL is malformed."
        case .badHeader: "The request's header fields are malformed or not allowed."
        case .unsupportedMethod: "The method is not supported."
        case .protocolError: "The server does not speak HTTP."
        case .encodingError: "The body is damaged in its content coding."
        case .spoolFull: "The spool has no room for the body."
        case .spoolFailed: "The spool is unusable."
        case .deadlineExceeded: "The deadline of the request passed."
        case .digestMismatch: "The body does not have the expected digest."
        case .handlerRemoved: "The handler was removed."
        case .cancelled: "The request was cancelled."
        case .queueFull: "The queue is full."
        case .quotaExceeded: "The user of this request has reached a quota."
        case .originCoolingDown: "The server requested a cool-down longer than permitted."
        case .workerLost: "The worker of this request died."
        case .workerFailed: "The worker for this scheme failed."
        case .poisonRequest: "Workers died repeatedly while they ran this request alone."
        case .notCached: "The cache has no response, and the request permits no transfer."
        case .notStored: "The request could not be stored on disk."
        case .retentionExpired: "The durable request expired."
        case .brokerStopping: "The broker is stopping."
        case .internalError: "An internal error occurred."
        }
    }
}
