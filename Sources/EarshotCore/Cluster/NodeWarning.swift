/// Shortcoming of a node's part in its cluster, or of the other nodes as this one sees them.
public struct NodeWarning: Hashable, Sendable, CustomStringConvertible {
    /// Subjects. A node has at most one warning about each.
    public enum Subject: Hashable, Sendable {
        /// Flights of other nodes fail here, without a connection or for want of room, so this node takes none for a
        /// while.
        case outboundFailures
        /// Other nodes cannot read the bodies of this one, so it takes no flights of theirs for a while.
        case ownBodiesUnreadable
        /// The bodies of the node at this address cannot be read.
        case peerBodiesUnreadable(String)
        /// Another node has the address of this one, or two others have the same one.
        case duplicateAddress(String)
        /// The node at this address has other settings, or another version.
        case differentSettings(String)
    }

    public let subject: Subject
    /// Last failure, or names of settings.
    public let detail: String

    /// Whether flights of other nodes do not run here.
    var isSuspension: Bool {
        switch subject {
        case .outboundFailures, .ownBodiesUnreadable: true
        case .peerBodiesUnreadable, .duplicateAddress, .differentSettings: false
        }
    }

    /// Whether only an operator can correct it.
    public var needsOperator: Bool {
        switch subject {
        case .duplicateAddress: true
        case .outboundFailures, .ownBodiesUnreadable, .peerBodiesUnreadable, .differentSettings: false
        }
    }

    public var description: String {
        switch subject {
        case .outboundFailures:
            "this node runs no flights of other nodes, because they fail here (\(detail)); check its network, name server, proxy and spool"
        case .ownBodiesUnreadable:
            "this node runs no flights of other nodes, because they cannot read its bodies; check that they reach its address node"
        case .peerBodiesUnreadable(let address):
            "the bodies of the node at \(address) cannot be read (\(detail)); check that this machine reaches that address"
        case .duplicateAddress(let address):
            "two nodes have the address \(address); set node in the cluster's file of each to its own address"
        case .differentSettings(let address):
            "the node at \(address) differs in \(detail); use the same settings and version on all nodes"
        }
    }
}

/// Line of the log about a node's part in its cluster.
public enum ClusterNotice: Equatable, Sendable {
    case warning(NodeWarning)
    /// A shortcoming is gone.
    case warningCleared(NodeWarning)
    /// A body of another node could not be used.
    ///
    /// - isFirst: whether the last one of that node could.
    case bodyReadFailed(place: String, reason: String, isFirst: Bool)
    /// Another node has requested a body that this one does not hold any more.
    case requestedBodyMissing(place: String)
    /// Bodies for other nodes were released before their time, because the spool is full. At most one line in a minute.
    case bodiesReleasedEarly
}
