internal import EarshotHTTP
internal import EarshotWire

/// Long heads of requests that have not ended, counted against two bounds: one in total, one per client.
///
/// A flight holds the head of the request that began it. A durable request holds its own head until it is on disk.
struct RequestHeads: Equatable {
    /// Holder of a head.
    enum Holder: Hashable {
        case flight(Handle<Flight>)
        /// A durable request that is being written, by its interest.
        case entering(Handle<Interest>)
    }

    /// Bytes of each head that are not counted, so that ordinary requests cost no entry.
    static let freeBytes = 512
    /// Placeholder for the sender of a head that no connected client sent.
    static let nobody = ClientID(rawValue: 0)

    private struct Entry: Equatable {
        let byteCount: Int
        let client: ClientID
    }

    private var entries: [Holder: Entry] = [:]
    /// Counted bytes of all heads.
    private(set) var byteCount = 0
    private var byClient: [ClientID: Int] = [:]

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

    /// Client that sent the head held by a flight; nil if the head is not counted.
    func client(of flight: Handle<Flight>) -> ClientID? { entries[.flight(flight)]?.client }

    /// Adds a head. A head of at most `freeBytes` costs nothing.
    mutating func add(_ bytes: Int, for holder: Holder, of client: ClientID) {
        guard bytes > 0 else { return }
        entries[holder] = Entry(byteCount: bytes, client: client)
        byteCount += bytes
        byClient[client, default: 0] += bytes
    }

    /// Removes the head of a holder, if it is counted.
    mutating func remove(_ holder: Holder) {
        guard !entries.isEmpty, let entry = entries.removeValue(forKey: holder) else { return }
        byteCount -= entry.byteCount
        let left = bytes(of: entry.client) - entry.byteCount
        byClient[entry.client] = left > 0 ? left : nil
    }
}
