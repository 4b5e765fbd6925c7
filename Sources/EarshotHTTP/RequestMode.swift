/// How a request deals with the cache: the "cache mode" of the Fetch standard, with its names.
public enum RequestMode: String, Hashable, Sendable, CaseIterable {
    /// What is fresh is used, what is stale is validated.
    case `default`
    /// As if there were no cache: nothing is taken from it and nothing put into it.
    case noStore = "no-store"
    /// Nothing is taken from it; the answer is put into it.
    case reload
    /// What is there is validated before it is used.
    case noCache = "no-cache"
    /// What is there is used, fresh or not.
    case forceCache = "force-cache"
    /// What is there is used, fresh or not, and nothing is ever asked of a server.
    case onlyIfCached = "only-if-cached"

    /// What caches on the way to the server are told, unless the client tells them something: the Fetch standard,
    /// "HTTP-network-or-cache fetch".
    func fields(besides request: HeaderFields) -> HeaderFields {
        var fields = HeaderFields()
        switch self {
        case .noStore, .reload:
            if !request.contains("pragma") { fields.add("pragma".utf8, "no-cache".utf8) }
            if !request.contains("cache-control") { fields.add("cache-control".utf8, "no-cache".utf8) }
        case .noCache:
            if !request.contains("cache-control") { fields.add("cache-control".utf8, "max-age=0".utf8) }
        case .default, .forceCache, .onlyIfCached: break
        }
        return fields
    }
}
