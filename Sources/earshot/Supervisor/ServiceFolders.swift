internal import EarshotClient

/// Folders that the service manager made for this service: RuntimeDirectory=, CacheDirectory= and StateDirectory=,
/// systemd.exec(5). Only what serves uses them: a client may be a service as well, with folders of its own.
struct ServiceFolders {
    private let runtime = Self.first("RUNTIME_DIRECTORY")
    private let caches = Self.first("CACHE_DIRECTORY")
    private let state = Self.first("STATE_DIRECTORY")

    /// Nil if there is none.
    var cache: String? { caches.map { $0 + "/cache" } }
    /// Nil if there is none.
    var spool: String? { caches.map { $0 + "/spool" } }
    /// Nil if there is none.
    var durable: String? { state.map { $0 + "/durable" } }

    /// The runtime folder that was named, as an argument or for this program; else the service's, else the user's usual
    /// one.
    func runtime(_ place: PlaceOptions) throws(ClientError) -> RuntimeFolder {
        guard place.runtime == nil, Environment.value("EARSHOT_RUNTIME") == nil, let runtime else {
            return try place.folder()
        }
        return try RuntimeFolder(named: runtime)
    }

    /// The first folder of a list.
    private static func first(_ variable: String) -> String? {
        Environment.value(variable)?.split(separator: ":").first.map { String($0) }
    }
}
