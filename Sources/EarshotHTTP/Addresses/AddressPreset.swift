/// A policy with a name, to which rules are added.
public enum AddressPreset: String, CaseIterable, Sendable {
    /// All addresses may be connected to.
    case all
    /// Only what can be reached from everywhere: no address of this machine or of an inner network.
    case publicOnly = "public-only"

    /// What it consists of.
    var rules: [AddressRule] {
        switch self {
        case .all: []
        case .publicOnly: AddressPolicy.publicOnlyRules
        }
    }
}
