internal import EarshotWire
internal import ZMTP

/// A terminal queued until the broker's socket takes it.
struct Outgoing {
    let attempt: AttemptID
    let message: Message
    /// Deletes the body's file; nil without one. Called if this process ends before the terminal was sent.
    let discard: (() -> Void)?
}
