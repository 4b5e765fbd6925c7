/// Whether an answer is kept.
public enum StoreDecision: Equatable, Sendable {
    /// Keep it, with its body, once that is complete.
    case store(StoredResponse)
    /// Do not.
    case refuse(Reason)

    /// Why an answer is not kept.
    public enum Reason: Hashable, Sendable, CaseIterable {
        /// Another method than GET. An answer to HEAD has no body to keep: see `CacheRule.freshening(of:byHead:…)`.
        case method
        /// The request's mode is `no-store`, or it goes past the cache.
        case pastCache
        /// `no-store` in the request or the response.
        case noStore
        /// A status that is never kept, such as 206, 304 and 429; or one that is unknown, beside `must-understand`.
        case status
        /// The status is kept only if the server says for how long, and it does not.
        case notAllowed
        /// No request is known to have the same answer: `Vary: *`.
        case varies
        /// Fields of more than `HTTPLimits.headerBytes`.
        case tooLarge
    }
}
