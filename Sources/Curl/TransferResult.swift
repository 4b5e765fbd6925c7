/// Result of a transfer.
public struct TransferResult: Hashable, Sendable {
    /// Failure; nil for a complete response of any status.
    public let failure: TransferFailure?
    /// Status code of the last status line; 0 without one.
    public let status: Int
    /// System error number of the last failed connection attempt; otherwise 0, and 0 for a complete response.
    public let osError: Int32
    /// Number of connections opened for it: 0 if one was reused.
    public let connectsMade: Int
    /// Number of times that the request was sent again, because a connection ended without a response or the server
    /// did not process it.
    public let repeats: Int
    /// Whether the response arrived over HTTP/2.
    public let usedHTTP2: Bool
    /// Whether the response lacks an explicit end: close_notify for HTTP/1.1 over TLS, END_STREAM for HTTP/2. A body
    /// without a length may then be truncated: RFC 9112, section 9.8.
    public let lacksGoodbye: Bool
    /// Whether the connection was ready for the request; false also for a complete response.
    public var wasConnected = false
    /// Status of a proxy's response to CONNECT; 0 without one.
    public var proxyStatus = 0
    /// `Retry-After` of that response; nil without it.
    public var proxyRetryAfter: String?
    /// libcurl's error message; empty without one. It may contain text from the peer, so escape it.
    public let detail: String
}
