internal import EarshotLoop

/// Division of a broker's descriptors between files, workers and clients.
public struct BrokerDescriptors: Equatable, Sendable {
    /// Descriptors for files, databases and the loop: an idle broker has 24, and uses up to ten more for moments.
    private static let minimumReservedDescriptors = 36
    /// A broker with many clients reads that many bodies for them.
    private static let maximumReservedDescriptors = 256
    /// A connection, a watch of its process, and a mark that this process may not be a client.
    private static let descriptorsPerWorker = 3
    /// A connection, and a watch of its process.
    private static let descriptorsPerClient = 2
    /// Connections without which no command could query the status beside a program that fetches.
    private static let minimumClients = 2

    /// Limit of the process.
    public let processLimit: Int
    private let workerCount: Int

    /// - Parameter processLimit: Limit of the process.
    /// - Throws: `DescriptorShortage` for a limit with which no broker can serve.
    public init(processLimit: Int, workerCount: Int) throws {
        let minimum = Self.minimumProcessLimit(workerCount: workerCount)
        guard processLimit >= minimum else {
            throw DescriptorShortage(descriptorLimit: processLimit, requiredLimit: minimum)
        }
        self.processLimit = processLimit
        self.workerCount = workerCount
    }

    /// Smallest limit with which a broker can serve.
    static func minimumProcessLimit(workerCount: Int) -> Int {
        minimumReservedDescriptors + descriptorsPerWorker * workerCount + descriptorsPerClient * minimumClients
    }

    /// Maximum number of connections of clients.
    public var maximumClientConnections: Int {
        let needed =
            Self.minimumProcessLimit(workerCount: workerCount) - Self.descriptorsPerClient * Self.minimumClients
        let reserve = ResourceLimits.reservedDescriptors(
            ofLimit: processLimit, minimum: needed, maximum: max(Self.maximumReservedDescriptors, needed))
        return (processLimit - reserve) / Self.descriptorsPerClient
    }

    /// Maximum number of connections of workers, including those that are leaving and those of users.
    var maximumWorkerConnections: Int { max(maximumClientConnections / 4, workerCount + 1) }
}
