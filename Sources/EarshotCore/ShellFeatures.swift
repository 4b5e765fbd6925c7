public import EarshotHTTP
public import EarshotWire

/// Facilities of the shell that the core may use.
public struct ShellFeatures: Sendable {
    /// Whether a supervisor keeps the workers, so that their number can be set.
    public var isSupervised = false
    /// Whether the supervisor runs a program for each request that ends. May change at any time.
    public var isReportingEnds = false
    /// Whether the log has a line for each attempt. May change at any time.
    public var isLoggingAttempts = false
    /// Whether there is a cache.
    public var isCaching = false
    /// Whether durable requests are stored.
    public var isKeeping = false
    /// Whether there is a folder of parts.
    public var isKeepingParts = false
    /// Encoder of internationalized host names in requests and redirects; without one they are malformed.
    public var hosts: HostNameEncoder?
    /// Proof expected of the gateway; nil without a gateway: HELLO is refused if it has `proof`.
    public var gatewayProof: GatewayProof?
    /// Proof of the HTTP door; nil if there is none.
    var doorProof: GatewayProof?
    /// Principals of the keys of clients that the gateway accepts; nil if unknown. May change at any time.
    var validKeys: Set<PrincipalName>?
    /// List of public suffixes, for the domains of cookies.
    public var publicSuffixes = PublicSuffixes.unknown

    public init() {}
}
