public import EarshotWire

/// Name of a client's key: 1 to 60 ASCII letters, digits and `. _ : @ -`.
public struct KeyName: Hashable, Sendable, CustomStringConvertible {
    /// Prefixes of the principals of keys, which no local user has.
    private static let prefix = "key:"
    private static let clusterPrefix = "node:"
    /// Description of the possible names, for messages.
    public static let bounds = "1 to 60 letters, digits and . _ : @ -"

    public let description: String
    /// Principal of the sessions of this key: `key:NAME`, or `node:NAME` for the nodes of a cluster.
    public let principal: PrincipalName

    /// Nil if `text` is not a valid name.
    public init?(_ text: String) {
        guard !text.isEmpty, let principal = PrincipalName(Self.prefix + text) else { return nil }
        description = text
        self.principal = principal
    }

    /// Name of the key that the nodes of a cluster share.
    ///
    /// - Parameter text: name of the cluster; nil if it cannot be part of a principal.
    public init?(cluster text: String) {
        guard !text.isEmpty, let principal = PrincipalName(Self.clusterPrefix + text) else { return nil }
        description = text
        self.principal = principal
    }
}
