internal import EarshotWire
internal import ZMTP

/// A terminal that waits for a broker to take it.
struct Outgoing {
    /// What another broker than the attempt's is told of it before.
    let held: HeldAttempt
    let message: Message
    /// Deletes the body's file; nil if there is none. Called when the terminal will never be sent.
    let discard: (() -> Void)?

    var attempt: AttemptID { held.attempt }
}
