/// Effect of a response without body on a stored response.
public enum Freshening: Equatable, Sendable {
    /// Replace the stored fields by this; the body stays.
    case update(StoredResponse)
    /// Respond with this and the stored body, then remove the stored response: it may no longer be stored.
    case useOnce(StoredResponse)
    /// Concerns another representation. After a 304: remove the stored response and repeat the request without
    /// conditions. After a HEAD: revalidate the stored response before its next use.
    case mismatch
    /// No effect on the stored response.
    case unrelated
}
