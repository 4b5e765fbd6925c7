public import EarshotCluster
public import EarshotCore

/// Start options of a `BrokerProcess`. The commands `broker` and `serve` make them from their arguments.
public struct BrokerOptions: Sendable {
    /// Folder of the sockets `bus` and `work` and of `broker.lock`. Created with mode 0700 if missing.
    public var runtimeFolder: String
    /// Folder of bodies above the inline limit. Created with mode 0700 if missing.
    public var spoolFolder: String
    /// Folder of the cache, created with mode 0700 if missing; nil for a broker without a cache.
    public var cacheFolder: String?
    /// Folder of partial bodies that outlive the broker; nil to keep none.
    public var partsFolder: String?
    /// Folder of durable requests, created with mode 0700 if missing; nil for a broker that refuses them.
    public var durableFolder: String?
    /// Hexadecimal secret required of workers; nil to accept any worker of this user for http and https.
    public var workerSecret: String?
    /// Descriptor that receives the line `ready` and is closed once both sockets accept connections; nil for none.
    public var readyDescriptor: Int32?
    /// Process ID of the parent, with which this process ends; nil for none.
    public var parentPid: Int32?
    /// Settings at the start.
    public var settings = Settings()
    /// Reads the configuration files again after SIGHUP; nil if the supervisor does.
    public var readSettings: (@Sendable () throws -> Settings)?
    /// One end of a `LineChannel` to the supervisor; nil without a supervisor.
    public var supervisorDescriptor: Int32?
    /// Listening socket at the path of `bus` that the service manager opened; nil to create one.
    public var busDescriptor: Int32?
    /// Whether an earlier broker of this supervisor has ended. Its workers may still run its transfers.
    public var hasPredecessor = false
    /// Process IDs of the supervisor's workers at the start of this broker. They may not be clients.
    public var workerPids: [Int32] = []
    /// Process IDs of the supervisor's gateways, whose sessions prove their principals.
    public var gatewayPids: [Int32] = []
    /// Whether removed folders and sockets are noticed at once. Closing the watch takes the kernel up to 14 ms, in
    /// which the process cannot end.
    public var watchesForRemovedPaths = true
    /// Cluster of the broker; nil for a broker that is alone.
    public var cluster: ClusterMembership?
    /// Reads the logins of the engine again after SIGHUP; nil for a broker that is alone.
    public var readEngineOptions: (@Sendable () throws -> EngineOptions)?

    public init(runtimeFolder: String, spoolFolder: String) {
        self.runtimeFolder = runtimeFolder
        self.spoolFolder = spoolFolder
    }
}

/// Reason why a broker did not start, with advice for the user.
public struct BrokerError: Error, CustomStringConvertible {
    public let description: String
    /// Whether every further start of this version will fail until the user changes something.
    public let isPermanent: Bool

    init(_ description: String, isPermanent: Bool = false) {
        self.description = description
        self.isPermanent = isPermanent
    }
}
