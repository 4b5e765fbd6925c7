internal import EarshotCore
internal import EarshotWire

/// Model's state of one accepted request.
final class RequestRecord {
    enum Phase {
        case open
        /// Ended without a subscriber.
        case awaitingSubscriber
        case ended
    }

    let name: RequestName
    let fetch: Fetch
    /// Its condition; nil without one.
    let condition: [UInt8]?
    /// Distinguishes successive requests with the same name.
    let serial: Int
    var priority: PriorityClass
    /// Nil for a request owned by its handler.
    var owner: ClientID?
    var flight: FlightRecord?
    var phase = Phase.open
    /// Whether it occupies its name.
    var occupiesName = true
    /// Whether it joined an existing flight.
    var hasJoinedFlight = false
    /// Number of terminals neither acknowledged nor lost.
    var outstandingTerminals = 0
    var ending: Ending?
    /// Time since which it certainly waits for a cool-down, and the numbers of attempts and of ended cool-downs then.
    var coolDownWaitStart: (MonotonicTime, attempts: UInt32, recoveries: Int)?
    /// Time at which it is removed unless a subscriber comes back.
    var abandonedUntil: MonotonicTime?

    init(_ name: RequestName, _ fetch: Fetch, owner: ClientID?, serial: Int) {
        self.name = name
        self.fetch = fetch
        condition = fetch.options.coalesces ? JobContent.splitCondition(fetch.httpFields).condition : nil
        self.owner = owner
        self.serial = serial
        priority = fetch.options.priority
    }

    /// Returns whether `other` with the same name repeats this request.
    func isSame(as other: Fetch) -> Bool {
        fetch.url == other.url && fetch.httpFields == other.httpFields && fetch.options.method == other.options.method
            && fetch.options.expectedSHA256 == other.options.expectedSHA256
            && fetch.options.redirectMode == other.options.redirectMode
            && fetch.options.isCacheWarming == other.options.isCacheWarming
            && fetch.options.coalesces == other.options.coalesces
    }
}

/// Identity of a request on the wire.
struct RequestName: Hashable, CustomStringConvertible {
    var handler: HandlerID
    var request: RequestID

    var description: String { "\(handler) \(request)" }
}

/// Result of a request, as visible in a terminal.
struct Ending {
    /// Failure code; nil for a success.
    var code: FailureCodeText?
    /// Worker's report; nil if it ended without a response.
    var completion: Completion?
    var body: BodyID?
    /// URL of the final response.
    var url = ""
    var attempts = 0
    /// Number of bytes of an earlier attempt with which the last one began; 0 for none.
    var resumedBytes = 0
    /// Whether it may be reported as `spool-full` instead. This is open if all subscribers' windows are full, and the
    /// core has not begun all notices of removals.
    var mayBeSpoolFull = false
    /// Name of its file since a client owns it; nil before.
    var takenFileName: String?

    typealias FailureCodeText = String
}
