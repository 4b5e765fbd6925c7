internal import EarshotHTTP
internal import EarshotWire

/// Long heads of requests that have not ended, counted against three bounds: in total, per client, and per principal.
///
/// A flight holds the head of the request that began it. A request that joined it with other fields holds its own, and
/// so does a durable request until it is on disk.
struct RequestHeads: Equatable {
    /// Holder of a head.
    enum HeadHolder: Hashable {
        case flight(Handle<Flight>)
        /// A durable request that is being written, by its interest.
        case durableRequest(Handle<Interest>)
        /// A request that joined a flight with other fields.
        case joinedRequest(Handle<Interest>)
    }

    /// Bytes of each head that are not counted, so that ordinary requests cost no entry.
    static let uncountedBytesPerHead = 512
    /// Placeholder for the sender of a head that no connected client sent.
    static let noClientID = ClientID(rawValue: 0)

    struct CountedHead: Equatable {
        let byteCount: Int
        /// Client that sent it.
        let client: ClientID
        let principal: Handle<Principal>
    }

    private var headsByHolder: [HeadHolder: CountedHead] = [:]
    /// Counted bytes of all heads.
    private(set) var totalCountedBytes = 0
    private var countedBytesByClient: [ClientID: Int] = [:]

    /// All counted heads.
    var countedHeads: some Collection<CountedHead> { headsByHolder.values }

    /// Holders of counted heads.
    var holders: some Collection<HeadHolder> { headsByHolder.keys }

    /// Bytes counted for a request. Its fields and route are held twice: as such and in the flight's key.
    static func countedBytes(of request: HTTPRequest) -> Int {
        var bytes = request.url.description.utf8.count + 2 * request.fields.bytes.count
        if !request.route.isDefault { bytes += 2 * request.route.canonicalText.utf8.count }
        return max(0, bytes - uncountedBytesPerHead)
    }

    /// Counted bytes of the heads that a client sent.
    func countedBytes(ofClient client: ClientID) -> Int { countedBytesByClient[client] ?? 0 }

    /// The head of a holder; nil if it is not counted.
    subscript(_ holder: HeadHolder) -> CountedHead? { headsByHolder[holder] }

    /// Adds a counted head.
    mutating func addHead(_ entry: CountedHead, for holder: HeadHolder) {
        headsByHolder[holder] = entry
        totalCountedBytes += entry.byteCount
        countedBytesByClient[entry.client, default: 0] += entry.byteCount
    }

    /// Removes and returns the head of a holder, if it is counted.
    mutating func removeHead(of holder: HeadHolder) -> CountedHead? {
        guard !headsByHolder.isEmpty, let entry = headsByHolder.removeValue(forKey: holder) else { return nil }
        totalCountedBytes -= entry.byteCount
        let left = countedBytes(ofClient: entry.client) - entry.byteCount
        countedBytesByClient[entry.client] = left > 0 ? left : nil
        return entry
    }
}
