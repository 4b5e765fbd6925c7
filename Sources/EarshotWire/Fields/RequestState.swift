/// State of a request in answers to QUERY.
public enum RequestState: String, CaseIterable, Sendable {
    /// The broker writes the request, or its result, to disk.
    case storing
    /// Has ended, and its handler has no subscriber.
    case held
    /// Has ended, and its terminal waits for a window or for an acknowledgement.
    case delivering
    /// The broker looks it up in the cache.
    case asking
    case queued
    case running
    /// Waits for the next attempt.
    case backingOff = "backing-off"
    /// Follows a redirect.
    case following
}
