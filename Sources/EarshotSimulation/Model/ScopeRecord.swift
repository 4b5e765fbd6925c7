internal import EarshotCore

/// An origin as requests with the same credentials see it.
struct ScopeName: Hashable {
    var origin: Substring
    /// The header fields that are credentials.
    var credentials: [UInt8]

    init(_ job: JobContent) {
        origin = job.origin
        credentials = job.hasCredentials ? job.fields : []
    }
}

/// What the model knows of an origin's wish to be left alone: invariant 9.
struct ScopeRecord {
    enum State {
        case serving
        /// It answered 429 or 503, and nothing was started since.
        case cooling
        /// The first transfer after that runs. If nobody wanted anything there for a while, the core may have
        /// forgotten the refusal, and then it is no probe.
        case probing(FlightRecord, isCertain: Bool)
    }

    /// The least pause after a refusal that named none.
    private static let leastPause = 500

    var state = State.serving
    /// Nothing may start before; the core may wait for longer.
    private(set) var quietUntil = Tick(nanoseconds: .min)
    /// Flights that are open.
    var flights = 0
    /// Whether there was a time since it cools when nobody wanted anything there.
    var mayBeForgotten = false

    /// It answered 429 or 503.
    /// - Parameter seconds: what it asked for; nil for nothing. A refusal that names no time changes no cool-down.
    mutating func cool(seconds: Int?, now: Tick) {
        if case .cooling = state {
            guard let seconds else { return }
            quietUntil = max(quietUntil, now.advanced(byMilliseconds: seconds * 1_000))
        } else {
            quietUntil = now.advanced(byMilliseconds: max(Self.leastPause, (seconds ?? 0) * 1_000))
        }
        state = .cooling
        mayBeForgotten = false
    }

    /// The probe, if this was it, ended: with an answer everything goes on, else another is the probe.
    mutating func ended(_ flight: FlightRecord, isAnswered: Bool) {
        guard case .probing(let probe, _) = state, probe === flight else { return }
        state = isAnswered ? .serving : .cooling
    }

    /// A flight goes on with what runs. If the time is over, that is the probe, and its answer may end the cool-down;
    /// only the core knows whether it is.
    mutating func adopt(now: Tick) {
        if case .cooling = state, now >= quietUntil { mayBeForgotten = true }
    }

    /// - Returns: whether a transfer may start now.
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
