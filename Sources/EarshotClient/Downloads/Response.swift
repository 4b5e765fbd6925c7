internal import EarshotWire

/// What a server answered with a status below 400; or the error page of a ``BusError``.
///
/// ```swift
/// let response = try await handler.fetch("https://example.org/a.png")
/// let image = try await response.body.bytes()
/// ```
///
/// Nothing is lost by holding a response long: the broker has its acknowledgement. One whose body is a file holds one
/// descriptor of the process.
public struct Response: Sendable {
    /// Where a response came from.
    public enum Source: String, Sendable {
        /// A transfer that this request began.
        case network
        /// A transfer that another request had begun.
        case shared
        /// A transfer that went on where an earlier one had broken off.
        case resumed
        /// The cache; no server was asked.
        case cache
        /// The cache, after the server said that it has not changed.
        case revalidated
    }

    /// HTTP status, 200 to 999.
    public let status: Int
    /// The URL that answered, after redirects, in normal form.
    public let url: String
    public let fields: HeaderFields
    public let body: ResponseBody
    public let source: Source
    /// SHA-256 of the decoded body, 64 lower-case hexadecimal digits; nil if the answer has no body (HEAD, 204, 304).
    public let digest: String?
    /// From the request to the start of the attempt that answered.
    public let queued: Duration
    /// From the request to its end.
    public let elapsed: Duration
    /// Attempts made, the last one included; 0 if the cache answered.
    public let attempts: Int

    init(status: Int, _ response: Terminal.Response, body: ResponseBody) {
        self.status = status
        url = response.url
        fields = HeaderFields(response.httpFields)
        self.body = body
        source =
            switch response.source {
            case .network: .network
            case .shared: .shared
            case .resumed: .resumed
            case .cache: .cache
            case .revalidated: .revalidated
            }
        digest = response.sha256
        queued = .milliseconds(response.queuedMilliseconds)
        elapsed = .milliseconds(response.elapsedMilliseconds)
        attempts = response.attempts
    }
}
