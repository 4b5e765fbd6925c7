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
        for (name, value) in reader.fields { try options.set(name, value) }
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

    /// The defaults.
    private static let usual = Self()

    /// The table of options: name, property, default, form, whether two requests that differ in it are different
    /// requests, and the help of a command that offers it. Reader, writer, fingerprint, durable storage, command-line
    /// option and the check of the document derive from it.
    ///
    /// Inlined with its visitor, so that a visit is straight code without calls.
    @inline(__always)
    static func visit(_ options: inout Self, _ visitor: inout some FieldVisitor) throws(WireError) {
        try visitor.field(
            "priority", &options.priority, usual.priority, ClassForm(), .handling,
            help: "Class of urgency: background, low, normal or high")
        try visitor.field("method", &options.method, usual.method, MethodForm(), .content)
        try visitor.field("coalesce", &options.coalesces, usual.coalesces, FlagForm(), .content)
        try visitor.field(
            "timeout", &options.timeoutMilliseconds, usual.timeoutMilliseconds, SecondsForm(), .handling,
            help: "Maximum time without a byte from the server, in seconds")
        try visitor.field(
            "deadline", &options.deadlineMilliseconds, nil, OptionalForm(SecondsForm()), .handling,
            help: "Maximum total time, waiting included, in seconds")
        try visitor.field(
            "max-bytes", &options.maxBytes, nil, OptionalForm(NumberForm(0...Int.max)), .handling,
            help: "Maximum size of the decoded body, in bytes")
        try visitor.field(
            "redirect", &options.redirect, usual.redirect, WordForm(), .content,
            help: "Treatment of a redirect")
        try visitor.field(
            "cache", &options.cache, usual.cache, WordForm(), .content,
            help: """
                Use of the cache. explicit uses responses that are fresh by max-age or Expires, and validates others; \
                default also estimates freshness from Last-Modified
                """)
        try visitor.field(
            "retries", &options.retries, usual.retries, NumberForm(retriesRange), .handling,
            help: "Maximum number of retries for transient failures")
        try visitor.field(
            "progress", &options.progressMilliseconds, nil,
            OptionalForm(NumberForm(50...WireLimits.seconds * 1000)), .handling)
        try visitor.field("stream", &options.streams, usual.streams, FlagForm(), .handling)
        try visitor.field("deliver", &options.delivery, usual.delivery, WordForm(), .handling)
        try visitor.field("take", &options.takes, usual.takes, FlagForm(), .handling)
        try visitor.field("digest", &options.digest, nil, OptionalForm(DigestForm()), .content)
        try visitor.field("key", &options.key, nil, OptionalForm(KeyForm()), .content)
        try visitor.route(&options.route)
        try visitor.field(
            "cookies", &options.usesCookies, usual.usesCookies, FlagForm(), .content,
            help: """
                Send and keep cookies. They belong to the first part of the handler's name, see --handler, and outlive \
                the command by the setting cookie-time; a private bus takes them with it
                """)
        try visitor.field("replace", &options.replacesHandler, usual.replacesHandler, FlagForm(), .handling)
        try visitor.field("warm", &options.isWarm, usual.isWarm, FlagForm(), .content)
        try visitor.field("durable", &options.isDurable, usual.isDurable, FlagForm(), .content)
        try visitor.field("subscribe", &options.subscribes, usual.subscribes, FlagForm(), .handling)
        try visitor.field(
            "asked-ms", &options.askedMilliseconds, usual.askedMilliseconds,
            NumberForm(0...WireLimits.seconds * 1000), .handling)
        try visitor.field("tag", &options.tag, nil, OptionalForm(IdentifierForm()), .handling)
    }

    /// Whether it differs from no options at all only in the way it is handled.
    public var hasUsualContent: Bool {
        var (options, check) = (self, ContentCheck())
        try? Self.visit(&options, &check)
        return check.isUsual
    }

    /// Hashes the options in which no two requests under one ID differ. For a comparison inside one process.
    public func hashContent(into hasher: inout Hasher) {
        var (options, visitor) = (self, ContentHasher(hasher: hasher))
        try? Self.visit(&options, &visitor)
        hasher = visitor.hasher
    }

    /// Bytes of all texts.
    public var textBytes: Int {
        var (options, counter) = (self, TextCounter())
        try? Self.visit(&options, &counter)
        return counter.byteCount
    }

    /// The fields in the order in which they are written.
    public static var fields: [FieldRow] {
        var (options, list) = (Self(), FieldList())
        try? Self.visit(&options, &list)
        return list.rows
    }

    /// Sets an option of the table to text of a person.
    ///
    /// - Throws: `WireError` whose detail tells the possible values.
    public mutating func set(_ name: String, to text: String) throws(WireError) {
        try set(HeadText(bytes: Array(name.utf8)[...]), HeadText(bytes: Array(text.utf8)[...]))
    }

    /// Reads a field. Unknown ones are a later version's.
    @inline(__always)
    mutating func set(_ name: HeadText, _ value: HeadText) throws(WireError) {
        var reader = FieldReader(name, value)
        try Self.visit(&self, &reader)
        if !reader.isDone { _ = try route.set(reader.name, reader.text) }
    }

    func write(to writer: inout HeadWriter) {
        var options = self
        // A writer throws nothing.
        try? Self.visit(&options, &writer)
    }
}
