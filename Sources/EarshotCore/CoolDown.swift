internal import EarshotHTTP

/// One origin as requests with the same credentials see it: a server's refusal of one does not slow the others.
struct OriginScope {
    var origin: Int32
    var scope: TrustScope
    /// Flights that name it.
    var flights = 0
    /// Whether it is kept for its cool-down alone.
    var isResting = false
    /// Nil while the origin takes what it is given.
    var coolDown: CoolDown?

    /// Whether a request may have its turn, to start or to be refused. Once cooled, one goes first.
    var admits: Bool {
        switch coolDown?.phase {
        case nil, .due, .refusing: true
        case .cooling, .probing: false
        }
    }

    /// Whether who has its turn is refused.
    var isRefusing: Bool {
        if case .refusing = coolDown?.phase { true } else { false }
    }
}

/// An origin's wish to be left alone: 429 or 503.
struct CoolDown {
    /// `cooling -> due -> probing -> (gone | cooling)`; `refusing -> due`.
    enum Phase: Equatable {
        /// Nothing starts.
        case cooling(until: Tick)
        /// It asked for longer than anybody is made to wait: its requests fail, so that their clients can decide.
        case refusing(until: Tick)
        /// One transfer may start.
        case due
        /// That one runs.
        case probing(flight: UInt64)
    }

    var phase: Phase
    /// Refusals in a row.
    var strikes: Int
    /// Tells a timer of this cool-down from that of an earlier one.
    var serial: UInt64

    /// When its time is over; nil if it is.
    var end: Tick? {
        switch phase {
        case .cooling(let until), .refusing(let until): until
        case .due, .probing: nil
        }
    }

    /// How long to wait after so many refusals: a second, doubled each time, at most a minute, the upper half of it by
    /// chance so that clients which were refused together do not come back together.
    static func pause(afterStrikes strikes: Int, random: UInt64) -> Int64 {
        let longest = min(Int64(1_000_000_000) << Int64(min(max(strikes, 1) - 1, 6)), 60_000_000_000)
        return longest / 2 + Int64((UInt64(longest / 2) + 1).multipliedFullWidth(by: random).high)
    }
}

/// What names an origin's scope.
struct OriginScopeKey: Hashable {
    var origin: Int32
    var scope: TrustScope
}
