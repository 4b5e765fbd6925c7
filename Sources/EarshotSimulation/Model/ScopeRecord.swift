internal import EarshotCore

/// Model's state of an origin's cool-down: invariant 9.
struct ScopeRecord {
    enum State {
        case serving
        /// Responded with 429 or 503, and no transfer has started since.
        case coolingDown
        /// The first transfer afterwards is running. If the origin was idle for some time, the core may have forgotten
        /// the cool-down, and then this is not a probe.
        case probing(FlightRecord, isCertain: Bool)
    }

    /// Minimum pause in milliseconds after a refusal without `Retry-After`.
    private static let minimumPauseMilliseconds = 500

    var state = State.serving { didSet { if case .serving = state { endedCoolDowns += 1 } } }
    /// Number of cool-downs that have ended.
    private(set) var endedCoolDowns = 0
    /// Earliest start of the next transfer; the core may wait longer.
    private(set) var earliestNextStart = MonotonicTime(nanoseconds: .min)
    /// Number of open flights.
    var openFlightCount = 0
    /// Whether it was idle at some time during the cool-down.
    var wasIdleDuringCoolDown = false

    /// URLs that have answered 503 without a delay since the latest other answer.
    private var unavailableURLs: Set<String> = []

    /// Handles a 429 or 503.
    /// - Parameters:
    ///   - seconds: Requested delay; nil without one. A refusal without a delay does not change a cool-down.
    ///   - url: URL that answered 503 without a delay; nil for other refusals.
    ///   - outageURLs: number of such URLs in a row that are an outage.
    mutating func beginCoolDown(seconds: Int?, url: String?, outageURLs: Int, now: MonotonicTime) {
        if case .probing(_, isCertain: false) = state, let url {
            // A core that has forgotten the cool-down counts this URL as the first one. Another core cools down again.
            unavailableURLs.insert(url)
            state = .coolingDown
            return
        }
        if case .serving = state, let url {
            unavailableURLs.insert(url)
            guard unavailableURLs.count >= outageURLs else { return }
        }
        unavailableURLs = []
        if case .coolingDown = state {
            guard let seconds else { return }
            earliestNextStart = max(earliestNextStart, now.advanced(byMilliseconds: seconds * 1_000))
        } else {
            earliestNextStart = now.advanced(byMilliseconds: max(Self.minimumPauseMilliseconds, (seconds ?? 0) * 1_000))
        }
        state = .coolingDown
        wasIdleDuringCoolDown = false
    }

    /// Handles the end of a transfer. If it was the probe, a response ends the cool-down; otherwise another transfer
    /// becomes the probe.
    mutating func transferEnded(_ flight: FlightRecord, isAnswered: Bool) {
        if isAnswered { unavailableURLs = [] }
        guard case .probing(let probe, _) = state, probe === flight else { return }
        state = isAnswered ? .serving : .coolingDown
    }

    /// - Returns: Whether a transfer may start now.
    mutating func startTransfer(_ flight: FlightRecord, now: MonotonicTime) -> Bool {
        switch state {
        case .serving: return true
        case .probing(_, let isCertain):
            if !isCertain { state = .serving }
            return !isCertain
        case .coolingDown:
            state = .probing(flight, isCertain: !wasIdleDuringCoolDown)
            return now >= earliestNextStart
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
