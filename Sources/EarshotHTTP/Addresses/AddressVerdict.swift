/// Whether an address may be connected to.
public enum AddressVerdict: Hashable, Sendable {
    /// By a rule, or because none is for it.
    case allowed(by: AddressRule?)
    /// By a rule.
    case denied(by: AddressRule)

    public var isAllowed: Bool {
        switch self {
        case .allowed: true
        case .denied: false
        }
    }
}
