/// Result of offering body bytes to a sink.
public enum Reception: Hashable, Sendable {
    case taken
    /// No byte was accepted, and the transfer pauses. `Multi.resume(_:)` offers the same bytes again.
    case postponed
    /// Aborts the transfer.
    case refused
}
