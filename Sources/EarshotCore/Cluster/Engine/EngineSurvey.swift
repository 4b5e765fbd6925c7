/// Members and backlog of the cluster, as the engine reports them for `QUERY cluster`.
public struct EngineSurvey: Equatable, Sendable {
    /// Member of the cluster.
    public struct Member: Equatable, Sendable {
        public var node: NodeID
        /// Rest of its lease; 0 if it has expired.
        public var leaseMilliseconds: Int
        /// Flights that it wants or runs.
        public var flights: Int
        /// Four words: the name of its machine, the address at which it serves bodies, digests of its settings, and the
        /// addresses of nodes whose bodies it cannot read, separated by commas.
        public var description: String

        /// Name of its machine; nil if the description is an address alone.
        package var machine: String? { descriptionWords.count > 1 ? String(descriptionWords[0]) : nil }

        /// Address at which it serves bodies.
        package var address: String {
            descriptionWords.dropFirst(descriptionWords.count > 1 ? 1 : 0).first.map(String.init) ?? ""
        }

        /// `NodeSettings` as it reports them; empty for none.
        var settings: String { descriptionWords.count > 2 ? String(descriptionWords[2]) : "" }

        /// Whether it reports that it cannot read the bodies of the node at an address.
        func cannotRead(_ address: String) -> Bool {
            descriptionWords.count > 3 && descriptionWords[3].split(separator: ",").contains { $0 == address }
        }

        private var descriptionWords: [Substring] { description.split(separator: " ") }

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
