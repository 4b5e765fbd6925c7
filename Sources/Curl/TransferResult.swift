/// How a transfer ended.
public struct TransferResult: Hashable, Sendable {
    /// Nil for a whole response, whatever its status.
    public let failure: TransferFailure?
    /// The last status line's code; 0 if none came.
    public let status: Int
    /// The system's error number of the last connect that failed, else 0; 0 for a whole response.
    public let osError: Int32
    /// How many connections were opened for it: 0 when one was used again.
    public let connectsMade: Int
    /// Whether the response came by HTTP/2.
    public let usedHTTP2: Bool
    /// Whether the peer had not marked the end of the response: by close_notify for HTTP/1.1 over TLS, by END_STREAM for
    /// HTTP/2. A body without a length of its own may then be cut off: RFC 9112, section 9.8.
    public let lacksGoodbye: Bool
    /// libcurl's sentence about the failure, empty if it had none. It can hold what the peer sent: escape it.
    public let detail: String
}
