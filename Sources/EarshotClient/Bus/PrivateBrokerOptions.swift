/// Options of a private broker.
public struct PrivateBrokerOptions: Sendable {
    /// Path of the program `earshot`; nil searches the folders of `PATH`.
    public var program: String?
    /// Maximum number of worker processes, at least 1; nil for the broker's default.
    public var mostWorkers: Int?
    /// Folder of the cache, created if missing; nil for no cache. A folder in use by another broker is not used, and
    /// then the private broker has no cache.
    ///
    /// Partial bodies and the spool of the broker are beside it, or beside the user's default cache without one.
    public var cacheFolder: String?

    /// Creates options for ``BrokerChoice/privateBroker(_:)``.
    ///
    /// - Parameters:
    ///   - program: path of the program `earshot`; nil searches `PATH`.
    ///   - mostWorkers: maximum number of worker processes; nil for the broker's default.
    ///   - cacheFolder: folder of the cache; nil for no cache.
    public init(program: String? = nil, mostWorkers: Int? = nil, cacheFolder: String? = nil) {
        self.program = program
        self.mostWorkers = mostWorkers
        self.cacheFolder = cacheFolder
    }
}
