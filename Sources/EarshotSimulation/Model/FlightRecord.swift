internal import EarshotCore
internal import EarshotWire

/// Model's state of one flight: its content, its requests and its attempts.
final class FlightRecord {
    enum Phase: Equatable {
        /// Waits for a worker.
        case waiting
        case running(WorkerID)
        /// An attempt failed; a retry is scheduled.
        case pausing
        case following
        /// The result is known, but no request is left to receive it. Requests may still rejoin.
        case ended
        case over
    }

    var content: FlightContent
    /// Number in attempt IDs; nil until the first JOB.
    var id: UInt64?
    var phase = Phase.waiting
    /// Requests by serial.
    var requests: [Int: RequestRecord] = [:]
    var parents: [FlightRecord] = []
    var child: FlightRecord?
    var attempts: UInt32 = 0
    var failures = 0
    var workerDeaths = 0
    /// Whether it is blamed for the last death of its workers.
    var isBlamedForLastDeath = false
    /// Whether it must run in isolation.
    var requiresIsolation = false
    var retries = 0
    /// Running attempt, or the last one.
    var attempt: AttemptID?
    /// Maximum body size of the running attempt, including raises.
    var maximumBodyBytes: Int?
    /// Condition of that attempt.
    var attemptCondition: [UInt8]?
    /// Whether it lost its last request while it ran, and was not rejoined by the end of a pass.
    var isAbandoned = false
    /// Client that removed that request, and the number of messages received from it by then.
    var abandoningClient: (ClientID, lastReceived: UInt64)?
    /// Its result, if it ended after that.
    var abandonedEnding: Ending?
    /// Whether its last attempt was lost with a worker, so that it precedes the queue.
    var isRequeued = false

    init(_ content: FlightContent) {
        self.content = content
    }

    /// The flight at the end of its chain of redirects.
    var redirectLeaf: FlightRecord {
        var flight = self
        while let child = flight.child { flight = child }
        return flight
    }

    /// Whether a request or another flight waits for it.
    var isWanted: Bool { !requests.isEmpty || !parents.isEmpty }

    /// Condition of all its requests; nil if they differ. The cluster and the cache, which this world lacks, send none.
    var commonCondition: [UInt8]? {
        var all: Set<[UInt8]?> = []
        forEachRequest { all.insert($0.condition) }
        return all.count == 1 ? all.first ?? nil : nil
    }

    /// Number of redirects from it to its leaf.
    var redirectCount: Int { child.map { $0.redirectCount + 1 } ?? 0 }

    /// Calls `body` for all waiting requests, including those redirected to it.
    func forEachRequest(_ body: (RequestRecord) -> Void) {
        for request in requests.values { body(request) }
        for parent in parents { parent.forEachRequest(body) }
    }
}

/// Content of a JOB, as visible to a worker.
struct JobContent: Hashable, CustomStringConvertible {
    static let webSchemes: Set<Substring> = ["http", "https"]

    var method: String
    var url: String
    /// Header fields without conditions and the trailing LF.
    var fields: [UInt8]
    /// Condition, in which requests of one flight may differ; nil without one. Not compared.
    private(set) var condition: [UInt8]?
    /// Name of the pool of own workers, see `ReferenceModel.poolName(for:of:)`; empty for the web, and for a JOB, which does not
    /// name it. Not compared.
    var pool: Substring = ""

    static func == (one: JobContent, other: JobContent) -> Bool {
        one.url == other.url && one.method == other.method && one.fields == other.fields
    }

    func hash(into hasher: inout Hasher) {
        hasher.combine(method)
        hasher.combine(url)
        hasher.combine(fields)
    }

    init(method: String, url: String, fields: [UInt8]) {
        self.method = method
        self.url = url
        (self.fields, condition) = Self.splitCondition(fields)
    }

    /// Returns header fields without their condition, and the condition. A request has at most one.
    static func splitCondition(_ fields: [UInt8]) -> (plain: [UInt8], condition: [UInt8]?) {
        let lines = fields.split(separator: UInt8(ascii: "\n"))
        let index = lines.firstIndex { $0.starts(with: conditionFieldPrefix) }
        let plain = lines.indices.filter { $0 != index }.map { lines[$0] }
        return (Array(plain.joined(separator: [UInt8(ascii: "\n")])), index.map { Array(lines[$0]) })
    }

    /// Returns the condition that a response with these fields meets; nil without a tag.
    static func condition(on response: [UInt8]) -> [UInt8]? {
        let name = Array("etag: ".utf8)
        return response.starts(with: name) ? conditionFieldPrefix + response.dropFirst(name.count) : nil
    }

    private static let conditionFieldPrefix = Array("if-none-match: ".utf8)

    /// Whether the fields are credentials. The simulated clients send a cookie, or a field that distinguishes requests.
    var hasCredentials: Bool { fields.starts(with: "cookie: ".utf8) }

    /// Whether it may be retried automatically.
    var isIdempotent: Bool { Fetch.Options.idempotentMethods.contains(method) }

    var description: String { "\(method) \(url)\(fields.isEmpty ? "" : " with fields")" }

    /// The scheme, or the pool of own workers.
    var scheme: Substring { pool.isEmpty ? urlScheme : pool }

    private var urlScheme: Substring { url.prefix { $0 != ":" } }

    /// Whether the supervisor's child workers serve it.
    var hasWebScheme: Bool { Self.webSchemes.contains(scheme) }

    /// `scheme://host:port` as written; `scheme:` without a host. After the pool of own workers.
    var origin: Substring { pool.isEmpty ? urlOrigin : "\(pool) \(urlOrigin)" }

    private var urlOrigin: Substring {
        let scheme = urlScheme
        guard url.dropFirst(scheme.count).starts(with: "://") else { return url.prefix(scheme.count + 1) }
        var slashes = 0
        let end = url.utf8.firstIndex { byte in
            if byte == UInt8(ascii: "/") { slashes += 1 }
            return slashes == 3
        }
        return url[..<(end ?? url.endIndex)]
    }
}

/// Attributes that must be equal for requests to share a flight.
struct FlightContent: Hashable {
    var job: JobContent
    var redirect: RedirectMode
    var deliversErrors = false
    /// Principal of the requests; nil for the administrator.
    var principal: PrincipalName?
    /// Serial of the only request; nil for a flight that others may share.
    var soleRequestSerial: Int?
}
