/// Final message of a request: RESULT or FAILED.
///
/// Head: `RESULT handler request status` or `FAILED handler request code`, fields, an empty line and the HTTP response
/// fields. Body: the second frame, absent if the body is empty or a file.
public struct Terminal: Equatable, Sendable {
    public var handler: HandlerID
    public var request: RequestID
    public var outcome: Outcome
    /// Sequence number in the session, from 1, which ACK refers to. 0 for a FAILED that replies to a durable FETCH, and
    /// for a terminal without a number yet. Such a head has no `seq`.
    public var sequence: UInt64
    /// Whether the broker stores the request on disk until this terminal is acknowledged.
    public var isDurable = false

    /// Outcome of a request. All requests that shared a flight have the same value.
    public enum Outcome: Equatable, Sendable {
        case result(status: Int, Response)
        case failed(Failure)
    }

    /// A response of an origin, with its provenance.
    public struct Response: Equatable, Sendable {
        /// URL of the response, after redirects.
        public var url: String
        /// Redirects that led to `url`, in their order.
        public var redirects: [Redirect] = []
        public var source = Source.network
        /// Number of bytes with which the attempt began, if `source` is `resumed`; 0 if it is unknown.
        public var resumedBytes = 0
        /// Decoded length of the body in bytes.
        public var bodyByteCount = 0
        /// SHA-256 of the decoded body, 64 hexadecimal digits.
        public var sha256: String?
        /// Absolute path of the body's file; nil for a body in the second frame. Valid until the terminal is
        /// acknowledged.
        public var bodyFilePath: String?
        /// Whether the sender reads the file into the second frame. The head then has no path.
        public var isInline = false
        /// Whether the receiver reads the body with READ. The head then has no path.
        public var isPulled = false
        /// Generation of the body, if the request streams and the body is a file.
        public var generation: Generation?
        /// Time from the request to the start of the successful attempt.
        public var queuedMilliseconds = 0
        /// Time from the request to its terminal.
        public var elapsedMilliseconds = 0
        /// Number of attempts, including the last one.
        public var attempts = 1
        /// Response header fields, separated by LF.
        public var httpFields: [UInt8] = []

        public init(url: String) {
            self.url = url
        }
    }

    /// Reason why there is no result.
    public struct Failure: Equatable, Sendable {
        /// A code of the table in `protocols/8-codes.md`, section "Failures".
        public var code: String
        /// Sentence without peer-supplied text.
        public var detail: String?
        /// The status, if the code is `http-status`. `errorPageResponse` is then the error page.
        public var status: Int?
        /// URL of the last attempt, or of the request if there was none; nil if the broker does not know it. Nil if
        /// `errorPageResponse` has it.
        public var url: String?
        public var errorPageResponse: Response?
        /// Number of attempts.
        public var attempts = 0
        /// Seconds until the end of the cool-down, if the code is `origin-cooling`, rounded up; nil if it is unknown.
        public var retryAfterSeconds: Int?

        public init(code: String, detail: String? = nil) {
            self.code = code
            self.detail = detail
        }
    }

    /// Source of a result.
    public enum Source: String, Sendable {
        /// A transfer that this request started.
        case network
        /// A transfer that another request had started.
        case sharedFlight = "shared"
        /// A transfer that resumed a partial body.
        case resumed
        /// Another node of the cluster, which received the response from the server.
        case clusterNode = "node"
        /// The cache.
        case cache
        /// The cache, after the server confirmed that the response is unchanged.
        case revalidated
    }

    /// URL that answered, or that the last attempt requested; nil if the terminal does not state it.
    public var url: String? {
        if let response { return response.url }
        guard case .failed(let failure) = outcome else { return nil }
        return failure.url
    }

    /// The response of a result or of an error page.
    public var response: Response? {
        switch outcome {
        case .result(_, let response): response
        case .failed(let failure): failure.errorPageResponse
        }
    }
}

extension Terminal {
    // Uses the memberwise initializer: the compiler would copy a large value that is set field by field.
    public init(handler: HandlerID, request: RequestID, sequence: UInt64, isDurable: Bool = false, outcome: Outcome) {
        self.init(handler: handler, request: request, outcome: outcome, sequence: sequence, isDurable: isDurable)
    }

    /// Decodes a RESULT.
    static func decoded(result reader: HeadReader) throws(WireError) -> Terminal {
        try reader.expectOperands(3)
        let status = try HeadReader.parseStatus(try reader.operand(at: 2, named: "status"))
        let (handler, request) = (try reader.handler(at: 0), try reader.request(at: 1))
        var response = Response(url: "")
        let (sequence, isDurable) = try readFields(reader, &response)
        return Terminal(
            handler: handler, request: request, sequence: sequence, isDurable: isDurable,
            outcome: .result(status: status, response))
    }

    /// Reads the fields of a RESULT. Not inlined: the compiler copies a large variable that is used after a loop with
    /// exits.
    @inline(never)
    private static func readFields(
        _ reader: HeadReader, _ response: inout Response
    ) throws(WireError) -> (sequence: UInt64, isDurable: Bool) {
        response.httpFields = reader.httpFields
        var sequence: UInt64 = 0
        var isDurable = false
        for (name, value) in reader.fields {
            switch name {
            case "seq": sequence = try HeadReader.parseSequence(value)
            case "durable": isDurable = try HeadReader.parseFlag(value, named: "durable")
            default: try response.readField(name, value)
            }
        }
        try response.expectConsistency()
        return (sequence, isDurable)
    }

    init(failed reader: HeadReader) throws(WireError) {
        try reader.expectOperands(3)
        var failure = Failure(
            code: try HeadReader.parseIdentifier(try reader.operand(at: 2, named: "code"), named: "code"))
        handler = try reader.handler(at: 0)
        request = try reader.request(at: 1)
        sequence = 0
        var response = Response(url: "")
        var hasResponse = false
        response.httpFields = reader.httpFields
        for (name, value) in reader.fields {
            switch name {
            case "seq": sequence = try HeadReader.parseSequence(value)
            case "durable": isDurable = try HeadReader.parseFlag(value, named: "durable")
            case "source":
                hasResponse = true
                try response.readField(name, value)
            case "detail": failure.detail = value.string
            case "status": failure.status = try HeadReader.parseStatus(value)
            case "retry-after": failure.retryAfterSeconds = try HeadReader.parseCount(value, named: "retry-after")
            default: try response.readField(name, value)
            }
        }
        try response.expectConsistency()
        failure.attempts = response.attempts
        if hasResponse, !response.url.isEmpty {
            failure.errorPageResponse = response
        } else if !response.url.isEmpty {
            failure.url = response.url
        }
        outcome = .failed(failure)
    }

    /// Returns the head frame.
    public func encoded() -> [UInt8] {
        switch outcome {
        case .result(let status, let response):
            var writer = beginHead("RESULT", response)
            writer.writeOperand(status)
            writeSequence(to: &writer)
            response.write(to: &writer)
            return writer.finished(httpFields: response.httpFields)
        case .failed(let failure):
            var writer = beginHead("FAILED", failure.errorPageResponse)
            writer.writeOperand(failure.code)
            writeSequence(to: &writer)
            writer.writeField("detail", failure.detail)
            writer.writeField("status", failure.status)
            if let response = failure.errorPageResponse {
                response.write(to: &writer)
                return writer.finished(httpFields: response.httpFields)
            }
            writer.writeField("url", failure.url)
            writer.writeField("attempts", failure.attempts)
            if let seconds = failure.retryAfterSeconds { writer.writeField("retry-after", seconds) }
            return writer.finished()
        }
    }

    private func beginHead(_ verb: String, _ response: Response?) -> HeadWriter {
        // Enough for everything but URL and fields. A longer handler name reallocates the head.
        let capacity = 384 + (response.map { $0.url.utf8.count + $0.httpFields.count } ?? 0)
        var writer = HeadWriter(verb, capacity: capacity)
        writer.writeOperand(handler.description)
        writer.writeOperand(request.description)
        return writer
    }

    private func writeSequence(to writer: inout HeadWriter) {
        if sequence > 0 { writer.writeField("seq", sequence) }
        writer.writeField("durable", if: isDurable, "yes")
    }
}

extension Terminal.Response {
    mutating func readField(_ name: HeadText, _ value: HeadText) throws(WireError) {
        switch name {
        case "url": url = value.string
        case "redirects": redirects = try [Terminal.Redirect](value)
        case "source":
            guard let named = Terminal.Source(rawValue: value.string) else {
                throw WireError(.badMessage, "source must be network, shared, resumed, node, cache or revalidated")
            }
            source = named
        case "resumed-bytes": resumedBytes = try HeadReader.parseInteger(value, in: 1...Int.max, named: "resumed-bytes")
        case "length": bodyByteCount = try HeadReader.parseCount(value, named: "length")
        case "sha-256": sha256 = try HeadReader.parseSHA256(value, named: "sha-256")
        case "file": bodyFilePath = value.string
        case "pull": isPulled = try HeadReader.parseFlag(value, named: "pull")
        case "generation": generation = try HeadReader.parseGeneration(value)
        case "queued-ms": queuedMilliseconds = try HeadReader.parseCount(value, named: "queued-ms")
        case "elapsed-ms": elapsedMilliseconds = try HeadReader.parseCount(value, named: "elapsed-ms")
        case "attempts": attempts = try HeadReader.parseCount(value, named: "attempts")
        default: break
        }
    }

    /// Refuses contradictory fields.
    func expectConsistency() throws(WireError) {
        guard !isPulled || bodyFilePath == nil else { throw WireError(.badMessage, "pull excludes file") }
        guard resumedBytes == 0 || source == .resumed && resumedBytes <= bodyByteCount else {
            throw WireError(.badMessage, "resumed-bytes requires source: resumed, and must be at most length")
        }
    }

    func write(to writer: inout HeadWriter) {
        writer.writeField("url", url)
        if !redirects.isEmpty { writer.writeField("redirects", redirects.fieldValue) }
        writer.writeField("source", source.rawValue)
        if resumedBytes > 0 { writer.writeField("resumed-bytes", resumedBytes) }
        writer.writeField("length", bodyByteCount)
        writer.writeField("sha-256", sha256)
        if isPulled {
            writer.writeField("pull", "yes")
        } else if !isInline {
            writer.writeField("file", bodyFilePath)
        }
        writer.writeField("generation", generation?.description)
        writer.writeField("queued-ms", queuedMilliseconds)
        writer.writeField("elapsed-ms", elapsedMilliseconds)
        writer.writeField("attempts", attempts)
    }
}

extension HeadReader {
    /// Parses a terminal's number.
    fileprivate static func parseSequence(_ text: HeadText) throws(WireError) -> UInt64 {
        UInt64(try parseCount(text, named: "seq"))
    }

    /// Parses the HTTP status of a final response.
    static func parseStatus(_ text: HeadText) throws(WireError) -> Int {
        try parseInteger(text, in: 200...999, named: "status")
    }
}

/// Terminals whose body has another form than a path.
extension Terminal {
    /// Whether the body is delivered in a file.
    public var hasBodyFile: Bool { response.map { $0.bodyFilePath != nil && !$0.isInline } ?? false }

    /// Returns the terminal with a body that the receiver reads with READ. The file stays in the value for the sender,
    /// and the head does not name it.
    public func withPulledBody() -> Terminal {
        var terminal = self
        switch outcome {
        case .result(let status, var response):
            response.isPulled = true
            terminal.outcome = .result(status: status, response)
        case .failed(var failure):
            failure.errorPageResponse?.isPulled = true
            terminal.outcome = .failed(failure)
        }
        return terminal
    }

    /// Returns the terminal without its file, for a body in the second frame or in a database.
    public func withoutFile() -> Terminal {
        func withoutFile(_ response: Response) -> Response {
            var response = response
            (response.bodyFilePath, response.generation) = (nil, nil)
            (response.isInline, response.isPulled) = (false, false)
            return response
        }
        var terminal = self
        switch outcome {
        case .result(let status, let response): terminal.outcome = .result(status: status, withoutFile(response))
        case .failed(var failure):
            failure.errorPageResponse = failure.errorPageResponse.map(withoutFile)
            terminal.outcome = .failed(failure)
        }
        return terminal
    }
}

extension Terminal {
    /// A redirect that led to the response of a terminal.
    public struct Redirect: Hashable, Sendable {
        /// Status of the redirect.
        public var status: Int
        /// URL of its target, in normal form; nil if the list had no room for it.
        public var url: String?

        public init(status: Int, url: String?) {
            self.status = status
            self.url = url
        }
    }
}

extension [Terminal.Redirect] {
    /// Mark for the URL of a redirect that has no room.
    private static var omittedURLMark: String { "-" }

    /// Reads pairs of status and URL.
    init(_ text: HeadText) throws(WireError) {
        self = []
        // Bytes that are not UTF-8 become longer. The list could otherwise not be written again.
        let string = text.string
        guard string.utf8.count <= WireLimits.redirectsFieldBytes else {
            throw WireError(.badMessage, "redirects must have at most \(WireLimits.redirectsFieldBytes) bytes")
        }
        var words = string.split(separator: " ")[...]
        while let status = words.popFirst() {
            guard let number = Int(status), (300...399).contains(number), let url = words.popFirst() else {
                throw WireError(.badMessage, "redirects must be pairs of a status and a URL")
            }
            append(Terminal.Redirect(status: number, url: url == Self.omittedURLMark ? nil : String(url)))
        }
    }

    /// The redirects as the field holds them: without the URLs for which its `WireLimits.redirectsFieldBytes` have no
    /// room.
    public var boundedToFieldSize: [Terminal.Redirect] {
        // Each redirect but the first needs a space, its status, a space and at least a mark.
        var room = WireLimits.redirectsFieldBytes - count * 6 + 1
        return map { redirect in
            guard let url = redirect.url, url.utf8.count - 1 <= room else {
                return Terminal.Redirect(status: redirect.status, url: nil)
            }
            room -= url.utf8.count - 1
            return redirect
        }
    }

    /// Pairs of status and URL, at most `WireLimits.redirectsFieldBytes`.
    var fieldValue: String {
        boundedToFieldSize.map { "\($0.status) \($0.url ?? Self.omittedURLMark)" }.joined(separator: " ")
    }
}
