internal import EarshotWire

extension CacheMode {
    /// Returns the fields that instruct caches on the way to the server, unless the client sets them: the Fetch
    /// standard, "HTTP-network-or-cache fetch".
    func fields(besides request: HeaderFields) -> HeaderFields {
        var fields = HeaderFields()
        switch self {
        case .noStore, .reload:
            if !request.contains("pragma") { fields.add("pragma".utf8, "no-cache".utf8) }
            if !request.contains("cache-control") { fields.add("cache-control".utf8, "no-cache".utf8) }
        case .noCache:
            if !request.contains("cache-control") { fields.add("cache-control".utf8, "max-age=0".utf8) }
        case .default, .explicit, .forceCache, .onlyIfCached: break
        }
        return fields
    }
}
