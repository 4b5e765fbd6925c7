internal import EarshotHTTP
internal import EarshotWire

/// Options of a request besides URL and priority.
///
/// ```swift
/// var options = FetchOptions()
/// options.deadline = .seconds(20)
/// options.fields = [HeaderField("accept", "image/*")]
/// let response = try await handler.fetch(url, options)
/// ```
///
/// Durations are whole milliseconds from 1 ms to one day. The request throws ``BusError/Code/invalidRequest`` for a
/// value out of range.
public struct FetchOptions: Sendable {
    /// HTTP method, by default `GET`. Methods other than `GET` and `HEAD` require ``isShared`` to be false.
    public var method = "GET"
    /// Header fields of the request, at most 100 and 32 KiB. The broker refuses fields that it controls, such as
    /// `host`, with the code `bad-header`.
    public var fields: [HeaderField] = []
    /// Body of the request, by default at most 1 MiB (the broker's setting `request-body-bytes`, up to 4 MiB). Not for
    /// `GET` and `HEAD`.
    public var body: [UInt8]?
    /// Whether the broker may coalesce the request with equal ones. Default true.
    public var isShared = true
    /// Maximum time without a byte from the server. Default 60 s.
    public var timeout = Duration.seconds(60)
    /// Maximum total time including waiting, then ``BusError/Code/deadline``; nil for no limit.
    public var deadline: Duration?
    /// Maximum decoded body size in bytes, then ``BusError/Code/tooLarge``; nil for no limit.
    public var maximumBytes: Int?
    /// Maximum rate of all transfers of the handler together, in bytes per second, at least 1; nil for no limit.
    public var maximumBytesPerSecond: Int?
    /// Maximum number of retries for transient failures, 0 to 20. Default 2.
    public var retries = 2
    /// Maximum time of a wait for an origin that has requested a pause, then ``BusError/Code/originCooling``. Zero does
    /// not wait, nil waits. If the origin has announced a longer pause, the request fails at once.
    public var maximumCoolDown: Duration?
    /// Treatment of redirects. Default ``RedirectPolicy/follow``.
    public var redirect = RedirectPolicy.follow
    /// Whether the request only fills the cache: the response has no body.
    public var isWarm = false
    /// Form of the response's body. Default ``BodyForm/automatic``.
    public var bodyForm = BodyForm.automatic
    /// Minimum time between two elements of ``Download/progress``, 50 ms to one day. It also delays
    /// ``Download/pieces``. Nil reports at most four times per second.
    public var progressInterval: Duration?
    /// Use of the broker's cache. Default ``CachePolicy/usual``.
    public var cache = CachePolicy.usual
    /// Expected SHA-256 of the decoded body, 64 lower-case hexadecimal digits; otherwise the request fails with
    /// ``BusError/Code/digestMismatch``. Nil accepts any body.
    public var digest: String?
    /// Whether the request uses the cookies of its handler's root, the first segment of the handler's name.
    public var usesCookies = false
    /// Proxy as `SCHEME://[USER:PASSWORD@]HOST[:PORT]` (`http`, `https`, `socks4`, `socks5`), or `none`; nil uses the
    /// environment of the workers.
    public var proxy: String?
    /// Absolute path of a PEM file with trusted certificates; nil uses those of the system.
    public var certificateAuthorities: String?
    /// Absolute path of a PEM file with the client certificate; nil for none.
    public var clientCertificate: String?
    /// Absolute path of a PEM file with the key of ``clientCertificate``; nil if the key is in the same file.
    public var clientKey: String?
    /// Whether the server must present a trusted certificate. If false, anyone on the network can read and change the
    /// transfer. Default true.
    public var verifiesServer = true

    /// Whether content codings such as gzip are undone. If false, the broker requests the body without a coding, and
    /// the body keeps any coding in which it comes, for example that of an archive. Default true.
    public var decodes = true

    /// Whether a response with an error status, such as 404, is a ``Response`` with its whole body, and no retry
    /// follows the status. If false, it throws ``BusError/Code/httpStatus``. Default false.
    public var deliversErrors = false

    /// Creates options with the default values.
    public init() {}

    /// Returns the FETCH message of a request.
    ///
    /// - Throws: `BusError` with ``BusError/Code/invalidRequest`` if the message would be read differently from the
    ///   options.
    func makeFetch(
        _ key: RequestKey, url: String, priority: Priority, streams: Bool = false
    ) throws(BusError) -> Fetch {
        var fetch = Fetch(handler: key.handler, request: key.request, url: url)
        fetch.options = try wireOptions(priority: priority)
        guard fields.allSatisfy(\.isValid) else {
            throw BusError(
                .invalidRequest, "A header field is invalid: use a name of visible ASCII and a value of one line.")
        }
        if !fields.isEmpty {
            fetch.httpFields = Array(fields.map { "\($0.name): \($0.value)" }.joined(separator: "\n").utf8)
        }
        try Self.checkOptions(of: fetch)
        fetch.options.streams = streams
        fetch.body = body
        do throws(ClientError) {
            try ClientConnection.checkLimits(of: fetch)
        } catch {
            throw BusError(converting: error)
        }
        return fetch
    }

    /// Checks the options of a message.
    ///
    /// - Throws: `BusError` with ``BusError/Code/invalidRequest`` if the message would be read differently from the
    ///   options.
    private static func checkOptions(of fetch: Fetch) throws(BusError) {
        var defaults = Fetch.Options()
        defaults.priority = fetch.options.priority
        // Messages without options need no check.
        if fetch.options == defaults, fetch.httpFields.isEmpty { return }
        if let proxy = fetch.options.route.proxy, proxy != Route.noProxy {
            do throws(ProxyAddress.ParseError) {
                _ = try ProxyAddress(proxy)
            } catch {
                throw BusError(.invalidRequest, error.description)
            }
        }
        // Only a message that decodes to itself carries the options. A line end in a key would add a field.
        guard try decodeMessage(ClientMessage.fetch(fetch).encoded()) == .fetch(fetch) else {
            throw BusError(
                .invalidRequest, "The URL or an option contains a space or a control character: escape or remove it.")
        }
    }

    private static func decodeMessage(_ head: [UInt8]) throws(BusError) -> ClientMessage {
        do throws(WireError) {
            return try ClientMessage(head: head)
        } catch {
            throw BusError(.invalidRequest, BusError.sentence(fromWireText: error.detail))
        }
    }

    private func wireOptions(priority: Priority) throws(BusError) -> Fetch.Options {
        var wire = Fetch.Options()
        wire.priority = priority.wireValue
        wire.method = method
        wire.coalesces = isShared
        wire.timeoutMilliseconds = try Self.milliseconds(of: timeout)
        wire.deadlineMilliseconds = try deadline.map(Self.milliseconds)
        wire.maximumBodyBytes = maximumBytes
        wire.handlerBytesPerSecond = maximumBytesPerSecond
        wire.retries = retries
        if let maximumCoolDown {
            wire.coolDownWaitMilliseconds = maximumCoolDown == .zero ? 0 : try Self.milliseconds(of: maximumCoolDown)
        }
        wire.redirectMode = redirect.wireValue
        wire.cacheMode = cache.wireValue
        wire.isCacheWarming = isWarm
        wire.delivery = bodyForm.wireValue
        wire.progressIntervalMilliseconds = try progressInterval.map(Self.milliseconds)
        wire.expectedSHA256 = digest
        wire.usesCookies = usesCookies
        wire.route.proxy = proxy
        wire.route.caFile = certificateAuthorities
        wire.route.clientCertificate = clientCertificate
        wire.route.clientKey = clientKey
        wire.route.verifiesServer = verifiesServer
        wire.route.decodesBody = decodes
        wire.route.deliversErrorResponses = deliversErrors
        return wire
    }

    private static func milliseconds(of duration: Duration) throws(BusError) -> Int {
        guard duration >= .milliseconds(1), duration <= .seconds(WireLimits.durationSeconds) else {
            throw BusError(.invalidRequest, "A timeout, deadline or interval is out of range: choose 1 ms to one day.")
        }
        let (seconds, attoseconds) = duration.components
        return Int(seconds) * 1000 + Int(attoseconds / 1_000_000_000_000_000)
    }
}

/// Form in which the body of a response is delivered.
public enum BodyForm: Sendable {
    /// In memory up to the broker's setting `inline-bytes` (64 KiB), otherwise a file.
    case automatic
    /// In memory. A body above the broker's setting `inline-bytes` fails with ``BusError/Code/tooLarge``.
    case inMemory
    /// A file, unless the body is empty.
    case inFile

    var wireValue: BodyDelivery {
        switch self {
        case .automatic: .auto
        case .inMemory: .inline
        case .inFile: .file
        }
    }
}

/// Use of the broker's cache: the modes of the Fetch standard, and ``explicit``.
public enum CachePolicy: Sendable {
    /// Uses fresh responses, and revalidates stale ones.
    case usual
    /// Like ``usual``, but a response is fresh only as long as its `max-age` or `Expires` states. No heuristic
    /// freshness.
    case explicit
    /// Neither reads nor writes the cache.
    case noStore
    /// Does not read the cache, but stores the response.
    case reload
    /// Revalidates a stored response before its use.
    case validate
    /// Uses a stored response, fresh or stale. Without one, fetches.
    case preferCached
    /// Uses a stored response, fresh or stale. Without one, fails with ``BusError/Code/notCached``.
    case onlyIfCached

    var wireValue: CacheMode {
        switch self {
        case .usual: .default
        case .explicit: .explicit
        case .noStore: .noStore
        case .reload: .reload
        case .validate: .noCache
        case .preferCached: .forceCache
        case .onlyIfCached: .onlyIfCached
        }
    }
}

/// Treatment of a redirect.
public enum RedirectPolicy: Sendable {
    /// Follows at most 10 redirects.
    case follow
    /// Fails with the code `redirect-refused`.
    case refuse
    /// Delivers the redirect as the response.
    case deliver

    var wireValue: RedirectMode {
        switch self {
        case .follow: .follow
        case .refuse: .error
        case .deliver: .manual
        }
    }
}
