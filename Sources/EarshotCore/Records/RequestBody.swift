/// Body of a request: its key in the shell, which holds the bytes, its length, and part of its digest.
public struct RequestBody: Equatable, Sendable {
    /// Key of the body in the shell.
    public var id: BodyID
    /// Length in bytes, at least 1.
    public var byteCount: Int
    /// Part of a digest, which distinguishes it from other bodies.
    public var fingerprint: UInt64

    public init(id: BodyID, byteCount: Int, fingerprint: UInt64) {
        self.id = id
        self.byteCount = byteCount
        self.fingerprint = fingerprint
    }
}

/// Bodies of requests that flights will send, counted against three bounds: in total, per client, and per principal.
struct RequestBodies: Equatable {
    struct Entry: Equatable {
        let byteCount: Int
        /// Client that sent it.
        let client: ClientID
        let principal: Handle<Principal>
        /// Number of flights that hold it: that of its request, and those it was redirected to.
        var holders: Int
    }

    private var entries: [BodyID: Entry] = [:]
    /// Total number of bytes.
    private(set) var byteCount = 0
    private var byClient: [ClientID: Int] = [:]

    /// All held bodies.
    var all: some Collection<Entry> { entries.values }

    /// IDs of the held bodies.
    var ids: some Collection<BodyID> { entries.keys }

    func contains(_ id: BodyID) -> Bool { entries[id] != nil }

    /// Bytes of the bodies that a client sent.
    func bytes(of client: ClientID) -> Int { byClient[client] ?? 0 }

    /// Number of flights that hold a body.
    func holders(of id: BodyID) -> Int { entries[id]?.holders ?? 0 }

    /// Adds a body from `client`, without holders.
    ///
    /// - Precondition: the caller retains it for a flight next; otherwise it is never released.
    mutating func add(_ body: RequestBody, of client: ClientID, by principal: Handle<Principal>) {
        entries[body.id] = Entry(byteCount: body.byteCount, client: client, principal: principal, holders: 0)
        byteCount += body.byteCount
        byClient[client, default: 0] += body.byteCount
    }

    mutating func retain(_ id: BodyID) {
        entries[id]?.holders += 1
    }

    /// Releases a body for one flight.
    ///
    /// - Returns: the body if that was its last holder.
    mutating func release(_ id: BodyID) -> Entry? {
        guard var entry = entries[id] else { return nil }
        entry.holders -= 1
        entries[id] = entry.holders > 0 ? entry : nil
        guard entry.holders == 0 else { return nil }
        byteCount -= entry.byteCount
        let left = bytes(of: entry.client) - entry.byteCount
        byClient[entry.client] = left > 0 ? left : nil
        return entry
    }
}
