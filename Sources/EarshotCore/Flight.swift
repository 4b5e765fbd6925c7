internal import EarshotHTTP
internal import EarshotWire

/// What requests must have in common to share a flight: method, URL, fields sent, redirect mode, the client's own key.
/// Credentials travel in the URL and the fields, so each trust scope has flights of its own.
struct FlightKey: Hashable {
    var url: String
    /// All else; empty for a plain GET without fields.
    var variant: String

    init(url: String, variant: String) {
        self.url = url
        self.variant = variant
    }

    init(_ request: HTTPRequest, redirect: RedirectMode, own: String?) {
        url = request.url.description
        variant = ""
        guard request.method != .get || redirect != .follow || !request.fields.isEmpty || own != nil else { return }
        variant = "\(request.method) \(redirect.rawValue) \(own ?? "")\n"
        // Byte by byte: fields that are not UTF-8 stay apart.
        variant += String(String.UnicodeScalarView(request.fields.canonical.map { Unicode.Scalar($0) }))
    }
}

/// One coalesced fetch.
struct Flight {
    /// `queued -> running -> (gone | backingOff | following)`, `backingOff -> queued`; any of them ends when its last
    /// interest goes.
    enum Phase: Equatable {
        case queued
        case running(worker: Int32)
        /// Waits before the next attempt.
        case backingOff(until: Tick)
        /// Was redirected, and waits for what becomes of that flight.
        case following(child: Int32)
    }

    var id: UInt64
    var request: HTTPRequest
    /// What the key has beside the URL.
    var variant: String
    var redirect: RedirectMode
    var phase = Phase.queued
    /// Its origin, as its credentials see it.
    var scope: Int32
    /// Requests that wait for it.
    var interests = Chain()
    /// Flights that were redirected to it.
    var parents = Chain()
    /// The laxest of what its interests allow.
    var retries: UInt8 = 0
    var timeoutMilliseconds: UInt32 = 0
    /// Attempts that failed and may be retried.
    var failures: UInt8 = 0
    /// Workers that died of it.
    var workerDeaths: UInt8 = 0
    /// Attempts given to workers.
    var attempts: UInt32 = 0
    /// When the last of them was given.
    var startedAt = Tick(nanoseconds: 0)
    /// Decoded bytes that attempt may bring; nil for any number.
    var maxBytes: Int?
    /// Decoded bytes it has brought so far.
    var receivedBytes = 0

    var key: FlightKey { FlightKey(url: request.url.description, variant: variant) }
}

/// How many flights are in each phase, so that nobody has to count a million.
struct FlightCounts: Equatable {
    private(set) var queued = 0
    private(set) var running = 0
    private(set) var backingOff = 0
    private(set) var following = 0

    subscript(phase: Flight.Phase) -> Int {
        get {
            switch phase {
            case .queued: queued
            case .running: running
            case .backingOff: backingOff
            case .following: following
            }
        }
        set {
            switch phase {
            case .queued: queued = newValue
            case .running: running = newValue
            case .backingOff: backingOff = newValue
            case .following: following = newValue
            }
        }
    }
}

/// A flight as timers and lists name it: its record's number, and its ID, which tells it from a later one there.
struct FlightName: Equatable {
    var number: Int32
    var id: UInt64
}

/// What became of a flight or of one request; shared by all terminals it ends in.
struct Outcome {
    /// An answer of an origin.
    struct Response {
        var status: Int
        var url: String
        var length: Int
        var sha256: String?
        var file: String?
        var body: BodyID?
        var fields: [UInt8]
        var startedAt: Tick
        var endedAt: Tick
    }

    var failure: FailureCode?
    /// A sentence that tells more than the code's own; nil for that one.
    var detail: String?
    /// The result, or the error page of an `http-status`.
    var response: Response?
    var attempts = 0
    /// Interests that hold it.
    var holders = 0
}

/// One origin: how many transfers it has, over all workers.
struct OriginEntry {
    /// `scheme://host:port`.
    var name: String
    var limit: Int
    /// Transfers at once, cancelled ones included until their end is confirmed.
    var running = 0
    /// Scopes that name it.
    var scopes = 0

    /// Room for one more transfer of this class: the last slot of four or more is kept for `high`.
    func hasRoom(for priority: PriorityClass) -> Bool {
        running < (priority == .high || limit < 4 ? limit : limit - 1)
    }
}
