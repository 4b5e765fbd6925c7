internal import EarshotWire

/// Response with a status below 400, or the error page of a ``BusError``.
///
/// ```swift
/// let response = try await handler.fetch("https://example.org/a.png")
/// let image = try await response.body.bytes()
/// ```
///
/// The bus acknowledged the response on arrival, so it may be kept. A response whose body is a file uses one file
/// descriptor.
public struct Response: Sendable {
    /// Origin of a response.
    public enum Source: String, Sendable {
        /// A transfer that started for this request.
        case network
        /// A transfer that another request had started.
        case shared
        /// A transfer that resumed an interrupted one.
        case resumed
        /// Another node of the cluster, which received it from the server.
        case node
        /// The cache, without a request to the server.
        case cache
        /// The cache, after the server confirmed it.
        case revalidated
    }

    /// A redirect that was followed.
    public struct Redirect: Hashable, Sendable {
        /// HTTP status, 300 to 399.
        public let status: Int
        /// URL of its target in normal form; nil for one beyond 2 KiB of all targets.
        public let url: String?
    }

    /// HTTP status, 200 to 399; up to 999 for an error page.
    public let status: Int
    /// URL of the response after redirects, in normal form.
    public let url: String
    /// Redirects that were followed, in their order.
    public let redirects: [Redirect]
    /// Header fields of the response.
    public let fields: HeaderFields
    /// Decoded body.
    public let body: ResponseBody
    /// Origin of the response.
    public let source: Source
    /// Number of bytes of an interrupted transfer with which the body begins, if the source is ``Source/resumed``; else
    /// 0.
    public let resumedBytes: Int
    /// SHA-256 of the decoded body, 64 lower-case hexadecimal digits; nil for a response without a body (HEAD, 204,
    /// 304).
    public let digest: String?
    /// Time from the request to the start of the successful attempt.
    public let queued: Duration
    /// Time from the request to its end.
    public let elapsed: Duration
    /// Number of attempts, including the last one; 0 for a response from the cache.
    public let attempts: Int

    init(status: Int, _ response: Terminal.Response, body: ResponseBody) {
        self.status = status
        url = response.url
        redirects = response.redirects.map { Redirect(status: $0.status, url: $0.url) }
        fields = HeaderFields(response.httpFields)
        self.body = body
        source =
            switch response.source {
            case .network: .network
            case .sharedFlight: .shared
            case .resumed: .resumed
            case .clusterNode: .node
            case .cache: .cache
            case .revalidated: .revalidated
            }
        resumedBytes = response.resumedBytes
        digest = response.sha256
        queued = .milliseconds(response.queuedMilliseconds)
        elapsed = .milliseconds(response.elapsedMilliseconds)
        attempts = response.attempts
    }
}
