/// Circuit breaker: after some failures in a row nothing is tried for a while, then one try at a time.
///
/// ```
/// closed ──3 failures in a row──→ open ──pause is over──→ trying ──success──→ closed
///                                  ↑────────failure─────────┘      (the pause doubles)
/// ```
///
/// Failures of tries that began before it opened do not count again.
struct CircuitBreaker: Equatable {
    static let maximumFailures = 3
    static let initialPauseMilliseconds = 2_000
    static let maximumPauseMilliseconds = 60_000

    /// Failures in a row.
    private(set) var consecutiveFailures = 0
    private var pauseMilliseconds = initialPauseMilliseconds
    /// Time of the next try; nil while it is closed.
    private(set) var nextTrialTime: MonotonicTime?
    private var isTrialRunning = false

    var isClosed: Bool { nextTrialTime == nil }

    /// Whether a try is permitted now. Each try of an open breaker calls `trialBegan`.
    func permitsTrial(now: MonotonicTime) -> Bool { nextTrialTime.map { $0 <= now } ?? true }

    /// A permitted try begins. If nothing is known of its end, another one may follow after the pause.
    mutating func trialBegan(now: MonotonicTime) {
        guard !isClosed else { return }
        isTrialRunning = true
        nextTrialTime = now.advanced(byMilliseconds: pauseMilliseconds)
    }

    /// Ends the pause: the next try is permitted at once.
    mutating func endPause(now: MonotonicTime) {
        if !isClosed { nextTrialTime = now }
    }

    /// - Returns: whether it was closed and is open now.
    mutating func failed(now: MonotonicTime) -> Bool {
        consecutiveFailures += 1
        guard isClosed else {
            if isTrialRunning {
                pauseMilliseconds = min(2 * pauseMilliseconds, Self.maximumPauseMilliseconds)
                nextTrialTime = now.advanced(byMilliseconds: pauseMilliseconds)
                isTrialRunning = false
            }
            return false
        }
        guard consecutiveFailures >= Self.maximumFailures else { return false }
        open(now: now)
        return true
    }

    /// Opens it without failures in a row.
    mutating func open(now: MonotonicTime) {
        guard isClosed else { return }
        nextTrialTime = now.advanced(byMilliseconds: pauseMilliseconds)
    }

    /// - Returns: whether it was open and is closed now.
    mutating func succeeded() -> Bool {
        defer { self = CircuitBreaker() }
        return !isClosed
    }
}
