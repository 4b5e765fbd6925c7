/// FETCH: a client's request for a URL under a handler.
///
/// Head: `FETCH handler request url`, the fields below, an empty line and HTTP fields. Body: the body of the HTTP
/// request, usually absent.
public struct Fetch: Equatable, Sendable {
    public var handler: HandlerID
    public var request: RequestID
    /// URL as the client wrote it: 1 to 8,192 bytes without spaces and controls. Bytes that are not UTF-8 are
    /// percent-escaped. The broker parses it.
    public var url: String
    public var options = Options()
    /// HTTP header fields to send, separated by LF and unchecked.
    public var httpFields: [UInt8] = []
    /// Second frame, at most `WireLimits.requestBodyBytes`, set by the sender. Decoding a head leaves it nil.
    public var body: [UInt8]?

    /// The named fields, each with its default.
    public struct Options: Equatable, Sendable {
        public var priority = PriorityClass.normal
        /// HTTP method. Methods other than `GET` and `HEAD` require a request that does not coalesce.
        public var method = "GET"
        /// Whether other requests may share the fetch.
        public var coalesces = true
        /// Maximum time without a received byte, 1 ms to a day.
        public var timeoutMilliseconds = 60_000
        /// Maximum total time, including the time in the queue; nil for no limit.
        public var deadlineMilliseconds: Int?
        /// Maximum size of the decoded body in bytes; nil for no limit.
        public var maximumBodyBytes: Int?
        /// Maximum rate of all transfers of the handler together, in bytes per second; nil for no limit.
        public var handlerBytesPerSecond: Int?
        public var redirectMode = RedirectMode.follow
        /// Use of the cache.
        public var cacheMode = CacheMode.default
        /// Maximum number of retries, 0 to 20.
        public var retries = 2
        /// Minimum time between two PROGRESS messages, at least 50; nil for no PROGRESS.
        public var progressIntervalMilliseconds: Int?
        /// Whether PROGRESS names the file from which the body can be read while it arrives.
        public var streams = false
        /// Form in which the body is delivered.
        public var delivery = BodyDelivery.auto
        /// Required SHA-256 of the body, 64 hexadecimal digits.
        public var expectedSHA256: String?
        /// Proxy and certificates for the connection.
        public var route = Route()
        /// Whether the request uses the cookie jar of its handler's root.
        public var usesCookies = false
        /// Whether all earlier requests of the handler are purged first.
        public var replacesHandler = false
        /// Whether the response is only cached and no body is delivered.
        public var isCacheWarming = false
        /// Whether the request is stored on disk and runs without its client until its terminal is acknowledged.
        public var isDurable = false
        /// Whether the sender subscribes to the handler and owns the request. The handler owns a durable request.
        public var subscribes = true
        /// Maximum time of a wait for a cool-down of the origin, 0 for none; nil for no limit.
        public var coolDownWaitMilliseconds: Int?
        /// Time since the program made the request, if it could not be sent then or an earlier broker has lost it.
        /// Responses of other nodes of a cluster from that time answer it.
        public var ageMilliseconds = 0

        public init() {}
    }

    func encoded() -> [UInt8] {
        var writer = HeadWriter("FETCH")
        writer.writeOperand(handler.description)
        writer.writeOperand(request.description)
        writer.writeOperand(url)
        options.write(to: &writer)
        return writer.finished(httpFields: httpFields)
    }
}

extension Fetch {
    // Uses the memberwise initializer: the compiler would copy a large value that is set field by field.
    public init(handler: HandlerID, request: RequestID, url: String) {
        self.init(handler: handler, request: request, url: url, httpFields: [])
    }

    /// Decodes a head. Neither this function nor `setFields` is inlined: the compiler copies a large variable that is
    /// used after a loop with exits.
    @inline(never)
    static func decoded(_ reader: HeadReader) throws(WireError) -> Fetch {
        let (handler, request) = (try reader.handler(at: 0), try reader.request(at: 1))
        let url = try reader.url(at: 2)
        try reader.expectOperands(3)
        var fetch = Fetch(handler: handler, request: request, url: url)
        fetch.httpFields = reader.httpFields
        try fetch.options.setFields(reader)
        return fetch
    }
}

extension HeadReader {
    /// Returns the URL as its sender wrote it, percent-escaped where it is not UTF-8.
    func url(at index: Int) throws(WireError) -> String {
        let url = try operand(at: index, named: "URL").percentEscapedString
        guard url.utf8.count <= WireLimits.urlBytes else {
            throw WireError(.limitExceeded, "the URL is longer than \(WireLimits.urlBytes) bytes")
        }
        return url
    }
}

extension Fetch.Options {
    /// Range of `retries`.
    public static let retriesRange = 0...20

    /// Idempotent methods: RFC 9110, section 9.2.2. Unknown methods are not idempotent.
    public static let idempotentMethods: Set<String> = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"]

    /// Whether the request ends with its sender's session.
    public var endsWithSession: Bool { subscribes && !isDurable }

    /// Whether the request may be repeated automatically when its outcome is unknown.
    public var isRepeatable: Bool { Self.idempotentMethods.contains(method) }

    /// The defaults.
    private static let defaults = Self()

    /// The table of options: name, property, default, form, role and help. The role states whether two requests that
    /// differ in the option are different requests. Reader, writer, fingerprint, durable storage, command-line option
    /// and the check of the document derive from the table.
    static func visitFields(of options: inout Self, with visitor: inout some FieldVisitor) throws(WireError) {
        try visitor.visitField(
            "priority", &options.priority, defaults.priority, PriorityClassForm(), .handling,
            help: "Priority class: background, low, normal or high")
        try visitor.visitField("method", &options.method, defaults.method, MethodForm(), .content)
        try visitor.visitField("coalesce", &options.coalesces, defaults.coalesces, FlagForm(), .content)
        try visitor.visitField(
            "timeout", &options.timeoutMilliseconds, defaults.timeoutMilliseconds, SecondsForm(), .handling,
            help: "Maximum time without a byte from the server, in seconds")
        try visitor.visitField(
            "deadline", &options.deadlineMilliseconds, nil, OptionalForm(SecondsForm()), .handling,
            help: "Maximum total time, including the time in the queue, in seconds")
        try visitor.visitField(
            "max-bytes", &options.maximumBodyBytes, nil, OptionalForm(NumberForm(0...Int.max)), .handling,
            help: "Maximum size of the decoded body, such as 10M, in bytes")
        try visitor.visitField(
            "limit-rate", &options.handlerBytesPerSecond, nil, OptionalForm(NumberForm(1...1 << 50)), .handling,
            help: "Maximum rate of all transfers of the handler together, such as 2M, in bytes/s")
        try visitor.visitField(
            "redirect", &options.redirectMode, defaults.redirectMode, EnumerationForm(), .content,
            help: "Treatment of a redirect")
        try visitor.visitField(
            "cache", &options.cacheMode, defaults.cacheMode, EnumerationForm(), .content,
            help: """
                Cache mode. explicit uses responses that are fresh by max-age or Expires, and revalidates others; default \
                also estimates freshness from Last-Modified
                """)
        try visitor.visitField(
            "retries", &options.retries, defaults.retries, NumberForm(retriesRange), .handling,
            help: "Maximum number of retries for transient failures")
        try visitor.visitField(
            "progress", &options.progressIntervalMilliseconds, nil,
            OptionalForm(NumberForm(50...WireLimits.durationSeconds * 1000)), .handling)
        try visitor.visitField("stream", &options.streams, defaults.streams, FlagForm(), .handling)
        try visitor.visitField("deliver", &options.delivery, defaults.delivery, EnumerationForm(), .handling)
        try visitor.visitField("digest", &options.expectedSHA256, nil, OptionalForm(DigestForm()), .content)
        try visitor.visitRoute(&options.route)
        try visitor.visitField(
            "cookies", &options.usesCookies, defaults.usesCookies, FlagForm(), .content,
            help: """
                Send and store cookies, in a jar for the first part of the handler's name. The jar outlives the command \
                by the setting cookie-time
                """)
        try visitor.visitField("replace", &options.replacesHandler, defaults.replacesHandler, FlagForm(), .handling)
        try visitor.visitField("warm", &options.isCacheWarming, defaults.isCacheWarming, FlagForm(), .content)
        try visitor.visitField("durable", &options.isDurable, defaults.isDurable, FlagForm(), .content)
        try visitor.visitField("subscribe", &options.subscribes, defaults.subscribes, FlagForm(), .handling)
        try visitor.visitField(
            "wait-ms", &options.coolDownWaitMilliseconds, nil,
            OptionalForm(NumberForm(0...WireLimits.durationSeconds * 1000)), .handling)
        try visitor.visitField(
            "age-ms", &options.ageMilliseconds, defaults.ageMilliseconds,
            NumberForm(0...WireLimits.durationSeconds * 1000), .handling)
    }

    /// Whether all options with the role `.content` have their defaults.
    public var hasDefaultContent: Bool {
        var (options, check) = (self, ContentCheck())
        try? Self.visitFields(of: &options, with: &check)
        return check.isDefault
    }

    /// Hashes the options that distinguish requests under one ID. The result is valid only inside one process.
    public func hashContent(into hasher: inout Hasher) {
        var (options, visitor) = (self, ContentHasher(hasher: hasher))
        try? Self.visitFields(of: &options, with: &visitor)
        hasher = visitor.hasher
    }

    /// Total length of all texts, in bytes.
    public var totalTextBytes: Int {
        var (options, counter) = (self, TextCounter())
        try? Self.visitFields(of: &options, with: &counter)
        return counter.byteCount
    }

    /// The fields, in the order in which they are written.
    public static var fieldRows: [FieldRow] {
        var (options, list) = (Self(), FieldRowList())
        try? Self.visitFields(of: &options, with: &list)
        return list.rows
    }

    /// Sets an option of the table from user-supplied text.
    ///
    /// - Throws: `WireError` whose detail lists the possible values.
    public mutating func setOption(_ name: String, to text: String) throws(WireError) {
        try readField(HeadText(bytes: Array(name.utf8)[...]), HeadText(bytes: Array(text.utf8)[...]))
    }

    @inline(never)
    fileprivate mutating func setFields(_ reader: HeadReader) throws(WireError) {
        for (name, value) in reader.fields { try readField(name, value) }
    }

    /// Reads a field. Unknown fields are ignored, because a later version may define them.
    mutating func readField(_ name: HeadText, _ value: HeadText) throws(WireError) {
        var reader = FieldReader(name: name, value: value)
        try Self.visitFields(of: &self, with: &reader)
        if !reader.hasMatched { _ = try route.readField(reader.name, reader.text) }
    }

    func write(to writer: inout HeadWriter) {
        var options = self
        // The writer never throws.
        try? Self.visitFields(of: &options, with: &writer)
    }
}
