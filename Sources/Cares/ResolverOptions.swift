/// How a resolver asks.
public struct ResolverOptions: Sendable {
    /// Numeric addresses, each with an optional `:port`, IPv6 in brackets then; nil for those of the system.
    public var servers: [String]?
    /// How long a server has for its first answer; each further round over the servers waits twice as long.
    public var attemptTimeout = Duration.seconds(2)
    /// How often each server is asked.
    public var tries = 2

    public init(servers: [String]? = nil) {
        self.servers = servers
    }
}
