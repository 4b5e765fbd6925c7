/// Messages of the broker to a worker on the socket `work`: EARW/1, `protocols/6-workers.md`.
public enum PoolMessage: Equatable, Sendable {
    /// Reply to READY, repeated when the limits change.
    case limits(WorkerLimits)
    case job(Job)
    /// A file that later jobs name, for a place of the worker's table. Its content is the second frame.
    ///
    /// - Parameter error: Reason why the broker cannot read it; nil if the content follows.
    case file(Int, path: String, error: String?)
    /// Raises the maximum body size of an attempt; nil removes it.
    case raise(AttemptID, maxBytes: Int?)
    /// Changes the rate of an attempt; nil removes the limit.
    case rate(AttemptID, bytesPerSecond: Int?)
    /// Cancels an attempt. Its FAILED or DONE confirms the end.
    case cancel(AttemptID)
    case ping
    /// Requests the worker to finish its running jobs and exit.
    case drain
    case error(code: String, detail: String?)

    /// - Throws: `WireError` for bytes that are not a valid message.
    public init(head: [UInt8]) throws(WireError) {
        let reader = try HeadReader(head, limit: WireLimits.jobHeadBytes)
        switch reader.verb {
        case "LIMITS": self = .limits(try WorkerLimits(reader))
        case "JOB": self = .job(try .decoded(reader))
        case "FILE":
            try reader.expectOperands(1)
            let place = try HeadReader.integer(try reader.operand(0, "place"), in: 0...WireLimits.files, "FILE")
            guard let path = reader.fields["path"] else { throw WireError(.badMessage, "FILE lacks its path") }
            self = .file(place, path: try Route.path(path.string), error: reader.fields["error"]?.string)
        case "CANCEL":
            try reader.expectOperands(1)
            self = .cancel(try reader.attempt(0))
        case "RAISE":
            try reader.expectOperands(1)
            var maxBytes: Int?
            for (name, value) in reader.fields where name == "max-bytes" {
                maxBytes = try HeadReader.count(value, "max-bytes")
            }
            self = .raise(try reader.attempt(0), maxBytes: maxBytes)
        case "RATE":
            try reader.expectOperands(1)
            self = .rate(
                try reader.attempt(0),
                bytesPerSecond: try reader.fields["rate"].map { text throws(WireError) in
                    try HeadReader.integer(text, in: Job.rates, "rate")
                })
        case "PING": self = .ping
        case "DRAIN": self = .drain
        case "ERROR":
            let code = try HeadReader.identifier(try reader.operand(0, "code"), "code")
            self = .error(code: code, detail: reader.fields["detail"]?.string)
        default: throw WireError(.unknownVerb, "EARW/1 has no such verb for brokers")
        }
    }

    /// The head frame. A request's body is sent in the second frame of its JOB.
    public func encoded() -> [UInt8] {
        switch self {
        case .limits(let limits): return limits.encoded()
        case .job(let job): return job.encoded()
        case .file(let place, let path, let error):
            var writer = HeadWriter("FILE")
            writer.operand(place)
            writer.field("path", path)
            writer.field("error", error)
            return writer.finished()
        case .cancel(let attempt):
            var writer = HeadWriter("CANCEL")
            writer.operand(attempt)
            return writer.finished()
        case .raise(let attempt, let maxBytes):
            var writer = HeadWriter("RAISE")
            writer.operand(attempt)
            writer.field("max-bytes", maxBytes)
            return writer.finished()
        case .rate(let attempt, let rate):
            var writer = HeadWriter("RATE")
            writer.operand(attempt)
            writer.field("rate", rate)
            return writer.finished()
        case .ping: return HeadWriter("PING").finished()
        case .drain: return HeadWriter("DRAIN").finished()
        case .error(let code, let detail):
            var writer = HeadWriter("ERROR")
            writer.operand(code)
            writer.field("detail", detail)
            return writer.finished()
        }
    }
}

/// LIMITS: the broker's instance and the terms for a worker.
public struct WorkerLimits: Equatable, Sendable {
    public var broker: BrokerInstance
    /// Maximum size of a body in the second frame, in decoded bytes.
    public var inlineBytes = 65_536
    /// Absolute path of the folder for larger bodies; empty for a worker on another machine, which has no files.
    public var spool: String
    /// Number of concurrent transfers that the broker requests, 1 to 10,000; nil to leave it to the worker.
    public var slots: Int?
    /// Policy for addresses of http and https: rules for `AddressPolicy`, on one line; empty for no restriction.
    public var addressPolicy = ""
    /// Minimum free space on the spool's disk, in bytes.
    public var spoolFreeBytes = 0
    /// Maximum number of decoded bytes for each encoded byte; above it a body fails as `too-compressed`. 0 for no
    /// limit.
    public var maxRatio = 0
    /// Maximum size of the body of an error page or a followed redirect, in bytes; nil for no limit.
    public var pageBytes: Int?
    /// Minimum severity of log messages, the index of a `LogSeverity`; nil to leave it to the worker.
    public var logLevel: Int?
    /// Whether the worker must restrict itself: 0 for yes, 1 for no, as the setting stores it.
    public var sandbox = 1

    public init(broker: BrokerInstance, spool: String) {
        self.broker = broker
        self.spool = spool
    }

    /// Terms of a worker on another machine: no path and no file. All bodies travel in messages, as long as the gateway
    /// relays.
    public var withoutFiles: WorkerLimits {
        var terms = self
        terms.spool = ""
        terms.spoolFreeBytes = 0
        terms.inlineBytes = WireLimits.remoteBodyBytes
        terms.addressPolicy = ""
        return terms
    }

    init(_ reader: HeadReader) throws(WireError) {
        try reader.expectOperands(0)
        var broker: BrokerInstance?
        spool = ""
        for (name, value) in reader.fields {
            switch name {
            case "broker": broker = try HeadReader.instance(value)
            case "inline-bytes": inlineBytes = try HeadReader.integer(value, in: 0...1 << 30, "inline-bytes")
            case "spool": spool = value.string
            case "slots": slots = try HeadReader.integer(value, in: 1...WireLimits.slots, "slots")
            case "address-policy": addressPolicy = value.string
            case "sandbox": sandbox = try HeadReader.flag(value, "sandbox") ? 0 : 1
            case "spool-free": spoolFreeBytes = try HeadReader.count(value, "spool-free")
            case "max-ratio": maxRatio = try HeadReader.integer(value, in: 0...WireLimits.ratio, "max-ratio")
            case "page-bytes": pageBytes = try HeadReader.count(value, "page-bytes")
            case "log-level":
                guard let severity = LogSeverity(rawValue: value.string) else {
                    throw WireError(.badMessage, "the log-level of LIMITS is unknown")
                }
                logLevel = severity.index
            default: break
            }
        }
        guard let broker else { throw WireError(.badMessage, "LIMITS lacks its broker instance") }
        guard spool.isEmpty || spool.utf8.first == Ascii.slash else {
            throw WireError(.badMessage, "the spool of LIMITS must be an absolute path")
        }
        self.broker = broker
    }

    func encoded() -> [UInt8] {
        var writer = HeadWriter("LIMITS")
        writer.field("broker", broker.description)
        writer.field("inline-bytes", inlineBytes)
        writer.field("spool", if: !spool.isEmpty, spool)
        writer.field("slots", slots)
        writer.field("spool-free", if: spoolFreeBytes > 0, String(spoolFreeBytes))
        writer.field("max-ratio", if: maxRatio > 0, String(maxRatio))
        writer.field("page-bytes", pageBytes)
        if let logLevel { writer.field("log-level", LogSeverity.allCases[logLevel].rawValue) }
        writer.field("sandbox", if: sandbox == 0, "yes")
        writer.field("address-policy", if: !addressPolicy.isEmpty, addressPolicy)
        return writer.finished()
    }
}

/// JOB: one attempt of a flight.
public struct Job: Equatable, Sendable {
    public var attempt: AttemptID
    /// URL in normal form, including user information.
    public var url: String
    /// An HTTP method.
    public var method = "GET"
    /// Maximum time without a received byte.
    public var timeoutMilliseconds = 60_000
    public var connectMilliseconds = 10_000
    /// Maximum size of the decoded body in bytes; nil for no limit.
    public var maxBytes: Int?
    /// Maximum rate of the encoded body, in bytes per second; nil for no limit.
    public var rate: Int?
    /// Minimum time between two PROGRESS messages; nil for no PROGRESS.
    public var progressMilliseconds: Int?
    /// Whether the body must be in a file when a PROGRESS reports it.
    public var streams = false
    /// Redirect mode. With `manual` a redirect is the result including its body; otherwise its head suffices.
    public var redirect = RedirectMode.follow
    /// Priority of the most urgent interest, for requests that an own worker itself sends to the bus.
    public var priority = PriorityClass.normal
    /// Partial body of an earlier attempt, in the file named after this attempt; nil to start from the beginning.
    public var resume: Resume?
    /// Proxy and certificates for the connection.
    public var route = Route()
    /// Whether HTTP/2 over TLS is allowed.
    public var allowsHTTP2 = true
    /// Policy for addresses that applies besides that of LIMITS, in the same form; empty for none.
    public var addressPolicy = ""
    /// Request header fields, separated by LF.
    public var httpFields: [UInt8] = []

    /// Range of `rate`.
    static let rates = 1...1 << 50

    /// Position and validator for resuming a body.
    public struct Resume: Equatable, Sendable {
        /// Number of available bytes, at least 1.
        public var bytes: Int
        /// Length of the whole body in bytes; nil if no server announced it.
        public var total: Int?
        /// Strong validator of the partial body, in the form of `If-Range`; ASCII.
        public var validator: String
        /// SHA-256 that the available bytes must have; nil if they need no check.
        public var sha256: String?

        public init(bytes: Int, total: Int?, validator: String, sha256: String? = nil) {
            self.bytes = bytes
            self.total = total
            self.validator = validator
            self.sha256 = sha256
        }
    }

    /// Decodes a head. Neither this function nor `setFields` is inlined: the compiler copies a large variable that is
    /// used after a loop with exits.
    @inline(never)
    static func decoded(_ reader: HeadReader) throws(WireError) -> Job {
        try reader.expectOperands(2)
        let attempt = try reader.attempt(0)
        var job = Job(attempt: attempt, url: try reader.operand(1, "URL").string)
        job.httpFields = reader.httpFields
        try job.setFields(reader)
        return job
    }

    @inline(never)
    private mutating func setFields(_ reader: HeadReader) throws(WireError) {
        var begun: (received: Int, total: Int?)?
        var validator: String?
        var digest: String?
        for (name, value) in reader.fields {
            switch name {
            case "priority": priority = try HeadReader.priorityClass(value)
            case "stream": streams = try HeadReader.flag(value, "stream")
            case "redirect":
                guard let mode = RedirectMode(rawValue: value.string) else {
                    throw WireError(.badMessage, "redirect must be follow, error or manual")
                }
                redirect = mode
            case "resume": begun = try HeadReader.progress(value)
            case "if-range": validator = value.string
            case "resume-sha256": digest = try HeadReader.sha256(value, "resume-sha256")
            case "method": method = try HeadReader.identifier(value, "method")
            case "timeout": timeoutMilliseconds = try HeadReader.milliseconds(value, "timeout")
            case "connect-timeout": connectMilliseconds = try HeadReader.milliseconds(value, "connect-timeout")
            case "max-bytes": maxBytes = try HeadReader.count(value, "max-bytes")
            case "progress":
                progressMilliseconds = try HeadReader.integer(value, in: 1...WireLimits.seconds * 1000, "progress")
            case "rate": rate = try HeadReader.integer(value, in: Self.rates, "rate")
            case "http2": allowsHTTP2 = try HeadReader.flag(value, "http2")
            case "address-policy": addressPolicy = value.string
            default: _ = try route.set(name, value)
            }
        }
        guard let begun else { return }
        guard let validator, begun.received > 0, begun.received <= begun.total ?? .max else {
            throw WireError(.badMessage, "resume must have the form bytes/total and needs if-range")
        }
        resume = Resume(bytes: begun.received, total: begun.total, validator: validator, sha256: digest)
    }

    func encoded() -> [UInt8] {
        var writer = HeadWriter("JOB")
        writer.operand(attempt)
        writer.operand(url)
        writer.field("method", if: method != "GET", method)
        writer.field("timeout", seconds: timeoutMilliseconds)
        writer.field("connect-timeout", seconds: connectMilliseconds)
        writer.field("max-bytes", maxBytes)
        writer.field("rate", rate)
        writer.field("progress", progressMilliseconds)
        writer.field("priority", if: priority != .normal, priority.name)
        writer.field("stream", if: streams, "yes")
        writer.field("redirect", if: redirect != .follow, redirect.rawValue)
        writer.field("resume", resume.map { "\($0.bytes)/" + ($0.total.map { String($0) } ?? "-") })
        writer.field("if-range", resume?.validator)
        writer.field("resume-sha256", resume?.sha256)
        route.write(to: &writer)
        writer.field("http2", if: !allowsHTTP2, "no")
        writer.field("address-policy", if: !addressPolicy.isEmpty, addressPolicy)
        return writer.finished(httpFields: httpFields)
    }
}

extension Job {
    // Uses the memberwise initializer: the compiler would copy a large value that is set field by field.
    public init(attempt: AttemptID, url: String) {
        self.init(attempt: attempt, url: url, httpFields: [])
    }
}
