/// Time on the shell's monotonic clock, in nanoseconds from an arbitrary origin.
public struct Tick: Comparable, Hashable, Sendable {
    public var nanoseconds: Int64

    public init(nanoseconds: Int64) {
        self.nanoseconds = nanoseconds
    }

    // All results saturate, because durations come from peers and from disk.

    /// The time `milliseconds` later; earlier for a negative number.
    public func advanced(byMilliseconds milliseconds: Int) -> Tick {
        let (duration, isOverflow) = Int64(clamping: milliseconds).multipliedReportingOverflow(by: 1_000_000)
        return advanced(byNanoseconds: isOverflow ? milliseconds < 0 ? .min : .max : duration)
    }

    /// The time `duration` nanoseconds later; earlier for a negative number.
    public func advanced(byNanoseconds duration: Int64) -> Tick {
        let (sum, isOverflow) = nanoseconds.addingReportingOverflow(duration)
        return Tick(nanoseconds: isOverflow ? duration < 0 ? .min : .max : sum)
    }

    /// Whole milliseconds from `earlier` to this time; 0 if `earlier` is later.
    public func milliseconds(since earlier: Tick) -> Int {
        let (duration, isOverflow) = nanoseconds.subtractingReportingOverflow(earlier.nanoseconds)
        guard earlier < self else { return 0 }
        return Int((isOverflow ? .max : duration) / 1_000_000)
    }

    public static func < (left: Tick, right: Tick) -> Bool { left.nanoseconds < right.nanoseconds }
}
