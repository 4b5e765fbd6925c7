internal import Glibc

/// Time on the system's monotonic clock. Unrelated to the calendar, and meaningless after a reboot.
public struct LoopTime: Comparable, Hashable, Sendable {
    /// Nanoseconds since an unspecified epoch, usually the boot.
    public var nanoseconds: Int64

    public init(nanoseconds: Int64) {
        self.nanoseconds = nanoseconds
    }

    /// Reads the clock. A loop does this once per pass: see ``EventLoop/now``.
    public static func readClock() -> LoopTime {
        var time = timespec()
        // Cannot fail: the clock exists and the pointer is valid.
        unsafe clock_gettime(CLOCK_MONOTONIC, &time)
        return LoopTime(nanoseconds: Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec))
    }

    /// Blocks this thread, for a process that does not serve yet.
    public static func sleep(milliseconds: Int32) { _ = poll(nil, 0, milliseconds) }

    /// Returns the time `duration` later, saturated on overflow.
    public func advanced(by duration: Duration) -> LoopTime {
        let (seconds, attoseconds) = duration.components
        let (whole, overflow) = seconds.multipliedReportingOverflow(by: 1_000_000_000)
        let (sum, overflowed) = nanoseconds.addingReportingOverflow(whole)
        guard !overflow, !overflowed else { return LoopTime(nanoseconds: seconds < 0 ? .min : .max) }
        let (total, last) = sum.addingReportingOverflow(attoseconds / 1_000_000_000)
        return LoopTime(nanoseconds: last ? .max : total)
    }

    /// Equivalent of `advanced(by:)` in milliseconds, without the 128-bit arithmetic of `Duration`.
    public func advanced(milliseconds: Int) -> LoopTime {
        let (delay, overflow) = Int64(milliseconds).multipliedReportingOverflow(by: 1_000_000)
        let (total, overflowed) = nanoseconds.addingReportingOverflow(delay)
        guard !overflow, !overflowed else { return LoopTime(nanoseconds: milliseconds < 0 ? .min : .max) }
        return LoopTime(nanoseconds: total)
    }

    /// Returns the time elapsed since `earlier`.
    public func since(_ earlier: LoopTime) -> Duration {
        .nanoseconds(nanoseconds.subtractingReportingOverflow(earlier.nanoseconds).partialValue)
    }

    public static func < (left: LoopTime, right: LoopTime) -> Bool { left.nanoseconds < right.nanoseconds }
}
