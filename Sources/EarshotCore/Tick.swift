/// Time on the shell's monotonic clock, in nanoseconds from an arbitrary origin.
public struct Tick: Comparable, Hashable, Sendable {
    public var nanoseconds: Int64

    public init(nanoseconds: Int64) {
        self.nanoseconds = nanoseconds
    }

    /// The time `milliseconds` later; earlier for a negative number.
    public func advanced(byMilliseconds milliseconds: Int) -> Tick {
        Tick(nanoseconds: nanoseconds &+ Int64(clamping: milliseconds) &* 1_000_000)
    }

    /// The time `duration` nanoseconds later.
    public func advanced(byNanoseconds duration: Int64) -> Tick {
        Tick(nanoseconds: nanoseconds &+ duration)
    }

    /// Whole milliseconds from `earlier` to this time; 0 if `earlier` is later.
    public func milliseconds(since earlier: Tick) -> Int {
        max(0, Int((nanoseconds - earlier.nanoseconds) / 1_000_000))
    }

    public static func < (left: Tick, right: Tick) -> Bool { left.nanoseconds < right.nanoseconds }
}
