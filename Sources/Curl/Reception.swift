/// The answer of a sink to bytes of a body.
public enum Reception: Hashable, Sendable {
    case taken
    /// The sink took none of them and wants no more for now: they come again after `Multi.resume(_:)`, first of all.
    case postponed
    /// Aborts the transfer.
    case refused
}
