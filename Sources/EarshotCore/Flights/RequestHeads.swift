internal import EarshotHTTP
internal import EarshotWire

/// Long heads of requests that have not ended, counted against bounds: in all, and for the client that sent each.
///
/// A flight holds the head of the request that began it. Until a durable request is on the disk, the request holds it.
struct RequestHeads: Equatable {
    /// Holder of a head.
    enum Holder: Hashable {
        case flight(Int32)
        /// A durable request that is being written, by its interest.
        case entering(Int32)
    }

    /// Bytes of each head that are not counted, so that a million usual requests are free.
    static let freeBytes = 512
    /// Stands for the sender of a head that no connected client sent.
    static let nobody = ClientID(rawValue: 0)

    private struct Entry: Equatable {
        let byteCount: Int
        let client: ClientID
    }

    private var entries: [Holder: Entry] = [:]
    /// Counted bytes of all heads.
    private(set) var byteCount = 0
    private var byClient: [ClientID: Int] = [:]

    /// The holders of counted heads.
    var holders: some Collection<Holder> { entries.keys }

    /// Returns the bytes counted for a request. Its fields and route are held twice: as such and in the flight's key.
    @inline(__always)
    static func counted(_ request: HTTPRequest) -> Int {
        var bytes = request.url.description.utf8.count + 2 * request.fields.bytes.count
        if !request.route.isUsual { bytes += 2 * request.route.canonical.utf8.count }
        return max(0, bytes - freeBytes)
    }

    /// Returns the counted bytes that a client's requests hold.
    func bytes(of client: ClientID) -> Int { byClient[client] ?? 0 }

    /// Returns the client whose head a flight holds; nil if that is not counted.
    func client(of flight: Int32) -> ClientID? { entries[.flight(flight)]?.client }

    /// Counts a head. One without counted bytes costs nothing.
    mutating func add(_ bytes: Int, for holder: Holder, of client: ClientID) {
        guard bytes > 0 else { return }
        entries[holder] = Entry(byteCount: bytes, client: client)
        byteCount += bytes
        byClient[client, default: 0] += bytes
    }

    /// Counts a holder's head no more, if it was counted.
    mutating func remove(_ holder: Holder) {
        guard !entries.isEmpty, let entry = entries.removeValue(forKey: holder) else { return }
        byteCount -= entry.byteCount
        let left = bytes(of: entry.client) - entry.byteCount
        byClient[entry.client] = left > 0 ? left : nil
    }
}
