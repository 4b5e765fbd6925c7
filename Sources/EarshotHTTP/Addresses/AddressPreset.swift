/// Named policy to which rules can be added.
public enum AddressPreset: String, CaseIterable, Sendable {
    /// Allows every address.
    case all
    /// Allows only globally reachable addresses: none of this machine or of a private network.
    case publicOnly = "public-only"

    /// Rules of the preset.
    var rules: [AddressRule] {
        switch self {
        case .all: []
        case .publicOnly: AddressPolicy.publicOnlyRules
        }
    }
}
