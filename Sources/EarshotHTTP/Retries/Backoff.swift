/// Exponential backoff: pauses that double from the first to the longest.
public struct Backoff: Hashable, Sendable {
    /// Nanoseconds after the first failure.
    public let initialDelayNanoseconds: Int64
    /// Upper bound of the pauses, in nanoseconds.
    public let maximumDelayNanoseconds: Int64

    /// - Parameters: 0 or more nanoseconds.
    public init(initialNanoseconds: Int64, maximumNanoseconds: Int64) {
        precondition(
            initialNanoseconds >= 0 && maximumNanoseconds >= 0,
            "negative pause: \(initialNanoseconds), \(maximumNanoseconds)")
        self.initialDelayNanoseconds = initialNanoseconds
        self.maximumDelayNanoseconds = maximumNanoseconds
    }

    public init(initialMilliseconds: Int64, maximumMilliseconds: Int64) {
        self.init(
            initialNanoseconds: initialMilliseconds * 1_000_000, maximumNanoseconds: maximumMilliseconds * 1_000_000)
    }

    /// Returns the pause after a number of failures in a row, in nanoseconds.
    public func delayNanoseconds(afterFailures count: Int) -> Int64 {
        var pause = min(initialDelayNanoseconds, maximumDelayNanoseconds)
        // Doubles no further than needed, so that neither shift nor product can overflow.
        var doublings = max(count, 1) - 1
        while doublings > 0, pause > 0, pause < maximumDelayNanoseconds {
            pause = pause > maximumDelayNanoseconds / 2 ? maximumDelayNanoseconds : pause * 2
            doublings -= 1
        }
        return pause
    }

    /// Returns the pause with jitter: its first half is fixed and its second half random, so that attempts that failed
    /// together are not repeated together.
    ///
    /// - Parameter random: A uniformly distributed number.
    public func delayNanoseconds(afterFailures count: Int, random: UInt64) -> Int64 {
        let pause = delayNanoseconds(afterFailures: count)
        let half = pause / 2
        return half + Int64(UInt64(pause - half + 1).multipliedFullWidth(by: random).high)
    }
}
