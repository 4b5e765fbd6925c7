/// Result of checking an address.
public enum AddressVerdict: Hashable, Sendable {
    /// Allowed by a rule, or because no rule matches.
    case allowed(by: AddressRule?)
    /// Denied by a rule.
    case denied(by: AddressRule)

    public var isAllowed: Bool {
        switch self {
        case .allowed: true
        case .denied: false
        }
    }
}
