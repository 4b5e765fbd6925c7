/// FETCH: a client wants a URL under a handler.
///
/// Head: `FETCH handler request url`, the fields below, an empty line and HTTP fields. Body: that of the HTTP request,
/// absent for most.
public struct Fetch: Equatable, Sendable {
    public var handler: HandlerID
    public var request: RequestID
    /// As the client wrote it, without spaces and controls, 1 to 8,192 bytes; bytes that are not UTF-8 are
    /// percent-escapes. Whether it is a URL is judged by the broker.
    public var url: String
    public var options = Options()
    /// HTTP header fields to send, lines separated by LF, unchecked.
    public var httpFields: [UInt8] = []
    /// What the sender puts into frame 2, at most `WireLimits.requestBodyBytes`. Who reads a head finds nil.
    public var body: [UInt8]?

    /// What the named fields say, each with its default.
    public struct Options: Equatable, Sendable {
        public var priority = PriorityClass.normal
        /// An HTTP method; others than `GET` and `HEAD` are for requests that do not coalesce.
        public var method = "GET"
        /// Whether others may share the fetch.
        public var coalesces = true
        /// The longest time without a byte; 1 ms to a day.
        public var timeoutMilliseconds = 60_000
        /// The time for all of it, waiting included; nil for none.
        public var deadlineMilliseconds: Int?
        /// Decoded bytes of body; nil for no limit.
        public var maxBytes: Int?
        public var redirect = RedirectMode.follow
        /// How it deals with the cache.
        public var cache = CacheMode.default
        /// Attempts after the first; 0 to 20.
        public var retries = 2
        /// The least time between two PROGRESS messages, at least 50; nil for none at all.
        public var progressMilliseconds: Int?
        /// Whether progress tells where the body can be read while it arrives.
        public var streams = false
        /// In which form the body comes.
        public var delivery = BodyDelivery.auto
        /// Whether a file is to be the client's own, to be moved away, if nobody else has to do with it.
        public var takes = false
        /// The SHA-256 the body must have, 64 hexadecimal digits.
        public var digest: String?
        /// A coalescing key of the client's own, added to the broker's; 1 to 200 visible bytes.
        public var key: String?
        /// By which way it goes to its server.
        public var route = Route()
        /// Whether it takes part in the cookies of its handler's root.
        public var usesCookies = false
        /// First purge all that the handler wanted.
        public var replacesHandler = false
        /// Fetch, but deliver no body.
        public var isWarm = false
        /// Whether it is kept on the disk and runs without its client, until its terminal is acknowledged.
        public var isDurable = false
        /// Whether the sender is subscribed to the handler and owns the request; a durable one belongs to its handler.
        public var subscribes = true
        /// Milliseconds since the program first made the request, for one that is sent again; at most a day.
        public var askedMilliseconds = 0
        /// Echoed by the terminal and by progress.
        public var tag: String?

        public init() {}
    }

    public init(handler: HandlerID, request: RequestID, url: String) {
        self.handler = handler
        self.request = request
        self.url = url
    }

    init(_ reader: HeadReader) throws(WireError) {
        handler = try reader.handler(0)
        request = try reader.request(1)
        url = try reader.operand(2, "URL").escapedString
        try reader.expectOperands(3)
        guard url.utf8.count <= WireLimits.urlBytes else {
            throw WireError(.limit, "the URL is longer than \(WireLimits.urlBytes) bytes")
        }
        httpFields = reader.httpFields
        for field in reader.fields { try options.set(field.name, field.value) }
    }

    func encoded() -> [UInt8] {
        var writer = HeadWriter("FETCH")
        writer.operand(handler.description)
        writer.operand(request.description)
        writer.operand(url)
        options.write(to: &writer)
        return writer.finished(httpFields: httpFields)
    }
}

extension Fetch.Options {
    /// Retries a client may ask for.
    public static let retriesRange = 0...20

    /// Methods of which asking twice does no more than asking once: RFC 9110, section 9.2.2. No unknown method is one.
    public static let idempotentMethods: Set<String> = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"]

    /// Whether the request lives and dies with its sender.
    public var isOwned: Bool { subscribes && !isDurable }

    /// Whether it may be asked again by itself when nobody knows what became of it.
    public var isRepeatable: Bool { Self.idempotentMethods.contains(method) }

    mutating func set(_ name: HeadText, _ value: HeadText) throws(WireError) {
        switch name {
        case "priority":
            priority = try HeadReader.priorityClass(value)
        case "method":
            guard Ascii.isIdentifier(value.bytes) else { throw WireError(.badMessage, "method is an HTTP method") }
            method = value.string
        case "coalesce": coalesces = try HeadReader.flag(value, "coalesce")
        case "timeout": timeoutMilliseconds = try HeadReader.milliseconds(value, "timeout")
        case "deadline": deadlineMilliseconds = try HeadReader.milliseconds(value, "deadline")
        case "max-bytes": maxBytes = try HeadReader.count(value, "max-bytes")
        case "redirect":
            guard let mode = RedirectMode(rawValue: value.string) else {
                throw WireError(.badMessage, "redirect is follow, error or manual")
            }
            redirect = mode
        case "cache":
            guard let mode = CacheMode(rawValue: value.string) else {
                throw WireError(
                    .badMessage,
                    "cache is default, explicit, no-store, reload, no-cache, force-cache or only-if-cached")
            }
            cache = mode
        case "retries": retries = try HeadReader.integer(value, in: Self.retriesRange, "retries")
        case "progress":
            progressMilliseconds = try HeadReader.integer(value, in: 50...WireLimits.seconds * 1000, "progress")
        case "deliver":
            guard let form = BodyDelivery(rawValue: value.string) else {
                throw WireError(.badMessage, "deliver is auto, inline or file")
            }
            delivery = form
        case "take": takes = try HeadReader.flag(value, "take")
        case "stream": streams = try HeadReader.flag(value, "stream")
        case "digest":
            guard value.bytes.starts(with: "sha-256=".utf8) else {
                throw WireError(.badMessage, "digest is sha-256=HEX")
            }
            digest = try HeadReader.sha256(HeadText(bytes: value.bytes.dropFirst(8)), "digest")
        case "key":
            guard (1...WireLimits.keyBytes).contains(value.bytes.count), value.bytes.allSatisfy(Ascii.isVisible) else {
                throw WireError(.badMessage, "key is 1 to \(WireLimits.keyBytes) visible ASCII bytes")
            }
            key = value.string
        case "cookies": usesCookies = try HeadReader.flag(value, "cookies")
        case "replace": replacesHandler = try HeadReader.flag(value, "replace")
        case "warm": isWarm = try HeadReader.flag(value, "warm")
        case "durable": isDurable = try HeadReader.flag(value, "durable")
        case "subscribe": subscribes = try HeadReader.flag(value, "subscribe")
        case "asked-ms":
            askedMilliseconds = try HeadReader.integer(value, in: 0...WireLimits.seconds * 1000, "asked-ms")
        case "tag": tag = try HeadReader.identifier(value, "tag")
        default: _ = try route.set(name, value)  // Others are a later version's.
        }
    }

    func write(to writer: inout HeadWriter) {
        let usual = Fetch.Options()
        writer.field("priority", if: priority != usual.priority, priority.name)
        writer.field("method", if: method != usual.method, method)
        writer.field("coalesce", if: !coalesces, "no")
        if timeoutMilliseconds != usual.timeoutMilliseconds { writer.field("timeout", seconds: timeoutMilliseconds) }
        writer.field("deadline", seconds: deadlineMilliseconds)
        writer.field("max-bytes", maxBytes)
        writer.field("redirect", if: redirect != usual.redirect, redirect.rawValue)
        writer.field("cache", if: cache != usual.cache, cache.rawValue)
        if retries != usual.retries { writer.field("retries", retries) }
        writer.field("progress", progressMilliseconds)
        writer.field("stream", if: streams, "yes")
        writer.field("deliver", if: delivery != usual.delivery, delivery.rawValue)
        writer.field("take", if: takes, "yes")
        writer.field("digest", digest.map { "sha-256=" + $0 })
        writer.field("key", key)
        route.write(to: &writer)
        writer.field("cookies", if: usesCookies, "yes")
        writer.field("replace", if: replacesHandler, "yes")
        writer.field("warm", if: isWarm, "yes")
        writer.field("durable", if: isDurable, "yes")
        writer.field("subscribe", if: !subscribes, "no")
        if askedMilliseconds > 0 { writer.field("asked-ms", askedMilliseconds) }
        writer.field("tag", tag)
    }
}
