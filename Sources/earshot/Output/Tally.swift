internal import EarshotWire

/// How many requests ended how, and what that makes of the program's end.
struct Tally {
    private(set) var succeeded = 0
    private(set) var failed = 0
    private(set) var bytes = 0
    /// Bodies that came from the cache, revalidated ones included.
    private(set) var cached = 0
    var total: Int { succeeded + failed }
    private var causes: Set<ExitStatus> = []

    mutating func count(_ outcome: FetchOutcome) {
        if let code = outcome.code {
            failed += 1
            causes.insert(ExitStatus(code: code))
        } else {
            succeeded += 1
            bytes += outcome.response?.length ?? 0
            if outcome.isCached { cached += 1 }
        }
    }

    /// Counts requests that succeeded without a body.
    mutating func countSuccesses(_ count: Int) { succeeded += count }

    /// Done; the one cause if all failed by it; else that some failed.
    var status: ExitStatus {
        if failed == 0 { return .done }
        guard succeeded == 0, causes.count == 1, let cause = causes.first else { return .someFailed }
        return cause
    }
}
