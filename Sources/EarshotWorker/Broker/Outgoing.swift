internal import EarshotLoop
internal import EarshotWire
internal import ZMTP

/// A terminal queued until a broker accepts it.
struct Outgoing {
    /// HOLDS entry that a broker other than the attempt's receives before the terminal.
    let held: HeldAttempt
    /// Time at which the attempt ended, for which `held` is accurate.
    let endedAt: LoopTime
    let message: Message
    /// Deletes the body's file; nil without one. Called if the terminal will never be sent.
    let discard: (() -> Void)?

    var attempt: AttemptID { held.attempt }

    /// Returns the HOLDS entry. Its elapsed time is measured from the JOB and keeps growing after the attempt's end.
    func held(_ now: LoopTime) -> HeldAttempt {
        var held = held
        held.elapsedMilliseconds += Int(now.since(endedAt) / .milliseconds(1))
        held.elapsedMilliseconds = min(held.elapsedMilliseconds, WireLimits.seconds * 1_000)
        return held
    }
}
