internal import EarshotCore
internal import EarshotWire

/// What a JOB shows of a flight.
struct JobContent: Hashable, CustomStringConvertible {
    static let webSchemes: Set<Substring> = ["http", "https"]

    var method: String
    var url: String
    /// Without the LF at the end.
    var fields: [UInt8]

    init(method: String, url: String, fields: [UInt8]) {
        self.method = method
        self.url = url
        self.fields = fields.last == UInt8(ascii: "\n") ? fields.dropLast() : fields
    }

    /// Whether the fields are credentials: the simulated clients send a cookie, or what tells requests apart.
    var hasCredentials: Bool { fields.starts(with: "cookie: ".utf8) }

    /// Whether it may be tried again by itself.
    var isRepeatable: Bool { Fetch.Options.idempotentMethods.contains(method) }

    var description: String { "\(method) \(url)\(fields.isEmpty ? "" : " with fields")" }

    var scheme: Substring { url.prefix { $0 != ":" } }

    /// Whether it is for the supervisor's children.
    var isOfWeb: Bool { Self.webSchemes.contains(scheme) }

    /// `scheme://host:port`, as written; `scheme:` where no host is.
    var origin: Substring {
        guard url.dropFirst(scheme.count).starts(with: "://") else { return url.prefix(scheme.count + 1) }
        var slashes = 0
        let end = url.utf8.firstIndex { byte in
            if byte == UInt8(ascii: "/") { slashes += 1 }
            return slashes == 3
        }
        return url[..<(end ?? url.endIndex)]
    }
}

/// What must be equal for requests to share a flight.
struct FlightContent: Hashable {
    var job: JobContent
    var redirect: RedirectMode
    var key: String?
    /// The request that it is for alone; nil for one that others may share.
    var alone: Int?
}

/// What the model knows of one flight.
final class FlightRecord {
    enum Phase: Equatable {
        /// Wants a worker.
        case waiting
        case running(WorkerID)
        /// An attempt failed; another will come.
        case pausing
        case following
        /// Has its ending, and no requests that it could be told: some may rejoin it.
        case ended
        case over
    }

    let content: FlightContent
    /// The number in attempts; nil until the first JOB tells it.
    var id: UInt64?
    var phase = Phase.waiting
    /// By serial.
    var requests: [Int: RequestRecord] = [:]
    var parents: [FlightRecord] = []
    var child: FlightRecord?
    var attempts: UInt32 = 0
    var failures = 0
    var deaths = 0
    /// Whether it is accused of the last death of its workers.
    var isAccused = false
    /// Whether it is to run in a worker of its own.
    var isSuspect = false
    var retries = 0
    /// The running attempt, or the last one.
    var attempt: AttemptID?
    /// Of the running attempt, raises included.
    var maxBytes: Int?
    /// Whether it lost its last request while it ran, and was not rejoined by the end of a pass.
    var isLeft = false
    /// The client that removed that request, and how many messages it had said by then.
    var leaver: (ClientID, heard: UInt64)?
    /// How it ended since.
    var ending: Ending?
    /// Whether its last attempt was lost with a worker: it goes before the queue then.
    var isReturned = false

    init(_ content: FlightContent) {
        self.content = content
    }

    /// The flight that is fetched for this one.
    var leaf: FlightRecord {
        var flight = self
        while let child = flight.child { flight = child }
        return flight
    }

    /// Whether anybody waits for it.
    var isWanted: Bool { !requests.isEmpty || !parents.isEmpty }

    /// Redirects from it to its leaf.
    var distance: Int { child.map { $0.distance + 1 } ?? 0 }

    /// All requests that wait for it, those redirected to it included.
    func forEachRequest(_ body: (RequestRecord) -> Void) {
        for request in requests.values { body(request) }
        for parent in parents { parent.forEachRequest(body) }
    }
}
