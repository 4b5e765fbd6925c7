/// Histograms of the times of requests and transfers that have ended.
public struct RequestTimes: Sendable {
    /// Time from a request to the start of the attempt with its response; 0 for a request that joined a running one.
    /// Requests without a response from a transfer are not counted.
    public internal(set) var waitHistogram = DurationHistogram()
    /// Time of an attempt whose response ended a flight. Counted once for all requests that share the flight.
    public internal(set) var transferHistogram = DurationHistogram()
    /// Time from a request to its outcome, of every request that ended in one.
    public internal(set) var totalHistogram = DurationHistogram()

    public init() {}

    /// Counts the total time of a request, and its wait if its response has a transfer.
    ///
    /// Not inlined: an access to the array of a histogram would copy the whole core in the caller.
    @inline(never)
    mutating func requestEnded(requestedAt: MonotonicTime, transferStartedAt: MonotonicTime?, endedAt: MonotonicTime) {
        totalHistogram.recordDuration(from: requestedAt, to: endedAt)
        if let transferStartedAt { waitHistogram.recordDuration(from: requestedAt, to: transferStartedAt) }
    }
}

/// Histogram of durations with fixed buckets, for monitoring.
///
/// The upper bound of a bucket is twice that of the one before, so an observation costs a division and a bit count.
public struct DurationHistogram: Sendable {
    /// Number of buckets, including the one for durations above all bounds.
    public static let bucketCount = 24
    /// Upper bound of the first bucket in microseconds: less than one pass of a busy broker.
    private static let firstBoundMicroseconds = 125
    /// Inclusive upper bounds in microseconds, 125 µs to 524 s, of all buckets but the last.
    public static let upperBoundsMicroseconds = (0..<bucketCount - 1).map { firstBoundMicroseconds << $0 }

    /// Number of observations in each bucket. Not cumulative.
    private var bucketCounts = InlineArray<24, Int>(repeating: 0)
    /// Sum of all observed durations in microseconds.
    public private(set) var sumMicroseconds = 0

    public init() {}

    /// Number of observations in each bucket, in the order of the bounds.
    public var bucketValues: [Int] { bucketCounts.indices.map { bucketCounts[$0] } }

    /// Number of observations.
    public var count: Int { bucketValues.reduce(0, +) }

    /// Counts the time between two moments; 0 if `end` is earlier.
    mutating func recordDuration(from start: MonotonicTime, to end: MonotonicTime) {
        // The difference of two moments of one process is far from overflow, but a moment may come from a peer.
        let (difference, isOverflow) = end.nanoseconds.subtractingReportingOverflow(start.nanoseconds)
        let nanoseconds = start < end ? UInt64(isOverflow ? .max : difference) : 0
        let microseconds = (nanoseconds + 999) / 1_000
        sumMicroseconds &+= Int(microseconds)
        // Bits of the number of whole first buckets below the duration: 0 in the first bucket, 1 in the second.
        let width = UInt64(Self.firstBoundMicroseconds)
        let below = (max(microseconds, 1) - 1) / width
        bucketCounts[min(64 - below.leadingZeroBitCount, Self.bucketCount - 1)] += 1
    }
}
