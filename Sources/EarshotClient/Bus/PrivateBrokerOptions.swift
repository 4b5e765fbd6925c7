/// How a private broker is started.
public struct PrivateBrokerOptions: Sendable {
    /// The path of the program `earshot`; nil to look for it in the folders of `PATH`.
    public var program: String?
    /// Worker processes at most, at least 1; nil for as many as the settings say.
    public var mostWorkers: Int?
    /// The folder of its cache, made if it is not there; nil for no cache. A folder that another broker uses is left to
    /// that one.
    public var cacheFolder: String?

    public init(program: String? = nil, mostWorkers: Int? = nil, cacheFolder: String? = nil) {
        self.program = program
        self.mostWorkers = mostWorkers
        self.cacheFolder = cacheFolder
    }
}
