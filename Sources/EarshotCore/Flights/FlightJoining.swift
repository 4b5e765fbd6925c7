internal import EarshotWire

/// Which open flight a new request joins: one with the same key, in a cache mode that is at least as strict.
/// `openFlight` of the core looks here for each request and each redirect.
extension CacheMode {
    /// Modes of flights that satisfy a request of this mode.
    var satisfyingModes: [CacheMode] {
        switch self {
        case .default: [.explicit, .noCache, .reload]
        case .explicit: [.noCache, .reload]
        case .noCache: [.reload]
        case .forceCache: [.default, .explicit, .noCache, .reload]
        case .noStore, .reload, .onlyIfCached: []
        }
    }
}

extension FlightTable {
    /// The flight that a request with this key joins; nil if it needs a new one.
    @inline(__always)
    func joinableFlight(_ key: FlightKey) -> Handle<Flight>? {
        if let flight = handle(of: key) { return flight }
        return nonDefaultCacheModeCount > 0 || key.cacheMode != .default ? stricterFlight(than: key) : nil
    }

    private func stricterFlight(than key: FlightKey) -> Handle<Flight>? {
        for mode in key.cacheMode.satisfyingModes {
            var stricter = key
            stricter.cacheMode = mode
            // A background revalidation must not delay a request that may use the stale response.
            if let flight = handle(of: stricter), !self[flight].isRevalidation { return flight }
        }
        return nil
    }

    /// The flight of mode `default` that a request of mode `explicit` can still join. The cache has not answered that
    /// flight, so an origin will.
    @inline(__always)
    func joinableDefaultModeFlight(_ key: FlightKey) -> Handle<Flight>? {
        guard key.cacheMode == .explicit else { return nil }
        var wider = key
        wider.cacheMode = .default
        guard let flight = handle(of: wider) else { return nil }
        switch self[flight].phase {
        case .queued, .running, .backingOff: return flight
        // A response of heuristic freshness may be about to answer this flight, or has redirected it.
        // The engine of a cluster knows a claiming flight by its mode.
        case .lookingUp, .claiming, .following, .ended: return nil
        }
    }
}
