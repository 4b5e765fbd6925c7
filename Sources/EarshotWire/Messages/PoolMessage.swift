/// Messages of the broker to a worker on the socket `work`: EARW/1, `protocols/6-workers.md`.
public enum PoolMessage: Equatable, Sendable {
    /// Reply to READY, repeated when the limits change.
    case limits(WorkerLimits)
    case job(Job)
    /// A file that later jobs name, for a place of the worker's table. Its content is the second frame.
    ///
    /// - Parameter error: Reason why the broker cannot read it; nil if the content follows.
    case fileContent(Int, path: String, error: String?)
    /// Raises the maximum body size of an attempt; nil removes it.
    case raiseBodyLimit(AttemptID, maximumBodyBytes: Int?)
    /// Changes the rate of an attempt; nil removes the limit.
    case changeRate(AttemptID, bytesPerSecond: Int?)
    /// Cancels an attempt. Its FAILED or DONE confirms the end.
    case cancelAttempt(AttemptID)
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
            let place = try HeadReader.parseInteger(
                try reader.operand(at: 0, named: "place"), in: 0...WireLimits.filesPerWorker, named: "FILE")
            guard let path = reader.fields["path"] else { throw WireError(.badMessage, "FILE lacks its path") }
            self = .fileContent(place, path: try Route.checkedPath(path.string), error: reader.fields["error"]?.string)
        case "CANCEL":
            try reader.expectOperands(1)
            self = .cancelAttempt(try reader.attempt(at: 0))
        case "RAISE":
            try reader.expectOperands(1)
            var maximumBodyBytes: Int?
            for (name, value) in reader.fields where name == "max-bytes" {
                maximumBodyBytes = try HeadReader.parseCount(value, named: "max-bytes")
            }
            self = .raiseBodyLimit(try reader.attempt(at: 0), maximumBodyBytes: maximumBodyBytes)
        case "RATE":
            try reader.expectOperands(1)
            let attempt = try reader.attempt(at: 0)
            let rate = try reader.fields["rate"].map { text throws(WireError) in
                try HeadReader.parseInteger(text, in: Job.rateRange, named: "rate")
            }
            self = .changeRate(attempt, bytesPerSecond: rate)
        case "PING": self = .ping
        case "DRAIN": self = .drain
        case "ERROR":
            let code = try HeadReader.parseIdentifier(try reader.operand(at: 0, named: "code"), named: "code")
            self = .error(code: code, detail: reader.fields["detail"]?.string)
        default: throw WireError(.unknownVerb, "EARW/1 has no such verb for brokers")
        }
    }

    /// Returns the head frame. A request's body is sent in the second frame of its JOB.
    public func encoded() -> [UInt8] {
        switch self {
        case .limits(let limits): return limits.encoded()
        case .job(let job): return job.encoded()
        case .fileContent(let place, let path, let error):
            var writer = HeadWriter("FILE")
            writer.writeOperand(place)
            writer.writeField("path", path)
            writer.writeField("error", error)
            return writer.finished()
        case .cancelAttempt(let attempt):
            var writer = HeadWriter("CANCEL")
            writer.writeOperand(attempt)
            return writer.finished()
        case .raiseBodyLimit(let attempt, let maximumBodyBytes):
            var writer = HeadWriter("RAISE")
            writer.writeOperand(attempt)
            writer.writeField("max-bytes", maximumBodyBytes)
            return writer.finished()
        case .changeRate(let attempt, let rate):
            var writer = HeadWriter("RATE")
            writer.writeOperand(attempt)
            writer.writeField("rate", rate)
            return writer.finished()
        case .ping: return HeadWriter("PING").finished()
        case .drain: return HeadWriter("DRAIN").finished()
        case .error(let code, let detail):
            var writer = HeadWriter("ERROR")
            writer.writeOperand(code)
            writer.writeField("detail", detail)
            return writer.finished()
        }
    }
}

/// LIMITS: the broker's instance and the terms for a worker.
public struct WorkerLimits: Equatable, Sendable {
    public var broker: BrokerInstance
    /// Maximum size of a body in the second frame, in decoded bytes.
    public var maximumInlineBodyBytes = 65_536
    /// Absolute path of the folder for larger bodies; empty for a worker on another machine, which has no files.
    public var spoolPath: String
    /// Number of concurrent transfers that the broker requests, 1 to 10,000; nil to leave it to the worker.
    public var slots: Int?
    /// Policy for addresses of http and https: rules for `AddressPolicy`, on one line; empty for no restriction.
    public var addressPolicy = ""
    /// Minimum free space on the spool's disk, in bytes.
    public var minimumSpoolFreeBytes = 0
    /// Maximum number of decoded bytes for each encoded byte; above it a body fails as `too-compressed`. 0 for no
    /// limit.
    public var maximumDecodingRatio = 0
    /// Maximum size of the body of an error page or a followed redirect, in bytes; nil for no limit.
    public var maximumErrorPageBytes: Int?
    /// Minimum severity of log messages, the index of a `LogSeverity`; nil to leave it to the worker.
    public var logLevel: Int?
    /// Whether the worker must restrict itself: 0 for yes, 1 for no, as the setting stores it.
    public var sandboxSetting = 1

    public init(broker: BrokerInstance, spoolPath: String) {
        self.broker = broker
        self.spoolPath = spoolPath
    }

    /// Terms of a worker on another machine: no path and no file. All bodies travel in messages, up to the length
    /// that the gateway relays.
    public var forRemoteWorker: WorkerLimits {
        var terms = self
        terms.spoolPath = ""
        terms.minimumSpoolFreeBytes = 0
        terms.maximumInlineBodyBytes = WireLimits.remoteResponseBodyBytes
        terms.addressPolicy = ""
        return terms
    }

    init(_ reader: HeadReader) throws(WireError) {
        try reader.expectOperands(0)
        var broker: BrokerInstance?
        spoolPath = ""
        for (name, value) in reader.fields {
            switch name {
            case "broker": broker = try HeadReader.parseBrokerInstance(value)
            case "inline-bytes":
                maximumInlineBodyBytes = try HeadReader.parseInteger(value, in: 0...1 << 30, named: "inline-bytes")
            case "spool": spoolPath = value.string
            case "slots": slots = try HeadReader.parseInteger(value, in: 1...WireLimits.slotsPerWorker, named: "slots")
            case "address-policy": addressPolicy = value.string
            case "sandbox": sandboxSetting = try HeadReader.parseFlag(value, named: "sandbox") ? 0 : 1
            case "spool-free": minimumSpoolFreeBytes = try HeadReader.parseCount(value, named: "spool-free")
            case "max-ratio":
                maximumDecodingRatio = try HeadReader.parseInteger(
                    value, in: 0...WireLimits.decodingRatio, named: "max-ratio")
            case "page-bytes": maximumErrorPageBytes = try HeadReader.parseCount(value, named: "page-bytes")
            case "log-level":
                guard let severity = LogSeverity(rawValue: value.string) else {
                    throw WireError(.badMessage, "the log-level of LIMITS is unknown")
                }
                logLevel = severity.index
            default: break
            }
        }
        guard let broker else { throw WireError(.badMessage, "LIMITS lacks its broker instance") }
        guard spoolPath.isEmpty || spoolPath.utf8.first == Ascii.slash else {
            throw WireError(.badMessage, "the spool of LIMITS must be an absolute path")
        }
        self.broker = broker
    }

    func encoded() -> [UInt8] {
        var writer = HeadWriter("LIMITS")
        writer.writeField("broker", broker.description)
        writer.writeField("inline-bytes", maximumInlineBodyBytes)
        writer.writeField("spool", if: !spoolPath.isEmpty, spoolPath)
        writer.writeField("slots", slots)
        writer.writeField("spool-free", if: minimumSpoolFreeBytes > 0, String(minimumSpoolFreeBytes))
        writer.writeField("max-ratio", if: maximumDecodingRatio > 0, String(maximumDecodingRatio))
        writer.writeField("page-bytes", maximumErrorPageBytes)
        if let logLevel { writer.writeField("log-level", LogSeverity.allCases[logLevel].rawValue) }
        writer.writeField("sandbox", if: sandboxSetting == 0, "yes")
        writer.writeField("address-policy", if: !addressPolicy.isEmpty, addressPolicy)
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
    public var connectTimeoutMilliseconds = 10_000
    /// Maximum size of the decoded body in bytes; nil for no limit.
    public var maximumBodyBytes: Int?
    /// Maximum rate of the encoded body, in bytes per second; nil for no limit.
    public var maximumBytesPerSecond: Int?
    /// Minimum time between two PROGRESS messages; nil for no PROGRESS.
    public var progressIntervalMilliseconds: Int?
    /// Whether the body must be in a file when a PROGRESS reports it.
    public var streams = false
    /// Redirect mode. With `manual` a redirect is the result including its body; otherwise its head suffices.
    public var redirectMode = RedirectMode.follow
    /// Priority of the most urgent interest, for requests that a custom worker itself sends to the bus.
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
    static let rateRange = 1...1 << 50

    /// Position and validator for resuming a body.
    public struct Resume: Equatable, Sendable {
        /// Number of available bytes, at least 1.
        public var availableBytes: Int
        /// Length of the whole body in bytes; nil if no server announced it.
        public var totalBytes: Int?
        /// Strong validator of the partial body, in the form of `If-Range`; ASCII.
        public var validator: String
        /// SHA-256 that the available bytes must have; nil if they need no check.
        public var sha256: String?

        public init(availableBytes: Int, totalBytes: Int?, validator: String, sha256: String? = nil) {
            self.availableBytes = availableBytes
            self.totalBytes = totalBytes
            self.validator = validator
            self.sha256 = sha256
        }
    }

    /// Decodes a head. Neither this function nor `setFields` is inlined: the compiler copies a large variable that is
    /// used after a loop with exits.
    @inline(never)
    static func decoded(_ reader: HeadReader) throws(WireError) -> Job {
        try reader.expectOperands(2)
        let attempt = try reader.attempt(at: 0)
        var job = Job(attempt: attempt, url: try reader.operand(at: 1, named: "URL").string)
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
            case "priority": priority = try HeadReader.parsePriorityClass(value)
            case "stream": streams = try HeadReader.parseFlag(value, named: "stream")
            case "redirect":
                guard let mode = RedirectMode(rawValue: value.string) else {
                    throw WireError(.badMessage, "redirect must be follow, error or manual")
                }
                redirectMode = mode
            case "resume": begun = try HeadReader.parseProgress(value)
            case "if-range": validator = value.string
            case "resume-sha256": digest = try HeadReader.parseSHA256(value, named: "resume-sha256")
            case "method": method = try HeadReader.parseIdentifier(value, named: "method")
            case "timeout": timeoutMilliseconds = try HeadReader.parseMilliseconds(value, named: "timeout")
            case "connect-timeout":
                connectTimeoutMilliseconds = try HeadReader.parseMilliseconds(value, named: "connect-timeout")
            case "max-bytes": maximumBodyBytes = try HeadReader.parseCount(value, named: "max-bytes")
            case "progress":
                progressIntervalMilliseconds = try HeadReader.parseInteger(
                    value, in: 1...WireLimits.durationSeconds * 1000, named: "progress")
            case "rate": maximumBytesPerSecond = try HeadReader.parseInteger(value, in: Self.rateRange, named: "rate")
            case "http2": allowsHTTP2 = try HeadReader.parseFlag(value, named: "http2")
            case "address-policy": addressPolicy = value.string
            default: _ = try route.readField(name, value)
            }
        }
        guard let begun else { return }
        guard let validator, begun.received > 0, begun.received <= begun.total ?? .max else {
            throw WireError(.badMessage, "resume must have the form bytes/total and needs if-range")
        }
        resume = Resume(availableBytes: begun.received, totalBytes: begun.total, validator: validator, sha256: digest)
    }

    func encoded() -> [UInt8] {
        var writer = HeadWriter("JOB")
        writer.writeOperand(attempt)
        writer.writeOperand(url)
        writer.writeField("method", if: method != "GET", method)
        writer.writeSecondsField("timeout", milliseconds: timeoutMilliseconds)
        writer.writeSecondsField("connect-timeout", milliseconds: connectTimeoutMilliseconds)
        writer.writeField("max-bytes", maximumBodyBytes)
        writer.writeField("rate", maximumBytesPerSecond)
        writer.writeField("progress", progressIntervalMilliseconds)
        writer.writeField("priority", if: priority != .normal, priority.name)
        writer.writeField("stream", if: streams, "yes")
        writer.writeField("redirect", if: redirectMode != .follow, redirectMode.rawValue)
        writer.writeField("resume", resume.map { "\($0.availableBytes)/" + ($0.totalBytes.map { String($0) } ?? "-") })
        writer.writeField("if-range", resume?.validator)
        writer.writeField("resume-sha256", resume?.sha256)
        route.write(to: &writer)
        writer.writeField("http2", if: !allowsHTTP2, "no")
        writer.writeField("address-policy", if: !addressPolicy.isEmpty, addressPolicy)
        return writer.finished(httpFields: httpFields)
    }
}

extension Job {
    // Uses the memberwise initializer: the compiler would copy a large value that is set field by field.
    public init(attempt: AttemptID, url: String) {
        self.init(attempt: attempt, url: url, httpFields: [])
    }
}
