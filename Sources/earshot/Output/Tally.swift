internal import EarshotWire

/// Counters of outcomes, and the exit status that follows from them.
struct Tally {
    private(set) var succeededCount = 0
    private(set) var failedCount = 0
    /// Sum of the bodies' lengths, at most `Int.max`.
    private(set) var bodyBytes = 0
    /// Number of bodies from the cache, including revalidated ones.
    private(set) var cachedCount = 0
    /// Number of bodies from transfers that other requests had started.
    private(set) var sharedCount = 0
    /// Number of bodies that begin with bytes of an earlier attempt.
    private(set) var resumedCount = 0
    /// Sum of these bytes, at most `bodyBytes`.
    private(set) var resumedBytes = 0
    /// Sum of the other bytes.
    var newBytes: Int { bodyBytes - resumedBytes }
    /// Number of requests without a new body, because the file exists or is unchanged.
    private(set) var skippedCount = 0
    var totalCount: Int { succeededCount + failedCount + skippedCount }
    private var failureStatuses: Set<ExitStatus> = []

    mutating func countOutcome(_ outcome: FetchOutcome) {
        if let code = outcome.code {
            failedCount += 1
            failureStatuses.insert(ExitStatus(code: code))
        } else {
            succeededCount += 1
            bodyBytes = Self.saturatingSum(bodyBytes, outcome.response?.bodyByteCount ?? 0)
            if outcome.isCached { cachedCount += 1 }
            if outcome.response?.source == .sharedFlight { sharedCount += 1 }
            if let resumed = outcome.response?.resumedBytes, resumed > 0 {
                resumedCount += 1
                resumedBytes = Self.saturatingSum(resumedBytes, resumed)
            }
        }
    }

    private static func saturatingSum(_ left: Int, _ right: Int) -> Int {
        let (sum, isOverflow) = left.addingReportingOverflow(right)
        return isOverflow ? .max : sum
    }

    /// Counts requests that succeeded without a body.
    mutating func countSuccesses(_ count: Int) { succeededCount += count }

    mutating func countSkip() { skippedCount += 1 }

    /// Success, the common cause of all failures, or a partial failure.
    var status: ExitStatus {
        if failedCount == 0 { return .success }
        guard succeededCount == 0, failureStatuses.count == 1, let cause = failureStatuses.first else {
            return .someRequestsFailed
        }
        return cause
    }
}
