internal import EarshotHTTP

/// Pause of an origin that answered 429, or 503 with `Retry-After`, or 503 for several URLs in a row.
/// `OriginGovernor.cool` decides its length; `responded` of `BrokerCore+Flights.swift` detects the refusals.
///
/// ```
///               refused                   time over              transfer starts
///  (open) ────────────────→ cooling   ───────────────→ due ──────────────────────→ probing
///    ↑                      refusing                    ↑                             │
///    │                      ↑  refused, in any phase    └── no answer ────────────────┤
///    └───────────────────── │ ─────────────────────────────────── answered ───────────┘
/// ```
package struct CoolDown {
    package enum Phase: Equatable {
        /// No transfer starts; requests wait.
        case cooling(until: Tick)
        /// The requested pause exceeds the limit. Requests fail at once, so that their clients can decide.
        case refusing(until: Tick)
        /// One transfer may start, as a probe.
        case due
        /// The probe runs.
        case probing(flight: UInt64)

        var end: Tick? {
            switch self {
            case .cooling(let until), .refusing(let until): until
            case .due, .probing: nil
            }
        }
    }

    var phase: Phase
    /// Begin of the first of the cool-downs without an answer between them.
    let since: Tick
    /// Number of refusals in a row.
    var refusalsInRow: Int
    /// Distinguishes the timer of this cool-down from those of earlier ones.
    var serial: UInt64
    /// Flight of the latest probe. It waits behind the others, so that no request uses up its retries for all.
    var latestProbe: UInt64?

    /// End of the pause; nil outside `cooling` and `refusing`.
    package var end: Tick? { phase.end }

    /// Whether the diagram has this transition; nil is the phase `open`.
    static func isLegal(from: Phase?, to: Phase?) -> Bool {
        let isProbing = if case .probing = from { true } else { false }
        return switch to {
        case .cooling, .refusing: true
        case .due: isProbing || from?.end != nil
        case .probing: from == .due
        case nil: isProbing
        }
    }

    /// Pauses after refusals in a row. With jitter, so that clients which were refused together do not return together.
    static let backoff = Backoff(firstMilliseconds: 1_000, longestMilliseconds: 60_000)
}
