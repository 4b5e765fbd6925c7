internal import EarshotCore

/// Script that the engine runs as one step. Its text is the file of its name in `Scripts`, after `common.lua`.
enum EngineScript: String, CaseIterable, Sendable {
    /// Carries out the calls of a node in order. Each call is a function in its own file: `want`, `unwant`, `take`
    /// (assigns queued flights to the node), `done` and `cool`.
    case pass
    /// Extends the lease of a node.
    case renew
    /// Returns the attempts of a dead node.
    case reap
    /// Reports members and backlog.
    case survey

    /// Version of the scripts and of the keys' form. Nodes with another version are refused while one is a member.
    static let scriptVersion = 2

    /// Text that all nodes of a cluster have in common: the version, and a code of the secret and the key pair.
    static func compatibilityText(_ options: EngineOptions) -> String {
        "\(scriptVersion) \(options.keys.compatibilityCode(publicKey: options.publicKey))"
    }

    var scriptText: [UInt8] {
        switch self {
        case .pass:
            PackageResources.common_lua + PackageResources.want_lua + PackageResources.unwant_lua
                + PackageResources.take_lua + PackageResources.done_lua + PackageResources.cool_lua
                + PackageResources.pass_lua
        case .renew: PackageResources.common_lua + PackageResources.renew_lua
        case .reap: PackageResources.common_lua + PackageResources.reap_lua
        case .survey: PackageResources.common_lua + PackageResources.survey_lua
        }
    }
}

/// Names of the cluster's keys and channels. All have one hash tag, so that they are in one slot.
struct EngineNames: Sendable {
    /// Start of all keys and channels but `scriptVersion`.
    let prefix: String
    /// Key of the version of scripts and secret.
    let version: String

    init(cluster: String) {
        prefix = "{\(cluster)}:\(EngineScript.scriptVersion):"
        version = "{\(cluster)}:version"
    }

    /// Channel of one node's notifications.
    func channel(of node: NodeID) -> String { "\(prefix)c:\(node)" }
}
