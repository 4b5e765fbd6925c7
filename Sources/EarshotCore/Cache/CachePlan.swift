internal import EarshotHTTP
internal import EarshotWire

/// Cache state of a flight with more than a lookup and a store: fields to add, a kept response, or a pending read.
struct CachePlan {
    /// Fields that its JOB has besides those of the request: conditions, and words to other caches.
    var adding = HeaderFields()
    /// The kept response that is validated, that may stand in for a failure, or whose body is read.
    var stored: CacheVariant?
    /// What a terminal says of the answer whose body is read; nil if none is.
    var reading: Terminal.Source?
    /// How asking the server failed, if a stale answer is read in its stead.
    var fallback: Outcome?
}

extension CacheMode {
    /// Modes of flights that do what a request of this mode asks for, and more.
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
