/// Options of a resolver.
public struct ResolverOptions: Sendable {
    /// Numeric addresses of servers, each with an optional `:port`, in which case IPv6 is in brackets; nil for the
    /// system's servers.
    public var servers: [String]?
    /// Timeout of a server's first response; doubled in each further round over the servers.
    public var attemptTimeout = Duration.seconds(2)
    /// Number of attempts per server.
    public var tries = 2

    public init(servers: [String]? = nil) {
        self.servers = servers
    }
}
