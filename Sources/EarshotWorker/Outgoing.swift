internal import EarshotWire

/// A terminal on its way to the broker.
struct Outgoing {
    /// What another broker than the attempt's is told of it before.
    let held: HeldAttempt
    let head: [UInt8]
    /// Frame 2; nil if there is none.
    let body: [UInt8]?
    /// Deletes the body's file; nil if there is none. Called when the terminal will never be sent.
    let discard: (() -> Void)?

    var attempt: AttemptID { held.attempt }
}
