/// Members and backlog of the cluster, for operators.
public struct EngineSurvey: Equatable, Sendable {
    /// Member of the cluster.
    public struct Member: Equatable, Sendable {
        public var node: NodeID
        /// Rest of its lease; 0 if it has expired.
        public var leaseMilliseconds: Int
        /// Flights that it wants or runs.
        public var flights: Int
        /// Text of its configuration: the address at which it serves bodies.
        public var description: String

        public init(node: NodeID, leaseMilliseconds: Int, flights: Int, description: String) {
            self.node = node
            self.leaseMilliseconds = leaseMilliseconds
            self.flights = flights
            self.description = description
        }
    }

    /// Flights that wait in the engine or run.
    public var flights: Int
    /// Origins with such flights.
    public var origins: Int
    /// Origins with a cool-down or a spacing now.
    public var pausedOrigins: Int
    public var members: [Member]
    /// Time between the question and its answer.
    public var latencyMicroseconds = 0

    public init(flights: Int, origins: Int, pausedOrigins: Int, members: [Member]) {
        self.flights = flights
        self.origins = origins
        self.pausedOrigins = pausedOrigins
        self.members = members
    }
}
