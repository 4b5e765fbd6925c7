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
    /// Number of bodies that begin with bytes of an earlier attempt.
    private(set) var resumed = 0
    /// Sum of these bytes, at most `bytes`.
    private(set) var resumedBytes = 0
    /// Sum of the other bytes.
    var newBytes: Int { bytes - resumedBytes }
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
            bytes = Self.sum(bytes, outcome.response?.length ?? 0)
            if outcome.isCached { cached += 1 }
            if outcome.response?.source == .shared { shared += 1 }
            if let begun = outcome.response?.resumedBytes, begun > 0 {
                resumed += 1
                resumedBytes = Self.sum(resumedBytes, begun)
            }
        }
    }

    private static func sum(_ left: Int, _ right: Int) -> Int {
        let (sum, isOverflow) = left.addingReportingOverflow(right)
        return isOverflow ? .max : sum
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
