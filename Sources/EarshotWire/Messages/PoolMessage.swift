/// What the broker says to a worker on the socket `work`; EARW/1, `protocols/2-WORKER.md`.
public enum PoolMessage: Equatable, Sendable {
    /// The answer to READY, and said again when they change.
    case limits(WorkerLimits)
    case job(Job)
    /// Let this attempt's body have so many bytes, more than its JOB said; nil for any number.
    case raise(AttemptID, maxBytes: Int?)
    /// Stop this attempt at once; confirmed by its FAILED or DONE.
    case cancel(AttemptID)
    case ping
    /// Finish what runs and leave.
    case drain
    case error(code: String, detail: String?)

    /// - Throws: a `WireError` for any bytes that are not such a message.
    public init(head: [UInt8]) throws(WireError) {
        let reader = try HeadReader(head, limit: WireLimits.jobHeadBytes)
        switch reader.verb {
        case "LIMITS": self = .limits(try WorkerLimits(reader))
        case "JOB": self = .job(try Job(reader))
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
        case "PING": self = .ping
        case "DRAIN": self = .drain
        case "ERROR":
            let code = try HeadReader.identifier(try reader.operand(0, "code"), "code")
            self = .error(code: code, detail: reader.fields["detail"]?.string)
        default: throw WireError(.unknownVerb, "EARW/1 has no such verb for brokers")
        }
    }

    /// The head frame. A request's body goes beside its JOB.
    public func encoded() -> [UInt8] {
        switch self {
        case .limits(let limits): return limits.encoded()
        case .job(let job): return job.encoded()
        case .cancel(let attempt):
            var writer = HeadWriter("CANCEL")
            writer.operand(attempt)
            return writer.finished()
        case .raise(let attempt, let maxBytes):
            var writer = HeadWriter("RAISE")
            writer.operand(attempt)
            writer.field("max-bytes", maxBytes)
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

/// LIMITS: which broker this is, and what a worker is to keep to.
public struct WorkerLimits: Equatable, Sendable {
    public var broker: BrokerInstance
    /// Bodies up to so many decoded bytes travel in frame 2.
    public var inlineBytes = 65_536
    /// Absolute path of the folder larger bodies are written to.
    public var spool: String
    /// Seconds of silence after which the broker sends PING.
    public var heartbeatSeconds = 5
    /// Transfers at once that the broker wishes for, 1 to 10,000; nil to leave that to the worker.
    public var slots: Int?
    /// Where http and https may connect to: rules as `AddressPolicy` reads them, on one line; empty for everywhere.
    public var addressPolicy = ""
    /// Bytes to be left free on the spool's disk.
    public var spoolFreeBytes = 0
    /// Decoded bytes for each encoded one, beyond which a body ends as `too-compressed`; 0 for any number.
    public var maxRatio = 0
    /// Maximum size of the body of an error page or of a redirect that is followed; nil for any.
    public var pageBytes: Int?
    /// Whether HOLDS is to be said for what the worker holds of earlier brokers: some of it may be gone on with.
    public var adopts = false

    public init(broker: BrokerInstance, spool: String) {
        self.broker = broker
        self.spool = spool
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
            case "heartbeat":
                heartbeatSeconds = try HeadReader.integer(value, in: 1...WireLimits.seconds, "heartbeat")
            case "slots": slots = try HeadReader.integer(value, in: 1...WireLimits.heldAttempts, "slots")
            case "address-policy": addressPolicy = value.string
            case "adoption": adopts = try HeadReader.flag(value, "adoption")
            case "spool-free": spoolFreeBytes = try HeadReader.count(value, "spool-free")
            case "max-ratio": maxRatio = try HeadReader.integer(value, in: 0...WireLimits.ratio, "max-ratio")
            case "page-bytes": pageBytes = try HeadReader.count(value, "page-bytes")
            default: break
            }
        }
        guard let broker else { throw WireError(.badMessage, "LIMITS lacks its broker instance") }
        guard spool.utf8.first == Ascii.slash else {
            throw WireError(.badMessage, "LIMITS lacks its spool, an absolute path")
        }
        self.broker = broker
    }

    func encoded() -> [UInt8] {
        var writer = HeadWriter("LIMITS")
        writer.field("broker", broker.description)
        writer.field("inline-bytes", inlineBytes)
        writer.field("spool", spool)
        writer.field("heartbeat", heartbeatSeconds)
        writer.field("slots", slots)
        writer.field("spool-free", if: spoolFreeBytes > 0, String(spoolFreeBytes))
        writer.field("max-ratio", if: maxRatio > 0, String(maxRatio))
        writer.field("page-bytes", pageBytes)
        writer.field("adoption", if: adopts, "yes")
        writer.field("address-policy", if: !addressPolicy.isEmpty, addressPolicy)
        return writer.finished()
    }
}

/// JOB: one attempt at a flight.
public struct Job: Equatable, Sendable {
    public var attempt: AttemptID
    /// In normal form, user information included.
    public var url: String
    /// An HTTP method.
    public var method = "GET"
    /// The longest time without a byte.
    public var timeoutMilliseconds = 60_000
    /// The time for all of it, from the JOB's arrival; nil for none.
    public var totalMilliseconds: Int?
    public var connectMilliseconds = 10_000
    /// Decoded bytes of body after which the worker stops; nil for no limit.
    public var maxBytes: Int?
    /// Bodies up to so many decoded bytes travel in frame 2, if that is less than LIMITS say; nil for what they say.
    public var inlineBytes: Int?
    /// The least time between two PROGRESS messages; nil for none at all.
    public var progressMilliseconds: Int?
    /// Whether the body is to be in a file when a PROGRESS tells of it.
    public var streams = false
    /// Whether a redirect is the result, body and all; else its head is enough.
    public var redirect = RedirectMode.follow
    /// How urgent it is to those who wait for it, for what the worker asks the bus for in turn; nil for workers that
    /// ask for nothing.
    public var priority: PriorityClass?
    /// What an earlier attempt brought, in a file under the name of this attempt's; nil to begin anew.
    public var resume: Resume?
    /// By which way it goes to its server.
    public var route = Route()
    /// Whether HTTP/2 may be spoken, over TLS.
    public var allowsHTTP2 = true
    /// Its flight, for a later broker to go on with this attempt; nil if none may.
    public var flight: FlightIdentity?
    /// Request header fields, lines separated by LF.
    public var httpFields: [UInt8] = []

    /// Where a broken transfer goes on, and by what it is known that it is the same.
    public struct Resume: Equatable, Sendable {
        /// Bytes that are there, at least 1.
        public var bytes: Int
        /// Bytes of the whole; nil if no server said so.
        public var total: Int?
        /// The strong validator of what is there, as `If-Range` takes it; ASCII.
        public var validator: String

        public init(bytes: Int, total: Int?, validator: String) {
            self.bytes = bytes
            self.total = total
            self.validator = validator
        }
    }

    public init(attempt: AttemptID, url: String) {
        self.attempt = attempt
        self.url = url
    }

    init(_ reader: HeadReader) throws(WireError) {
        try reader.expectOperands(2)
        attempt = try reader.attempt(0)
        url = try reader.operand(1, "URL").string
        httpFields = reader.httpFields
        var begun: (received: Int, total: Int?)?
        var validator: String?
        for (name, value) in reader.fields {
            switch name {
            case "priority": priority = try HeadReader.priorityClass(value)
            case "stream": streams = try HeadReader.flag(value, "stream")
            case "redirect":
                guard let mode = RedirectMode(rawValue: value.string) else {
                    throw WireError(.badMessage, "redirect is follow, error or manual")
                }
                redirect = mode
            case "flight": flight = try HeadReader.flight(value)
            case "resume": begun = try HeadReader.progress(value)
            case "if-range": validator = value.string
            case "method": method = try HeadReader.identifier(value, "method")
            case "timeout": timeoutMilliseconds = try HeadReader.milliseconds(value, "timeout")
            case "total": totalMilliseconds = try HeadReader.milliseconds(value, "total")
            case "connect-timeout": connectMilliseconds = try HeadReader.milliseconds(value, "connect-timeout")
            case "max-bytes": maxBytes = try HeadReader.count(value, "max-bytes")
            case "inline-bytes": inlineBytes = try HeadReader.count(value, "inline-bytes")
            case "progress":
                progressMilliseconds = try HeadReader.integer(value, in: 1...WireLimits.seconds * 1000, "progress")
            case "http2": allowsHTTP2 = try HeadReader.flag(value, "http2")
            default: _ = try route.set(name, value)
            }
        }
        guard let begun else { return }
        guard let validator, begun.received > 0, begun.received <= begun.total ?? .max else {
            throw WireError(.badMessage, "resume is bytes/total, and goes with if-range")
        }
        resume = Resume(bytes: begun.received, total: begun.total, validator: validator)
    }

    func encoded() -> [UInt8] {
        var writer = HeadWriter("JOB")
        writer.operand(attempt)
        writer.operand(url)
        writer.field("method", if: method != "GET", method)
        writer.field("timeout", seconds: timeoutMilliseconds)
        writer.field("total", seconds: totalMilliseconds)
        writer.field("connect-timeout", seconds: connectMilliseconds)
        writer.field("max-bytes", maxBytes)
        writer.field("inline-bytes", inlineBytes)
        writer.field("progress", progressMilliseconds)
        writer.field("priority", priority?.name)
        writer.field("stream", if: streams, "yes")
        writer.field("redirect", if: redirect != .follow, redirect.rawValue)
        writer.field("resume", resume.map { "\($0.bytes)/" + ($0.total.map { String($0) } ?? "-") })
        writer.field("if-range", resume?.validator)
        route.write(to: &writer)
        writer.field("http2", if: !allowsHTTP2, "no")
        writer.field("flight", flight?.description)
        return writer.finished(httpFields: httpFields)
    }
}
