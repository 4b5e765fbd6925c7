internal import EarshotLoop

/// Division of a broker's descriptors between files, workers and clients.
public struct BrokerDescriptors: Equatable, Sendable {
    /// Descriptors for files, databases and the loop: an idle broker has 24, and uses up to ten more for moments.
    private static let leastReserve = 36
    /// A broker with many clients reads that many bodies for them.
    private static let mostReserve = 256
    /// A connection, a watch of its process, and a mark that this process may not be a client.
    private static let perWorker = 3
    /// A connection, and a watch of its process.
    private static let perClient = 2
    /// Connections without which no command could ask for the status beside a program that fetches.
    private static let leastClients = 2

    /// Limit of the process.
    public let limit: Int
    private let workers: Int

    /// - Parameter limit: Limit of the process.
    /// - Throws: `DescriptorShortage` for a limit with which no broker can serve.
    public init(limit: Int, workers: Int) throws {
        let least = Self.leastLimit(workers: workers)
        guard limit >= least else { throw DescriptorShortage(limit: limit, least: least) }
        self.limit = limit
        self.workers = workers
    }

    /// Smallest limit with which a broker can serve.
    static func leastLimit(workers: Int) -> Int { leastReserve + perWorker * workers + perClient * leastClients }

    /// Maximum number of connections of clients.
    public var connections: Int {
        let needed = Self.leastLimit(workers: workers) - Self.perClient * Self.leastClients
        let reserve = ResourceLimits.reserve(of: limit, least: needed, most: max(Self.mostReserve, needed))
        return (limit - reserve) / Self.perClient
    }

    /// Maximum number of connections of workers, including those that are leaving and those of users.
    var workerConnections: Int { max(connections / 4, workers + 1) }
}
