/// Parameters of a private bus's supervisor.
public struct PrivateStart: Sendable {
    /// Runtime folder, which the supervisor creates and removes.
    public let folder: RuntimeFolder
    /// Process ID of the owner, with which the supervisor ends.
    public let owner: Int32
    /// Inherited descriptor: the supervisor writes a byte when clients can connect, and closes it.
    public let readyDescriptor: Int32
    /// Maximum number of worker processes; nil for the default.
    public let mostWorkers: Int?
    /// Folder of the cache; nil for no cache.
    public let cacheFolder: String?

    /// Names the parameters as the properties do.
    public init(
        folder: RuntimeFolder, owner: Int32, readyDescriptor: Int32, mostWorkers: Int?, cacheFolder: String?
    ) {
        self.folder = folder
        self.owner = owner
        self.readyDescriptor = readyDescriptor
        self.mostWorkers = mostWorkers
        self.cacheFolder = cacheFolder
    }

    /// Arguments of the program `earshot`, including its name.
    public var arguments: [String] {
        ["earshot", "serve", "--runtime", folder.path, "--log-level", "error", "--ready-fd", String(readyDescriptor)]
            + ["--private-to", String(owner), "--no-durable"]
            + (mostWorkers.map { ["--most-workers", String($0)] } ?? [])
            + (cacheFolder.map { ["--cache-folder", $0] } ?? ["--no-cache"])
    }
}
