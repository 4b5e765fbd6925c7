/// Parameters of a private bus's supervisor.
package struct PrivateStart: Sendable {
    /// Runtime folder, which the supervisor creates and removes.
    package let folder: RuntimeFolder
    /// Process ID of the owner, with which the supervisor ends.
    package let owner: Int32
    /// Inherited descriptor: the supervisor writes a byte when clients can connect, and closes it.
    package let readyDescriptor: Int32
    /// Maximum number of worker processes; nil for the default.
    package let mostWorkers: Int?
    /// Folder of the cache; nil for no cache.
    package let cacheFolder: String?

    /// Names the parameters as the properties do.
    package init(
        folder: RuntimeFolder, owner: Int32, readyDescriptor: Int32, mostWorkers: Int?, cacheFolder: String?
    ) {
        self.folder = folder
        self.owner = owner
        self.readyDescriptor = readyDescriptor
        self.mostWorkers = mostWorkers
        self.cacheFolder = cacheFolder
    }

    /// Arguments of the program `earshot`, including its name.
    package var arguments: [String] {
        ["earshot", "serve", "--runtime", folder.path, "--log-level", "error", "--ready-fd", String(readyDescriptor)]
            + ["--private-to", String(owner), "--no-durable"]
            + (mostWorkers.map { ["--most-workers", String($0)] } ?? [])
            + (cacheFolder.map { ["--cache-folder", $0] } ?? ["--no-cache"])
    }
}
