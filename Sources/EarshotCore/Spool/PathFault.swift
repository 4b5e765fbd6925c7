/// Folder or socket of the broker that was removed or replaced while in use, or cannot be written. QUERY `status`
/// reports it.
public struct PathFault: Equatable, Sendable {
    /// `runtime`, `bus`, `work` or `spool`.
    public let place: String
    /// Path of the folder or socket.
    public let path: String
    /// Number of losses since the broker started.
    public var count: Int
    /// Time of the last detection, in RFC 3339, UTC.
    public var last: String
    /// Reason why it cannot be restored or written; nil once it can be used.
    public var reason: String?

    public init(place: String, path: String, count: Int, last: String, reason: String?) {
        self.place = place
        self.path = path
        self.count = count
        self.last = last
        self.reason = reason
    }
}
