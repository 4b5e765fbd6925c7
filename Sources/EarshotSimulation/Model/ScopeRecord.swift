internal import EarshotCore

/// Model's state of an origin's cool-down: invariant 9.
struct ScopeRecord {
    enum State {
        case serving
        /// Responded with 429 or 503, and no transfer has started since.
        case cooling
        /// The first transfer afterwards is running. If the origin was idle for some time, the core may have forgotten
        /// the cool-down, and then this is not a probe.
        case probing(FlightRecord, isCertain: Bool)
    }

    /// Minimum pause in milliseconds after a refusal without `Retry-After`.
    private static let leastPause = 500

    var state = State.serving { didSet { if case .serving = state { recoveries += 1 } } }
    /// Number of cool-downs that have ended.
    private(set) var recoveries = 0
    /// Earliest start of the next transfer; the core may wait longer.
    private(set) var quietUntil = Tick(nanoseconds: .min)
    /// Number of open flights.
    var flights = 0
    /// Whether it was idle at some time during the cool-down.
    var mayBeForgotten = false

    /// URLs that have answered 503 without a delay since the latest other answer.
    private var unavailable: Set<String> = []

    /// Handles a 429 or 503.
    /// - Parameters:
    ///   - seconds: Requested delay; nil without one. A refusal without a delay does not change a cool-down.
    ///   - url: URL that answered 503 without a delay; nil for other refusals.
    ///   - outageURLs: number of such URLs in a row that are an outage.
    mutating func cool(seconds: Int?, url: String?, outageURLs: Int, now: Tick) {
        if case .probing(_, isCertain: false) = state, let url {
            // A core that has forgotten the cool-down counts this URL as the first one. Another core cools down again.
            unavailable.insert(url)
            state = .cooling
            return
        }
        if case .serving = state, let url {
            unavailable.insert(url)
            guard unavailable.count >= outageURLs else { return }
        }
        unavailable = []
        if case .cooling = state {
            guard let seconds else { return }
            quietUntil = max(quietUntil, now.advanced(byMilliseconds: seconds * 1_000))
        } else {
            quietUntil = now.advanced(byMilliseconds: max(Self.leastPause, (seconds ?? 0) * 1_000))
        }
        state = .cooling
        mayBeForgotten = false
    }

    /// Handles the end of a transfer. If it was the probe, a response ends the cool-down; otherwise another transfer
    /// becomes the probe.
    mutating func ended(_ flight: FlightRecord, isAnswered: Bool) {
        if isAnswered { unavailable = [] }
        guard case .probing(let probe, _) = state, probe === flight else { return }
        state = isAnswered ? .serving : .cooling
    }

    /// - Returns: Whether a transfer may start now.
    mutating func start(_ flight: FlightRecord, now: Tick) -> Bool {
        switch state {
        case .serving: return true
        case .probing(_, let isCertain):
            if !isCertain { state = .serving }
            return !isCertain
        case .cooling:
            state = .probing(flight, isCertain: !mayBeForgotten)
            return now >= quietUntil
        }
    }
}

/// Origin together with the credentials of requests.
struct ScopeName: Hashable {
    var origin: Substring
    /// Header fields that are credentials.
    var credentials: [UInt8]

    init(_ job: JobContent) {
        origin = job.origin
        credentials = job.hasCredentials ? job.fields : []
    }
}
