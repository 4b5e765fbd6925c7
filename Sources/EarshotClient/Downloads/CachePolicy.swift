internal import EarshotWire

/// Use of the broker's cache: the modes of the Fetch standard, and ``explicit``.
public enum CachePolicy: Sendable {
    /// Uses fresh responses, and revalidates stale ones.
    case usual
    /// Like ``usual``, but a response is fresh only as long as its `max-age` or `Expires` states. No heuristic
    /// freshness.
    case explicit
    /// Neither reads nor writes the cache.
    case noStore
    /// Does not read the cache, but stores the response.
    case reload
    /// Revalidates a stored response before its use.
    case validate
    /// Uses a stored response, fresh or stale. Without one, fetches.
    case preferCached
    /// Uses a stored response, fresh or stale. Without one, fails with ``BusError/Code/notCached``.
    case onlyIfCached

    var wire: CacheMode {
        switch self {
        case .usual: .default
        case .explicit: .explicit
        case .noStore: .noStore
        case .reload: .reload
        case .validate: .noCache
        case .preferCached: .forceCache
        case .onlyIfCached: .onlyIfCached
        }
    }
}
