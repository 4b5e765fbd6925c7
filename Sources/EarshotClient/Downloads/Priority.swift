internal import EarshotWire

/// Class of a request in the broker's queue. Higher classes get a larger share of the transfers; no class starves.
public enum Priority: CaseIterable, Comparable, Sendable {
    /// For work without a deadline, such as prefetching.
    case background
    /// Below ``normal``.
    case low
    /// The default.
    case normal
    /// For content that a user waits for.
    case high

    var wire: PriorityClass {
        switch self {
        case .background: .background
        case .low: .low
        case .normal: .normal
        case .high: .high
        }
    }
}
