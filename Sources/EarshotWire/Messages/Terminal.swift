/// The one last message of a request: RESULT or FAILED.
///
/// Head: `RESULT handler request status` or `FAILED handler request code`, fields, an empty line and the HTTP response
/// fields. Body: frame 2, absent when it is empty or a file.
public struct Terminal: Equatable, Sendable {
    public var handler: HandlerID
    public var request: RequestID
    /// Counts from 1 in each session; what ACK names. 0 of a FAILED that answers a FETCH as ACCEPTED does, and of a
    /// terminal without its number yet: then there is no `seq`.
    public var sequence: UInt64
    /// As the request gave it.
    public var tag: String?
    /// Whether the broker keeps the request on its disk until this terminal is acknowledged.
    public var isDurable = false
    public var outcome: Outcome

    /// What became of the request; the same value for all that shared the flight.
    public enum Outcome: Equatable, Sendable {
        case result(status: Int, Response)
        case failed(Failure)
    }

    /// An answer of an origin, and how it came.
    public struct Response: Equatable, Sendable {
        /// The URL that answered, after redirects.
        public var url: String
        public var source = Source.network
        /// Decoded bytes of body.
        public var length = 0
        /// Of the decoded body, 64 hexadecimal digits.
        public var sha256: String?
        /// Absolute path of the body; nil if it is in frame 2. Valid until the terminal is acknowledged.
        public var file: String?
        /// Whether the file is the receiver's own, to be moved away or changed before the terminal is acknowledged.
        public var isYours = false
        /// Of whose bytes the body is, if the request streams and the body is a file.
        public var generation: Generation?
        /// From the request to the start of the attempt that succeeded.
        public var queuedMilliseconds = 0
        /// From the request to its terminal.
        public var elapsedMilliseconds = 0
        /// Attempts made, the last one included.
        public var attempts = 1
        /// Response header fields, lines separated by LF.
        public var httpFields: [UInt8] = []

        public init(url: String) {
            self.url = url
        }
    }

    /// Why there is no result.
    public struct Failure: Equatable, Sendable {
        /// A code of the table in `protocols/3-CODES.md`, section "Failures".
        public var code: String
        /// A sentence; holds nothing a peer supplied.
        public var detail: String?
        /// The status, when the code is `http-status`; then `response` is the error page.
        public var status: Int?
        public var response: Response?
        /// Attempts made.
        public var attempts = 0

        public init(code: String, detail: String? = nil) {
            self.code = code
            self.detail = detail
        }
    }

    /// Where a result came from.
    public enum Source: String, Sendable {
        /// A transfer this request began.
        case network
        /// A transfer another request had begun.
        case shared
        /// A transfer that went on where an earlier one had broken off.
        case resumed
        /// The cache.
        case cache
        /// The cache, after the server said that it has not changed.
        case revalidated
    }

    public init(
        handler: HandlerID, request: RequestID, sequence: UInt64, tag: String? = nil, isDurable: Bool = false,
        outcome: Outcome
    ) {
        self.handler = handler
        self.request = request
        self.sequence = sequence
        self.tag = tag
        self.isDurable = isDurable
        self.outcome = outcome
    }

    /// The response, of a result or of an error page.
    public var response: Response? {
        switch outcome {
        case .result(_, let response): response
        case .failed(let failure): failure.response
        }
    }
}

extension Terminal {
    init(result reader: HeadReader) throws(WireError) {
        try reader.expectOperands(3)
        let status = try HeadReader.status(try reader.operand(2, "status"))
        handler = try reader.handler(0)
        request = try reader.request(1)
        sequence = 0
        var response = Response(url: "")
        response.httpFields = reader.httpFields
        for (name, value) in reader.fields {
            switch name {
            case "seq": sequence = try HeadReader.sequence(value)
            case "tag": tag = try HeadReader.identifier(value, "tag")
            case "durable": isDurable = try HeadReader.flag(value, "durable")
            default: try response.set(name, value)
            }
        }
        outcome = .result(status: status, response)
    }

    init(failed reader: HeadReader) throws(WireError) {
        try reader.expectOperands(3)
        var failure = Failure(code: try HeadReader.identifier(try reader.operand(2, "code"), "code"))
        handler = try reader.handler(0)
        request = try reader.request(1)
        sequence = 0
        var response = Response(url: "")
        response.httpFields = reader.httpFields
        for (name, value) in reader.fields {
            switch name {
            case "seq": sequence = try HeadReader.sequence(value)
            case "tag": tag = try HeadReader.identifier(value, "tag")
            case "durable": isDurable = try HeadReader.flag(value, "durable")
            case "detail": failure.detail = value.string
            case "status": failure.status = try HeadReader.status(value)
            default: try response.set(name, value)
            }
        }
        failure.attempts = response.attempts
        if !response.url.isEmpty { failure.response = response }
        outcome = .failed(failure)
    }

    func encoded() -> [UInt8] {
        switch outcome {
        case .result(let status, let response):
            var writer = begin("RESULT", response)
            writer.operand(status)
            writeSequence(to: &writer)
            response.write(to: &writer)
            return writer.finished(httpFields: response.httpFields)
        case .failed(let failure):
            var writer = begin("FAILED", failure.response)
            writer.operand(failure.code)
            writeSequence(to: &writer)
            writer.field("detail", failure.detail)
            writer.field("status", failure.status)
            if let response = failure.response {
                response.write(to: &writer)
                return writer.finished(httpFields: response.httpFields)
            }
            writer.field("attempts", failure.attempts)
            return writer.finished()
        }
    }

    private func begin(_ verb: String, _ response: Response?) -> HeadWriter {
        // All that is not URL and fields comes to less than that; a handler with a long name makes it grow.
        let capacity = 384 + (response.map { $0.url.utf8.count + $0.httpFields.count } ?? 0)
        var writer = HeadWriter(verb, capacity: capacity)
        writer.operand(handler.description)
        writer.operand(request.description)
        return writer
    }

    private func writeSequence(to writer: inout HeadWriter) {
        if sequence > 0 { writer.field("seq", sequence) }
        writer.field("tag", tag)
        writer.field("durable", if: isDurable, "yes")
    }
}

extension Terminal.Response {
    mutating func set(_ name: HeadText, _ value: HeadText) throws(WireError) {
        switch name {
        case "url": url = value.string
        case "source":
            guard let named = Terminal.Source(rawValue: value.string) else {
                throw WireError(.badMessage, "source is network, shared, resumed, cache or revalidated")
            }
            source = named
        case "length": length = try HeadReader.count(value, "length")
        case "sha-256": sha256 = try HeadReader.sha256(value, "sha-256")
        case "file": file = value.string
        case "yours": isYours = try HeadReader.flag(value, "yours")
        case "generation": generation = try HeadReader.generation(value)
        case "queued-ms": queuedMilliseconds = try HeadReader.count(value, "queued-ms")
        case "elapsed-ms": elapsedMilliseconds = try HeadReader.count(value, "elapsed-ms")
        case "attempts": attempts = try HeadReader.count(value, "attempts")
        default: break
        }
    }

    func write(to writer: inout HeadWriter) {
        writer.field("url", url)
        writer.field("source", source.rawValue)
        writer.field("length", length)
        writer.field("sha-256", sha256)
        writer.field("file", file)
        writer.field("yours", if: isYours, "yes")
        writer.field("generation", generation?.description)
        writer.field("queued-ms", queuedMilliseconds)
        writer.field("elapsed-ms", elapsedMilliseconds)
        writer.field("attempts", attempts)
    }
}

extension HeadReader {
    /// A terminal's number.
    fileprivate static func sequence(_ text: HeadText) throws(WireError) -> UInt64 { UInt64(try count(text, "seq")) }

    /// An HTTP status of a final response.
    static func status(_ text: HeadText) throws(WireError) -> Int {
        try integer(text, in: 200...999, "status")
    }
}
