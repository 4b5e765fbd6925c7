internal import EarshotHTTP
internal import EarshotWire

/// Cache state of a flight that needs more than a lookup and a store: fields to add, a stored response, or a pending
/// read.
package struct CachePlan {
    /// Fields that its JOB has in addition to those of the request: conditions, and `Cache-Control` for other caches.
    var adding = HeaderFields()
    /// Conditions of all requests of the flight, which its JOB has too, if the cache has none of its own.
    var conditions: RequestConditions?
    /// The stored response that is being validated, may replace a failure, or is being read.
    var storedVariant: CacheVariant?
    /// The source to report in the terminal, while the body is being read; nil otherwise.
    var reading: Terminal.Source?
    /// The range of the body that the flight requests; nil for the whole body.
    var range: RequestedRange?
    /// Failure of the origin, while a stale response is read to replace it.
    var fallback: Handle<Outcome>?
    /// Whether the flight is looked up again once one of its receivers has room for a stored response.
    package var waitsForRoom = false
    /// Client in whose window the flight has room reserved while it is looked up again, or the body is read.
    var reservation: GenerationalHandle<ClientSession>?
    /// Principal whose use of a stale response began a revalidation; nil for the administrator.
    var owner: PrincipalName?

    /// The request that the JOB makes, from that of the flight. Not a method of the core, because its caller would copy the
    /// whole core.
    func request(of request: HTTPRequest) -> HTTPRequest {
        let request = request.adding(adding)
        return conditions.map { request.adding($0.fields) } ?? request
    }
}

extension CacheMode {
    /// Modes of flights that satisfy a request of this mode.
    var stricter: [CacheMode] {
        switch self {
        case .default: [.explicit, .noCache, .reload]
        case .explicit: [.noCache, .reload]
        case .noCache: [.reload]
        case .forceCache: [.default, .explicit, .noCache, .reload]
        case .noStore, .reload, .onlyIfCached: []
        }
    }
}
