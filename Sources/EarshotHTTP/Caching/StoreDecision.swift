/// Decision whether to store a response.
public enum StoreDecision: Equatable, Sendable {
    /// Store the response with its body, once the body is complete.
    case store(StoredResponse)
    /// Do not store it.
    case refuse(Reason)

    /// Reason not to store a response.
    public enum Reason: Hashable, Sendable, CaseIterable {
        /// Method other than GET. A response to HEAD has no body: see `CacheRule.freshening(of:byHead:…)`.
        case method
        /// The request's mode is `no-store`, or its own fields select the response.
        case pastCache
        /// `no-store` in the request or the response.
        case noStore
        /// Status that is never stored, such as 206, 304 and 429; or an unknown one with `must-understand`.
        case status
        /// `private` or Set-Cookie, in a shared cache.
        case personal
        /// The status requires an explicit permission to store, which is absent.
        case notAllowed
        /// `Vary: *`: no other request is known to have the same response.
        case varies
        /// Fields of more than `HTTPLimits.headerBytes`.
        case tooLarge
    }
}
