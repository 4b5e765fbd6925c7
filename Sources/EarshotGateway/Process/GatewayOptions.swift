/// Start options of a `GatewayProcess`, which the command `gateway` makes.
public struct GatewayOptions: Sendable {
    /// Addresses to listen at.
    public var addresses: [GatewayAddress]
    /// Path of the broker's socket for clients.
    public var busPath: String
    /// Path of the broker's socket for workers.
    public var workPath: String
    /// Reads the file of keys, at the start and after SIGHUP.
    public var readKeys: @Sendable () throws -> GatewayKeys
    /// Folder of the file of keys. The file can be replaced, so the process may read all files there.
    public var keysFolder: String
    /// Process ID of the parent, with which this process ends; nil for none.
    public var parentPid: Int32?
    /// One end of a `LineChannel` to the supervisor.
    public var supervisorDescriptor: Int32?

    public init(
        addresses: [GatewayAddress], busPath: String, workPath: String, keysFolder: String,
        readKeys: @escaping @Sendable () throws -> GatewayKeys
    ) {
        self.addresses = addresses
        self.keysFolder = keysFolder
        self.busPath = busPath
        self.workPath = workPath
        self.readKeys = readKeys
    }
}

/// Reason why a gateway did not start, with advice for the user.
public struct GatewayError: Error, CustomStringConvertible {
    public let description: String

    init(_ description: String) { self.description = description }
}
