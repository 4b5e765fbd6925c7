/// What the supervisor of a private bus is told.
public struct PrivateStart: Sendable {
    /// Where it is to listen: a folder that it makes, and removes.
    public let folder: RuntimeFolder
    /// The process it ends with.
    public let owner: Int32
    /// Told `ready` when programs can connect, and closed; inherited by the supervisor.
    public let readyDescriptor: Int32
    /// Worker processes at most; nil for as many as the settings say.
    public let mostWorkers: Int?
    /// The folder of its cache; nil for none.
    public let cacheFolder: String?

    /// The same as arguments of `earshot`, from the program's name on.
    public var arguments: [String] {
        ["earshot", "serve", "--runtime", folder.path, "--log-level", "error", "--ready-fd", String(readyDescriptor)]
            + ["--private-to", String(owner), "--no-durable"]
            + (mostWorkers.map { ["--most-workers", String($0)] } ?? [])
            + (cacheFolder.map { ["--cache-folder", $0] } ?? ["--no-cache"])
    }
}
