internal import EarshotLoop
internal import EarshotWire
internal import ZMTP

/// A terminal that waits for a broker to take it.
struct Outgoing {
    /// What another broker than the attempt's is told of it before.
    let held: HeldAttempt
    /// When `held` was true.
    let endedAt: LoopTime
    let message: Message
    /// Deletes the body's file; nil if there is none. Called when the terminal will never be sent.
    let discard: (() -> Void)?

    var attempt: AttemptID { held.attempt }

    /// What HOLDS says of it: its time goes on from its JOB, though it has ended.
    func held(_ now: LoopTime) -> HeldAttempt {
        var held = held
        held.elapsedMilliseconds += Int(now.since(endedAt) / .milliseconds(1))
        held.elapsedMilliseconds = min(held.elapsedMilliseconds, WireLimits.seconds * 1_000)
        return held
    }
}
