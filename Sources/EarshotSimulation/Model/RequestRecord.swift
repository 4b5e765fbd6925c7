internal import EarshotCore
internal import EarshotWire

/// What names a request on the wire.
struct RequestName: Hashable, CustomStringConvertible {
    var handler: HandlerID
    var request: RequestID

    var description: String { "\(handler) \(request)" }
}

/// How a request ended, as far as a terminal tells.
struct Ending {
    /// Nil for a result.
    var code: FailureCodeText?
    /// What the worker reported; nil if the end came without an answer.
    var completion: Completion?
    var body: BodyID?
    /// The URL that answered.
    var url = ""
    var attempts = 0
    /// Whether it began with what an earlier attempt had brought.
    var isResumed = false
    /// Whether it may be told that the spool is full instead: so it is if each listener's window is, and what removals
    /// will tell of those the core has not all begun.
    var mayBeLost = false
    /// Whether the file of its body is the one client's that is told.
    var isGiven = false

    typealias FailureCodeText = String
}

/// What the model knows of one request that was accepted.
final class RequestRecord {
    enum Phase {
        case open
        /// It ended, and nobody listened.
        case held
        case ended
    }

    let name: RequestName
    let fetch: Fetch
    let askedAt: Tick
    /// Distinguishes requests that had the same name one after the other.
    let serial: Int
    var priority: PriorityClass
    /// Nil for a request that belongs to its handler.
    var owner: ClientID?
    var flight: FlightRecord?
    var phase = Phase.open
    /// Whether its name is taken.
    var isListed = true
    /// Whether it joined a flight that was there.
    var isShared = false
    /// Terminals neither acknowledged nor lost.
    var outstanding = 0
    var ending: Ending?
    /// When it is purged if nobody comes back to listen.
    var abandonedUntil: Tick?

    init(_ name: RequestName, _ fetch: Fetch, owner: ClientID?, serial: Int, askedAt: Tick) {
        self.name = name
        self.fetch = fetch
        self.owner = owner
        self.serial = serial
        self.askedAt = askedAt
        priority = fetch.options.priority
    }

    /// Whether asking for `other` under the same name is asking for this again.
    func isSame(as other: Fetch) -> Bool {
        fetch.url == other.url && fetch.httpFields == other.httpFields && fetch.options.method == other.options.method
            && fetch.options.key == other.options.key && fetch.options.digest == other.options.digest
            && fetch.options.redirect == other.options.redirect && fetch.options.isWarm == other.options.isWarm
            && fetch.options.coalesces == other.options.coalesces
    }
}
