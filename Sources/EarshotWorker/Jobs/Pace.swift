internal import EarshotLoop

/// Token bucket that limits the rate of one transfer. Pure: the current time is an argument.
///
/// The bucket admits a piece once it holds all of its bytes. So the admitted bytes never exceed those that the rate
/// allows since the start, not even for a body of one piece. Unused bytes of a quarter of a second are kept.
struct Pace {
    /// Time whose bytes the bucket holds besides a waiting piece: longer than a pass of a busy loop, short beside a
    /// measurement.
    private static let burstSeconds = 0.25

    private var rate: Double
    /// Bytes in the bucket.
    private var credit = 0.0
    /// Bytes of the refused piece; 0 if none waits.
    private var awaitedBytes = 0.0
    private var filledAt: LoopTime

    /// - Parameter rate: bytes per second, at least 1.
    init(rate: Int, now: LoopTime) {
        self.rate = Double(rate)
        filledAt = now
    }

    /// Changes the rate. A waiting piece keeps its credit.
    mutating func set(rate: Int, now: LoopTime) {
        refill(now)
        self.rate = Double(rate)
    }

    /// Takes the bytes of a piece from the bucket.
    ///
    /// - Returns: false if the piece must wait until `obstacle`.
    mutating func admits(_ bytes: Int, now: LoopTime) -> Bool {
        refill(now)
        guard credit >= Double(bytes) else {
            awaitedBytes = Double(bytes)
            return false
        }
        credit -= Double(bytes)
        awaitedBytes = 0
        return true
    }

    /// Returns the time at which the refused piece is admitted; nil if that is now.
    mutating func obstacle(now: LoopTime) -> LoopTime? {
        refill(now)
        guard credit < awaitedBytes else { return nil }
        // A millisecond more, because timers have that resolution.
        return now.advanced(milliseconds: Int(((awaitedBytes - credit) / rate * 1_000).rounded(.down)) + 1)
    }

    private mutating func refill(_ now: LoopTime) {
        guard now > filledAt else { return }
        // The burst is added to the waiting piece, so that a late timer loses no bytes.
        credit = min(
            credit + rate * (now.since(filledAt) / .seconds(1)), awaitedBytes + rate * Self.burstSeconds)
        filledAt = now
    }
}
