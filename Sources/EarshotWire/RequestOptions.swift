/// How urgent a request is; a higher class gets the larger share of slots.
public enum PriorityClass: UInt8, CaseIterable, Comparable, Sendable {
    case background
    case low
    case normal
    case high

    /// Nil if `name` is not a class's name on the wire.
    public init?(name: String) {
        switch name {
        case "background": self = .background
        case "low": self = .low
        case "normal": self = .normal
        case "high": self = .high
        default: return nil
        }
    }

    /// The name on the wire.
    public var name: String {
        switch self {
        case .background: "background"
        case .low: "low"
        case .normal: "normal"
        case .high: "high"
        }
    }

    public static func < (left: PriorityClass, right: PriorityClass) -> Bool { left.rawValue < right.rawValue }
}

/// What a redirect means to a request; the Fetch standard's redirect mode.
public enum RedirectMode: String, CaseIterable, Sendable {
    /// Follow it, hop by hop.
    case follow
    /// It is a failure, `redirect-refused`.
    case error
    /// It is the result.
    case manual
}
