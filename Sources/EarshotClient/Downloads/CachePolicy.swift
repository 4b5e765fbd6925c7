internal import EarshotWire

/// How a request deals with the broker's cache: the modes of the Fetch standard, and ``explicit``.
public enum CachePolicy: Sendable {
    /// What is fresh is used, what is stale is validated.
    case usual
    /// As ``usual``, but an answer is fresh only for as long as the server said by `max-age` or `Expires`.
    case explicit
    /// As if there were no cache.
    case noStore
    /// Nothing is taken from it; the answer is put into it.
    case reload
    /// What is there is validated before it is used.
    case validate
    /// What is there is used, fresh or not.
    case preferCached
    /// What is there is used, and no server is ever asked: else ``BusError/Code/notCached``.
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
