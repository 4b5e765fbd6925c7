/// A moment on the shell's monotonic clock, in nanoseconds from an arbitrary start.
public struct Tick: Comparable, Hashable, Sendable {
    public var nanoseconds: Int64

    public init(nanoseconds: Int64) {
        self.nanoseconds = nanoseconds
    }

    /// The moment so many milliseconds later.
    public func advanced(byMilliseconds milliseconds: Int) -> Tick {
        Tick(nanoseconds: nanoseconds &+ Int64(clamping: milliseconds) &* 1_000_000)
    }

    /// The moment so many nanoseconds later.
    public func advanced(byNanoseconds duration: Int64) -> Tick {
        Tick(nanoseconds: nanoseconds &+ duration)
    }

    /// Whole milliseconds from `earlier` to this moment; 0 if that lies ahead.
    public func milliseconds(since earlier: Tick) -> Int {
        max(0, Int((nanoseconds - earlier.nanoseconds) / 1_000_000))
    }

    public static func < (left: Tick, right: Tick) -> Bool { left.nanoseconds < right.nanoseconds }
}
