internal import EarshotCore

/// Names of the cluster's keys and channels. All have one hash tag, so that they are in one slot.
struct EngineNames: Sendable {
    /// Start of all keys and channels but `version`.
    let prefix: String
    /// Key of the version of scripts and secret.
    let version: String

    init(cluster: String) {
        prefix = "{\(cluster)}:\(EngineScript.version):"
        version = "{\(cluster)}:version"
    }

    /// Channel of one node's notifications.
    func channel(of node: NodeID) -> String { "\(prefix)c:\(node)" }
}
