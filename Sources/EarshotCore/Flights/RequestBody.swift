/// The body of a request as the shell holds it.
public struct RequestBody: Equatable, Sendable {
    /// By which the shell finds it.
    public var id: BodyID
    /// Its length, over 0.
    public var byteCount: Int
    /// Tells it from other bodies: some bits of a digest.
    public var fingerprint: UInt64

    public init(id: BodyID, byteCount: Int, fingerprint: UInt64) {
        self.id = id
        self.byteCount = byteCount
        self.fingerprint = fingerprint
    }
}

/// Bodies of requests that flights will send, counted against bounds: in all, and for who brought them.
struct RequestBodies: Equatable {
    private struct Entry: Equatable {
        let byteCount: Int
        let client: ClientID
        /// Flights that have it: the one of its request, and those that this was redirected to.
        var holders: Int
    }

    private var entries: [BodyID: Entry] = [:]
    /// Bytes of all.
    private(set) var byteCount = 0
    private var byClient: [ClientID: Int] = [:]

    /// The bodies that are held.
    var ids: some Collection<BodyID> { entries.keys }

    func contains(_ id: BodyID) -> Bool { entries[id] != nil }

    /// Bytes that a client's requests hold.
    func bytes(of client: ClientID) -> Int { byClient[client] ?? 0 }

    /// How many flights have it.
    func holders(of id: BodyID) -> Int { entries[id]?.holders ?? 0 }

    /// A request of `client` brings a body; flights have to retain it.
    mutating func add(_ body: RequestBody, of client: ClientID) {
        entries[body.id] = Entry(byteCount: body.byteCount, client: client, holders: 0)
        byteCount += body.byteCount
        byClient[client, default: 0] += body.byteCount
    }

    mutating func retain(_ id: BodyID) {
        entries[id]?.holders += 1
    }

    /// A flight needs it no more.
    ///
    /// - Returns: whether no other does.
    mutating func release(_ id: BodyID) -> Bool {
        guard var entry = entries[id] else { return false }
        entry.holders -= 1
        entries[id] = entry.holders > 0 ? entry : nil
        guard entry.holders == 0 else { return false }
        byteCount -= entry.byteCount
        let left = bytes(of: entry.client) - entry.byteCount
        byClient[entry.client] = left > 0 ? left : nil
        return true
    }
}
