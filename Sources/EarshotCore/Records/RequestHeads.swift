internal import EarshotHTTP
internal import EarshotWire

/// Long heads of requests that have not ended, counted against three bounds: in total, per client, and per principal.
///
/// A flight holds the head of the request that began it. A request that joined it with other fields holds its own, and so
/// does a durable request until it is on disk.
struct RequestHeads: Equatable {
    /// Holder of a head.
    enum Holder: Hashable {
        case flight(Handle<Flight>)
        /// A durable request that is being written, by its interest.
        case entering(Handle<Interest>)
        /// A request that joined a flight with other fields.
        case joined(Handle<Interest>)
    }

    /// Bytes of each head that are not counted, so that ordinary requests cost no entry.
    static let freeBytes = 512
    /// Placeholder for the sender of a head that no connected client sent.
    static let noClient = ClientID(rawValue: 0)

    struct Entry: Equatable {
        let byteCount: Int
        /// Client that sent it.
        let client: ClientID
        let principal: Handle<Principal>
    }

    private var entries: [Holder: Entry] = [:]
    /// Counted bytes of all heads.
    private(set) var byteCount = 0
    private var byClient: [ClientID: Int] = [:]

    /// All counted heads.
    var all: some Collection<Entry> { entries.values }

    /// Holders of counted heads.
    var holders: some Collection<Holder> { entries.keys }

    /// Bytes counted for a request. Its fields and route are held twice: as such and in the flight's key.
    static func counted(_ request: HTTPRequest) -> Int {
        var bytes = request.url.description.utf8.count + 2 * request.fields.bytes.count
        if !request.route.isUsual { bytes += 2 * request.route.canonical.utf8.count }
        return max(0, bytes - freeBytes)
    }

    /// Counted bytes of the heads that a client sent.
    func bytes(of client: ClientID) -> Int { byClient[client] ?? 0 }

    /// The head of a holder; nil if it is not counted.
    subscript(_ holder: Holder) -> Entry? { entries[holder] }

    /// Adds a head, which is longer than `freeBytes`.
    mutating func add(_ entry: Entry, for holder: Holder) {
        entries[holder] = entry
        byteCount += entry.byteCount
        byClient[entry.client, default: 0] += entry.byteCount
    }

    /// Removes and returns the head of a holder, if it is counted.
    mutating func remove(_ holder: Holder) -> Entry? {
        guard !entries.isEmpty, let entry = entries.removeValue(forKey: holder) else { return nil }
        byteCount -= entry.byteCount
        let left = bytes(of: entry.client) - entry.byteCount
        byClient[entry.client] = left > 0 ? left : nil
        return entry
    }
}
