/// A folder or socket of the broker that was removed or replaced beneath it. Told with its status.
public struct PlaceFault: Equatable, Sendable {
    /// `runtime`, `bus`, `work` or `spool`.
    public let place: String
    /// Where it is.
    public let path: String
    /// Losses in this life of the broker.
    public var count: Int
    /// When the last one was noticed: RFC 3339, UTC.
    public var last: String
    /// Why it could not be made again; nil once it was.
    public var reason: String?

    public init(place: String, path: String, count: Int, last: String, reason: String?) {
        self.place = place
        self.path = path
        self.count = count
        self.last = last
        self.reason = reason
    }
}
