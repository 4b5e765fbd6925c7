internal import EarshotLoop

/// Token bucket that limits the rate of one transfer. Pure: the current time is an argument.
///
/// The bucket admits a piece once it holds all of its bytes. So the admitted bytes never exceed those that the rate
/// allows since the start, not even for a body of one piece. Unused bytes of a quarter of a second are kept.
struct Pace {
    /// Time whose bytes the bucket holds besides a waiting piece: longer than a pass of a busy loop, short beside a
    /// measurement.
    private static let burstSeconds = 0.25

    private var bytesPerSecond: Double
    /// Bytes in the bucket.
    private var creditBytes = 0.0
    /// Bytes of the refused piece; 0 if none waits.
    private var refusedPieceBytes = 0.0
    private var lastRefillTime: LoopTime

    /// - Parameter bytesPerSecond: At least 1.
    init(bytesPerSecond: Int, now: LoopTime) {
        self.bytesPerSecond = Double(bytesPerSecond)
        lastRefillTime = now
    }

    /// Changes the rate. A waiting piece keeps its credit.
    mutating func setRate(bytesPerSecond: Int, now: LoopTime) {
        refillCredit(now: now)
        self.bytesPerSecond = Double(bytesPerSecond)
    }

    /// Takes the bytes of a piece from the bucket.
    ///
    /// - Returns: false if the piece must wait until `admissionTime`.
    mutating func consumeCredit(bytes: Int, now: LoopTime) -> Bool {
        refillCredit(now: now)
        guard creditBytes >= Double(bytes) else {
            refusedPieceBytes = Double(bytes)
            return false
        }
        creditBytes -= Double(bytes)
        refusedPieceBytes = 0
        return true
    }

    /// Returns the time at which the refused piece is admitted; nil if that is now.
    mutating func admissionTime(now: LoopTime) -> LoopTime? {
        refillCredit(now: now)
        guard creditBytes < refusedPieceBytes else { return nil }
        // A millisecond more, because timers have that resolution.
        return now.advanced(
            milliseconds: Int(((refusedPieceBytes - creditBytes) / bytesPerSecond * 1_000).rounded(.down)) + 1)
    }

    private mutating func refillCredit(now: LoopTime) {
        guard now > lastRefillTime else { return }
        // The burst is added to the waiting piece, so that a late timer loses no bytes.
        creditBytes = min(
            creditBytes + bytesPerSecond * (now.since(lastRefillTime) / .seconds(1)),
            refusedPieceBytes + bytesPerSecond * Self.burstSeconds)
        lastRefillTime = now
    }
}
