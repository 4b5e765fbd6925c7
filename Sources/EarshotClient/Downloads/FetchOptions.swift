internal import EarshotWire

/// What a request may say besides its URL and its priority.
///
/// ```swift
/// var options = FetchOptions()
/// options.deadline = .seconds(20)
/// options.fields = [HeaderField("accept", "image/*")]
/// let response = try await handler.fetch(url, options)
/// ```
///
/// Durations count in whole milliseconds, 1 ms to a day. What is out of its range is refused as
/// ``BusError/Code/invalidRequest`` when the request is made.
public struct FetchOptions: Sendable {
    /// The HTTP method. Others than `GET` and `HEAD` need ``isShared`` to be false.
    public var method = "GET"
    /// Header fields for the server, at most 100 and 32 KiB. The broker refuses those that are not a client's to set,
    /// such as `host`.
    public var fields: [HeaderField] = []
    /// The body of the request, at most 4 MiB; not for `GET` and `HEAD`.
    public var body: [UInt8]?
    /// Whether others who ask for the same may share the transfer.
    public var isShared = true
    /// The longest time without a byte from the server.
    public var timeout = Duration.seconds(60)
    /// The time for all of it, waiting included; nil for none.
    public var deadline: Duration?
    /// The most bytes of body, decoded; nil for no limit.
    public var mostBytes: Int?
    /// Attempts after the first, for failures that may pass; 0 to 20.
    public var retries = 2
    public var redirect = RedirectPolicy.follow
    /// Whether it only fills the cache: the response has no body.
    public var isWarm = false
    /// Where the body of the response is.
    public var bodyForm = BodyForm.automatic
    /// The least time between two of ``Download/progress``, 50 ms to a day, which is also how often a body is told to
    /// have grown; nil for as often as there is news, four times a second at most.
    public var progressInterval: Duration?
    public var cache = CachePolicy.usual
    /// The SHA-256 that the body must have, 64 lower-case hexadecimal digits; nil for any.
    public var digest: String?
    /// Only requests with the same key share a transfer; 1 to 200 visible ASCII bytes.
    public var key: String?
    /// Whether it takes part in the cookies of its handler's root, the first segment of its name.
    public var usesCookies = false
    /// A proxy's URL (`http`, `https`, `socks5`), `none` for no proxy; nil for what the workers' environment says.
    public var proxy: String?
    /// Absolute path of certificates to trust instead of the system's, in PEM.
    public var certificateAuthorities: String?
    /// Absolute path of the certificate to show, in PEM.
    public var clientCertificate: String?
    /// Absolute path of its key, in PEM; nil if it is in the same file.
    public var clientKey: String?

    public init() {}

    /// The message that says all of it.
    ///
    /// - Throws: `BusError`, ``BusError/Code/invalidRequest``, when it would be read as something else than was meant.
    func request(
        _ key: RequestKey, _ url: String, _ priority: Priority, streams: Bool = false
    ) throws(BusError) -> Fetch {
        var fetch = Fetch(handler: key.handler, request: key.request, url: url)
        fetch.options = try wire(priority)
        guard fields.allSatisfy(\.isSayable) else {
            throw BusError(.invalidRequest, "A header field has a name of visible ASCII and a value of one line.")
        }
        if !fields.isEmpty {
            fetch.httpFields = Array(fields.map { "\($0.name): \($0.value)" }.joined(separator: "\n").utf8)
        }
        try Self.checkOptions(of: fetch)
        fetch.options.streams = streams
        fetch.body = body
        do throws(ClientError) {
            try ClientConnection.check(fetch)
        } catch {
            throw BusError(error)
        }
        return fetch
    }

    /// - Throws: when what is said of `fetch` besides its URL would be read as something else.
    private static func checkOptions(of fetch: Fetch) throws(BusError) {
        var usual = Fetch.Options()
        usual.priority = fetch.options.priority
        // Most requests say nothing, and cannot be misread.
        if fetch.options == usual, fetch.httpFields.isEmpty { return }
        if let proxy = fetch.options.route.proxy, !Route.isProxy(proxy) {
            throw BusError(.invalidRequest, "A proxy is a URL of http, https or socks5, or none.")
        }
        // A message that does not come back as it was is not what the program meant: a line end in a key, for one.
        guard try read(ClientMessage.fetch(fetch).encoded()) == .fetch(fetch) else {
            throw BusError(.invalidRequest, "The URL or an option has a space or a control character.")
        }
    }

    private static func read(_ head: [UInt8]) throws(BusError) -> ClientMessage {
        do throws(WireError) {
            return try ClientMessage(head: head)
        } catch {
            throw BusError(.invalidRequest, BusError.sentence(error.detail))
        }
    }

    private func wire(_ priority: Priority) throws(BusError) -> Fetch.Options {
        var wire = Fetch.Options()
        wire.priority = priority.wire
        wire.method = method
        wire.coalesces = isShared
        wire.timeoutMilliseconds = try Self.milliseconds(timeout)
        wire.deadlineMilliseconds = try deadline.map(Self.milliseconds)
        wire.maxBytes = mostBytes
        wire.retries = retries
        wire.redirect = redirect.wire
        wire.cache = cache.wire
        wire.isWarm = isWarm
        wire.delivery = bodyForm.wire
        wire.progressMilliseconds = try progressInterval.map(Self.milliseconds)
        wire.digest = digest
        wire.key = key
        wire.usesCookies = usesCookies
        wire.route.proxy = proxy
        wire.route.caFile = certificateAuthorities
        wire.route.clientCertificate = clientCertificate
        wire.route.clientKey = clientKey
        return wire
    }

    private static func milliseconds(_ duration: Duration) throws(BusError) -> Int {
        guard duration >= .milliseconds(1), duration <= .seconds(WireLimits.seconds) else {
            throw BusError(.invalidRequest, "A time-out, a deadline or an interval is 1 ms to a day.")
        }
        let (seconds, attoseconds) = duration.components
        return Int(seconds) * 1000 + Int(attoseconds / 1_000_000_000_000_000)
    }
}
