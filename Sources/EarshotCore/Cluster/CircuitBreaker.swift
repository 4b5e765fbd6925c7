/// Circuit breaker: after some failures in a row nothing is tried for a while, then one try at a time.
///
/// ```
/// closed ──3 failures in a row──→ open ──pause is over──→ trying ──success──→ closed
///                                  ↑────────failure─────────┘      (the pause doubles)
/// ```
///
/// Failures of tries that began before it opened do not count again.
struct CircuitBreaker: Equatable {
    static let mostFailures = 3
    static let firstPauseMilliseconds = 2_000
    static let longestPauseMilliseconds = 60_000

    /// Failures in a row.
    private(set) var failures = 0
    private var pause = firstPauseMilliseconds
    /// Time of the next try; nil while it is closed.
    private(set) var nextTry: Tick?
    private var isTrying = false

    var isClosed: Bool { nextTry == nil }

    /// Whether a try is permitted now. Each try of an open breaker calls `tryBegan`.
    func permits(now: Tick) -> Bool { nextTry.map { $0 <= now } ?? true }

    /// A permitted try begins. If nothing is known of its end, another one may follow after the pause.
    mutating func tryBegan(now: Tick) {
        guard !isClosed else { return }
        isTrying = true
        nextTry = now.advanced(byMilliseconds: pause)
    }

    /// Ends the pause: the next try is permitted at once.
    mutating func endPause(now: Tick) {
        if !isClosed { nextTry = now }
    }

    /// - Returns: whether it was closed and is open now.
    mutating func failed(now: Tick) -> Bool {
        failures += 1
        guard isClosed else {
            if isTrying {
                pause = min(2 * pause, Self.longestPauseMilliseconds)
                nextTry = now.advanced(byMilliseconds: pause)
                isTrying = false
            }
            return false
        }
        guard failures >= Self.mostFailures else { return false }
        open(now: now)
        return true
    }

    /// Opens it without failures in a row.
    mutating func open(now: Tick) {
        guard isClosed else { return }
        nextTry = now.advanced(byMilliseconds: pause)
    }

    /// - Returns: whether it was open and is closed now.
    mutating func succeeded() -> Bool {
        defer { self = CircuitBreaker() }
        return !isClosed
    }
}
