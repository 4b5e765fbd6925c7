/// How a request is answered, as far as the cache has a say. Indices are those of the variants that were asked about.
public enum CacheDecision: Hashable, Sendable {
    /// By this variant, as it is.
    case use(Int)
    /// By this variant, as it is; behind it a server is asked whether it has changed, by the request with `adding`.
    case useAndRevalidate(Int, adding: HeaderFields)
    /// By the server's answer to the request with `adding`, or by this variant, if that is a 304.
    case validate(Int, adding: HeaderFields)
    /// By the server's answer to the request with `adding`. `stale` is the kept variant without a validator that may
    /// stand in for a failure (`CacheRule.mayUseStale`), and that an answer to HEAD may update.
    case fetch(adding: HeaderFields, stale: Int? = nil)
    /// Not at all: nothing may be asked of a server, and nothing that is there may be used.
    case notCached
}
