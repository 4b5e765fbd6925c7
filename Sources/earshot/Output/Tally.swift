internal import EarshotWire

/// Counters of outcomes, and the exit status that follows from them.
struct Tally {
    private(set) var succeeded = 0
    private(set) var failed = 0
    /// Sum of the bodies' lengths, at most `Int.max`.
    private(set) var bytes = 0
    /// Number of bodies from the cache, including revalidated ones.
    private(set) var cached = 0
    /// Number of bodies from transfers that other requests had started.
    private(set) var shared = 0
    /// Number of bodies that begin with bytes of an earlier transfer.
    private(set) var resumed = 0
    /// Number of requests without a new body, because the file exists or is unchanged.
    private(set) var skipped = 0
    var total: Int { succeeded + failed + skipped }
    private var causes: Set<ExitStatus> = []

    mutating func count(_ outcome: FetchOutcome) {
        if let code = outcome.code {
            failed += 1
            causes.insert(ExitStatus(code: code))
        } else {
            succeeded += 1
            let (sum, isOverflow) = bytes.addingReportingOverflow(outcome.response?.length ?? 0)
            bytes = isOverflow ? .max : sum
            if outcome.isCached { cached += 1 }
            if outcome.response?.source == .shared { shared += 1 }
            if outcome.response?.source == .resumed { resumed += 1 }
        }
    }

    /// Counts requests that succeeded without a body.
    mutating func countSuccesses(_ count: Int) { succeeded += count }

    mutating func countSkip() { skipped += 1 }

    /// Success, the common cause of all failures, or a partial failure.
    var status: ExitStatus {
        if failed == 0 { return .done }
        guard succeeded == 0, causes.count == 1, let cause = causes.first else { return .someFailed }
        return cause
    }
}
