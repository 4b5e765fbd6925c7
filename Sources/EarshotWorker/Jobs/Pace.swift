internal import EarshotLoop

/// Token bucket that limits the rate of one transfer. Pure: the current time is an argument.
///
/// The bucket holds the bytes of a quarter of a second. A piece is admitted while the bucket holds any bytes and may
/// overdraw it, so the mean rate is exact although pieces have any size.
struct Pace {
    /// Time whose bytes the bucket holds at most: longer than a pass of a busy loop, short beside a measurement.
    private static let burstSeconds = 0.25

    private var rate: Double
    /// Bytes in the bucket; negative when overdrawn.
    private var credit = 0.0
    private var filledAt: LoopTime

    /// - Parameter rate: bytes per second, at least 1.
    init(rate: Int, now: LoopTime) {
        self.rate = Double(rate)
        filledAt = now
    }

    /// Changes the rate. The debt of an overdrawn bucket stays.
    mutating func set(rate: Int, now: LoopTime) {
        fill(now)
        self.rate = Double(rate)
    }

    /// Returns the time at which the next piece is admitted; nil if that is now.
    mutating func obstacle(now: LoopTime) -> LoopTime? {
        fill(now)
        guard credit < 0 else { return nil }
        // A millisecond more, because timers have that resolution.
        return now.advanced(milliseconds: Int((-credit / rate * 1_000).rounded(.down)) + 1)
    }

    /// Counts an admitted piece.
    mutating func take(_ bytes: Int) { credit -= Double(bytes) }

    private mutating func fill(_ now: LoopTime) {
        guard now > filledAt else { return }
        credit = min(credit + rate * (now.since(filledAt) / .seconds(1)), rate * Self.burstSeconds)
        filledAt = now
    }
}
