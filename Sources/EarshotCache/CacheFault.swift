/// Problem of the cache to report to an administrator: a constant message, and details of this occurrence.
public enum CacheFault: Equatable, Sendable {
    /// The index or the folder of bodies cannot be opened, so this process has no cache.
    case unavailable(error: String)
    /// The index was corrupt, was moved aside and has been replaced.
    case damaged(movedTo: String)
    /// Reading or writing fails. Reported at most once per minute.
    case failing(error: String)

    /// Message for the log.
    public var message: String {
        switch self {
        case .unavailable: "cannot open the cache; this broker goes without"
        case .damaged: "the index of the cache is corrupt; it was moved aside and replaced"
        case .failing: "cannot read or write the cache"
        }
    }

    /// Names and values of the details.
    public var details: [String: String] {
        switch self {
        case .unavailable(let error), .failing(let error): ["error": error]
        case .damaged(let path): ["moved-to": path]
        }
    }
}
