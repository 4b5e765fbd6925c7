internal import EarshotClient

/// Directories that the service manager created: RuntimeDirectory=, CacheDirectory= and StateDirectory=,
/// systemd.exec(5). Only `serve` uses them, because a client may be a service with its own directories.
struct ServiceFolders {
    private let runtime = Self.firstDirectory("RUNTIME_DIRECTORY")
    private let caches = Self.firstDirectory("CACHE_DIRECTORY")
    private let state = Self.firstDirectory("STATE_DIRECTORY")

    /// Cache; nil outside a service.
    var cache: String? { caches.map { $0 + "/cache" } }
    /// Spool; nil outside a service.
    var spool: String? { caches.map { $0 + "/spool" } }
    /// Durable requests; nil outside a service.
    var durable: String? { state.map { $0 + "/durable" } }

    /// Returns, by precedence, the runtime directory of the option, of EARSHOT_RUNTIME, of the service, or the default.
    func runtime(_ options: RuntimeOptions) throws(ClientError) -> RuntimeFolder {
        guard options.runtime == nil, Environment.value("EARSHOT_RUNTIME") == nil, let runtime else {
            return try options.runtimeFolder()
        }
        return try RuntimeFolder(named: runtime)
    }

    /// Returns the first directory of a list.
    private static func firstDirectory(_ variable: String) -> String? {
        Environment.value(variable)?.split(separator: ":").first.map { String($0) }
    }
}
