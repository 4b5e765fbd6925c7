public import EarshotCore

/// What a broker is started with.
public struct BrokerOptions: Sendable {
    /// Folder of the endpoints `bus` and `work` and of `broker.lock`; made 0700 if it is not there.
    public var runtimeFolder: String
    /// Folder of bodies too large to travel inline; made 0700 if it is not there.
    public var spoolFolder: String
    /// Folder of the cache; made 0700 if it is not there. Nil for a broker without one.
    public var cacheFolder: String?
    /// Folder of durable requests; made 0700 if it is not there. Nil for a broker that refuses them.
    public var durableFolder: String?
    /// Proof asked of workers, hexadecimal digits; nil lets every worker of this user fetch http and https.
    public var secret: String?
    /// Told `ready` and closed once both endpoints can be connected to; nil for nobody.
    public var readyDescriptor: Int32?
    /// The process whose end is this one's too; nil for none.
    public var parentPid: Int32?
    /// What is set at the start.
    public var settings = Settings()
    /// Reads the files of settings again, when SIGHUP comes; nil for a broker whose supervisor does.
    public var readSettings: (@Sendable () throws -> Settings)?
    /// One end of a `LineChannel` to the supervisor; nil for a broker without one.
    public var supervisorDescriptor: Int32?
    /// Workers that may still do an earlier broker's work: they are heard before anything is assigned, for a second.
    public var expectedWorkers = 0

    public init(runtimeFolder: String, spoolFolder: String) {
        self.runtimeFolder = runtimeFolder
        self.spoolFolder = spoolFolder
    }
}

/// Why a broker did not start; a sentence that says what to do.
public struct BrokerError: Error, CustomStringConvertible {
    public let description: String
    /// Whether no broker of this version can ever serve here, until a person changes something.
    public let isPermanent: Bool

    init(_ description: String, isPermanent: Bool = false) {
        self.description = description
        self.isPermanent = isPermanent
    }
}
