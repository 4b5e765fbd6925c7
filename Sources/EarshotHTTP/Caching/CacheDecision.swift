/// Cache's decision about a request. Indices refer to the list of variants passed in.
public enum CacheDecision: Hashable, Sendable {
    /// Respond with this variant, or with one range of its body.
    case use(Int, range: RequestedRange? = nil)
    /// Respond with this variant, and revalidate it in the background by the request with the fields `adding`.
    case useAndRevalidate(Int, adding: HeaderFields)
    /// Send the request with the fields `adding`. Respond with the server's response, or with this variant after a 304.
    case validate(Int, adding: HeaderFields)
    /// Send the request with the fields `adding`. `stale` is a stored variant without a validator. It may be used if
    /// the request fails (`CacheRule.mayUseStale`), and a response to HEAD may update it.
    case fetch(adding: HeaderFields, stale: Int? = nil)
    /// Fail: the request forbids contacting a server, and no stored response is usable.
    case notCached
}
