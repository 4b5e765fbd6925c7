/// Body of a request: its key in the shell, which holds the bytes, its length, and part of its digest.
public struct RequestBody: Equatable, Sendable {
    /// Key of the body in the shell.
    public var bodyID: BodyID
    /// Length in bytes, at least 1.
    public var byteCount: Int
    /// Part of a digest, which distinguishes it from other bodies.
    public var digestPrefix: UInt64

    public init(bodyID: BodyID, byteCount: Int, digestPrefix: UInt64) {
        self.bodyID = bodyID
        self.byteCount = byteCount
        self.digestPrefix = digestPrefix
    }
}

/// Bodies of requests that flights will send, counted against three bounds: in total, per client, and per principal.
struct RequestBodies: Equatable {
    struct HeldBody: Equatable {
        let byteCount: Int
        /// Client that sent it.
        let client: ClientID
        let principal: Handle<Principal>
        /// Number of flights that hold it: that of its request, and those it was redirected to.
        var holdingFlightCount: Int
    }

    private var heldBodiesByID: [BodyID: HeldBody] = [:]
    /// Total number of bytes.
    private(set) var totalByteCount = 0
    private var byteCountByClient: [ClientID: Int] = [:]

    /// All held bodies.
    var allBodies: some Collection<HeldBody> { heldBodiesByID.values }

    /// IDs of the held bodies.
    var bodyIDs: some Collection<BodyID> { heldBodiesByID.keys }

    func contains(_ id: BodyID) -> Bool { heldBodiesByID[id] != nil }

    /// Bytes of the bodies that a client sent.
    func byteCount(of client: ClientID) -> Int { byteCountByClient[client] ?? 0 }

    /// Number of flights that hold a body.
    func holdingFlightCount(of id: BodyID) -> Int { heldBodiesByID[id]?.holdingFlightCount ?? 0 }

    /// Adds a body from `client`, without holders.
    ///
    /// - Precondition: the caller retains it for a flight next; otherwise it is never released.
    mutating func addBody(_ body: RequestBody, of client: ClientID, by principal: Handle<Principal>) {
        heldBodiesByID[body.bodyID] = HeldBody(
            byteCount: body.byteCount, client: client, principal: principal, holdingFlightCount: 0)
        totalByteCount += body.byteCount
        byteCountByClient[client, default: 0] += body.byteCount
    }

    mutating func retainBody(_ id: BodyID) {
        heldBodiesByID[id]?.holdingFlightCount += 1
    }

    /// Releases a body for one flight.
    ///
    /// - Returns: the body if that was its last holder.
    mutating func releaseBody(_ id: BodyID) -> HeldBody? {
        guard var entry = heldBodiesByID[id] else { return nil }
        entry.holdingFlightCount -= 1
        heldBodiesByID[id] = entry.holdingFlightCount > 0 ? entry : nil
        guard entry.holdingFlightCount == 0 else { return nil }
        totalByteCount -= entry.byteCount
        let left = byteCount(of: entry.client) - entry.byteCount
        byteCountByClient[entry.client] = left > 0 ? left : nil
        return entry
    }
}
