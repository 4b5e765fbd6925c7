/// Exponential backoff: pauses that double from the first to the longest.
public struct Backoff: Hashable, Sendable {
    /// Nanoseconds after the first failure.
    public let firstPause: Int64
    /// Upper bound of the pauses, in nanoseconds.
    public let longestPause: Int64

    /// - Parameters: 0 or more nanoseconds.
    public init(first: Int64, longest: Int64) {
        precondition(first >= 0 && longest >= 0, "negative pause: \(first), \(longest)")
        self.firstPause = first
        self.longestPause = longest
    }

    public init(firstMilliseconds: Int64, longestMilliseconds: Int64) {
        self.init(first: firstMilliseconds * 1_000_000, longest: longestMilliseconds * 1_000_000)
    }

    /// Returns the pause after a number of failures in a row, in nanoseconds.
    public func pause(afterFailures count: Int) -> Int64 {
        var pause = min(firstPause, longestPause)
        // Doubles no further than needed, so that neither shift nor product can overflow.
        var doublings = max(count, 1) - 1
        while doublings > 0, pause > 0, pause < longestPause {
            pause = pause > longestPause / 2 ? longestPause : pause * 2
            doublings -= 1
        }
        return pause
    }

    /// Returns the pause with jitter: its first half is fixed and its second half random, so that attempts that failed
    /// together are not repeated together.
    ///
    /// - Parameter random: A uniformly distributed number.
    public func pause(afterFailures count: Int, random: UInt64) -> Int64 {
        let pause = pause(afterFailures: count)
        let half = pause / 2
        return half + Int64(UInt64(pause - half + 1).multipliedFullWidth(by: random).high)
    }
}
