internal import EarshotWire

/// How urgent a request is. A higher class gets the larger share of transfers, and none starves.
public enum Priority: CaseIterable, Comparable, Sendable {
    /// What may come at any time: prefetching.
    case background
    case low
    case normal
    /// What somebody looks at and waits for.
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
