/// Reason why the engine cannot be used at present.
public enum EngineFault: Error, Hashable, Sendable {
    /// No connection, with the name of the error.
    case unreachable(String)
    /// No reply in time.
    case timedOut
    /// The server closed the connection.
    case connectionClosed
    /// The server's bytes are no reply, or a reply has an unexpected form.
    case malformedReply
    /// The password or user is wrong or missing.
    case accessDenied
    /// The user may not use a command, a key or the channel.
    case notPermitted(String)
    /// The server is a replica.
    case notPrimary
    /// The server reads its data from disk, or waits for its primary.
    case loadingData
    /// The server refuses writes, for example without replicas or memory; with its first word.
    case refusesWrites(String)
    /// No sentinel answered, or none knows the primary.
    case noPrimary
    /// The server may evict the cluster's keys.
    case evictionEnabled
    /// The settings have no address of a server or sentinel.
    case noServerAddress
    /// The cluster runs scripts of another version.
    case scriptVersionMismatch
    /// The cluster uses another secret or key pair.
    case secretMismatch
    /// The lease expired, or the engine lost its data.
    case leaseLost
    /// Another error of the server, with its first word.
    case serverError(String)
    /// This node left.
    case leftCluster

    /// Whether only an operator can end it: configuration, not a passing state.
    public var needsOperator: Bool {
        switch self {
        case .accessDenied, .notPermitted, .evictionEnabled, .noServerAddress, .scriptVersionMismatch, .secretMismatch:
            true
        case .unreachable, .timedOut, .connectionClosed, .malformedReply, .notPrimary, .loadingData, .refusesWrites,
            .noPrimary, .leaseLost, .serverError, .leftCluster:
            false
        }
    }
}

extension EngineFault: CustomStringConvertible {
    public var description: String {
        switch self {
        case .unreachable(let reason): "cannot connect to the engine: \(reason)"
        case .timedOut: "the engine did not answer in time"
        case .connectionClosed: "the engine closed the connection"
        case .malformedReply: "the server at the engine's address does not answer like Redis"
        case .accessDenied: "the engine refused user or password; correct them in the cluster's settings"
        case .notPermitted(let subject):
            "the engine's user lacks a permission (\(subject)); see docs/cluster.md for its rules"
        case .notPrimary: "the engine at this address is a replica"
        case .loadingData: "the engine is still loading its data"
        case .refusesWrites(let word): "the engine refuses writes (\(word))"
        case .noPrimary:
            "no sentinel answers and knows the primary; check the network, the name of the primary and the sentinels"
        case .evictionEnabled:
            "the engine would evict the cluster's keys when its memory is full; set maxmemory-policy to noeviction"
        case .noServerAddress: "the cluster's settings have no address of the engine; add one such as 192.0.2.1:6379"
        case .scriptVersionMismatch:
            "other nodes of the cluster run another version of its scripts; stop them, or use their version"
        case .secretMismatch:
            "other nodes of the cluster have another secret or key pair; use the same file on each node"
        case .leaseLost: "the node's lease expired, or the engine lost its data"
        case .serverError(let word): "the engine failed (\(word))"
        case .leftCluster: "this node left the cluster"
        }
    }
}

/// Shortcoming of a working engine.
public enum EngineWarning: Hashable, Sendable, CustomStringConvertible {
    /// The engine had a record or result that no node of the cluster has written.
    case forgedRecord
    /// Fewer sentinels are left than can promote a replica.
    case noQuorum
    /// The primary accepts writes without a replica, although the engine has several servers.
    case writesWithoutReplicas
    /// The user may not query the server's role.
    case roleUnknown

    public var description: String {
        switch self {
        case .forgedRecord:
            "the engine had an entry that no node has written, and it was dropped; check which other programs can write to the engine, and change its passwords"
        case .noQuorum:
            "too few sentinels can be reached to promote a replica if the primary dies; start them, and check their ports"
        case .writesWithoutReplicas:
            "the engine's primary accepts writes without a replica; set min-replicas-to-write to 1"
        case .roleUnknown: "the engine's user may not use INFO, so its role is unknown; permit +info"
        }
    }
}
