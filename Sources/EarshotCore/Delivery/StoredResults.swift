internal import DequeModule
internal import OrderedCollections

/// Stored results that wait for room in the windows of their receivers: claimed ones of handlers, in memory or on disk,
/// and flights that the cache can answer.
///
/// A handler with claims:
///
/// ```
///             claim             block
///  (absent) ─────────→ ready ⇄────────────→ blocked, by each of its subscribers
///                       ↑ │   unblock
///              takeTurn │ ↓ awaitRead
///                      reading, until fewer results are read from disk
///  ready ── dropClaims ──→ (absent)
/// ```
///
/// The lists may name requests, handlers, flights and sessions that have ended. The caller skips those.
struct StoredResults {
    /// Claimed requests of one handler, in the order of their delivery.
    private struct Claims {
        var requests: Deque<GenerationalHandle<Interest>>
        /// Whether it has a turn, or awaits a read.
        var isReady = false
    }

    /// Work that waits for room in the window of one client.
    private struct Blocked {
        var handlers: OrderedSet<Handle<HandlerEntry>> = []
        var flights: Deque<FlightName> = []

        var isEmpty: Bool { handlers.isEmpty && flights.isEmpty }
    }

    private var claims: [Handle<HandlerEntry>: Claims] = [:]
    /// Handlers whose subscribers may have room, in the order of their turns.
    private var readyHandlers: Deque<Handle<HandlerEntry>> = []
    /// Handlers that await a read, in the same order.
    private var reading: Deque<Handle<HandlerEntry>> = []
    private var blocked: OrderedDictionary<GenerationalHandle<ClientSession>, Blocked> = [:]
    /// Whether results were left to the next pass.
    var isBehind = false

    // MARK: Claims

    var hasClaims: Bool { !claims.isEmpty }

    /// Number of claims of a handler, ended requests included.
    func claimCount(of handler: Handle<HandlerEntry>) -> Int { claims[handler]?.requests.count ?? 0 }

    /// Replaces the claims of a handler.
    mutating func claim(_ requests: [GenerationalHandle<Interest>], of handler: Handle<HandlerEntry>) {
        claims[handler, default: Claims(requests: [])].requests = Deque(requests)
        makeReady(handler)
    }

    mutating func claim(_ request: GenerationalHandle<Interest>, of handler: Handle<HandlerEntry>) {
        claims[handler, default: Claims(requests: [])].requests.append(request)
        makeReady(handler)
    }

    func claimed(of handler: Handle<HandlerEntry>) -> [GenerationalHandle<Interest>] {
        claims[handler].map { Array($0.requests) } ?? []
    }

    /// The first handler whose turn it is, and its first claim; nil for the claim if it has none.
    ///
    /// - Parameter canRead: whether another result may be read from disk.
    mutating func takeTurn(canRead: Bool) -> (handler: Handle<HandlerEntry>, claim: GenerationalHandle<Interest>?)? {
        if readyHandlers.isEmpty, canRead, let next = reading.popFirst() { readyHandlers.append(next) }
        return readyHandlers.first.map { ($0, claims[$0]?.requests.first) }
    }

    /// Makes the first handler wait until fewer results are read.
    mutating func awaitRead() {
        if let handler = readyHandlers.popFirst() { reading.append(handler) }
    }

    /// Removes the first claim of the first handler.
    mutating func dropFirst() {
        guard let handler = readyHandlers.first else { return }
        _ = claims[handler]?.requests.popFirst()
    }

    /// Removes all claims of the first handler.
    mutating func dropClaims() {
        guard let handler = readyHandlers.popFirst() else { return }
        claims[handler] = nil
    }

    /// Removes all claims of a handler that has been freed.
    mutating func handlerFreed(_ handler: Handle<HandlerEntry>) {
        guard let claimed = claims.drop(handler), claimed.isReady else { return }
        // Its turn removes the rest.
        claims[handler] = Claims(requests: [], isReady: true)
    }

    /// Makes the first handler wait until one of these clients has room.
    mutating func block(by clients: [GenerationalHandle<ClientSession>]) {
        guard let handler = readyHandlers.popFirst() else { return }
        claims[handler]?.isReady = false
        for client in clients { blocked[client, default: Blocked()].handlers.append(handler) }
    }

    private mutating func makeReady(_ handler: Handle<HandlerEntry>) {
        guard claims[handler]?.isReady == false else { return }
        claims[handler]?.isReady = true
        readyHandlers.append(handler)
    }

    // MARK: Flights

    /// Makes a flight that the cache can answer wait until a client has room.
    mutating func block(_ flight: FlightName, by client: GenerationalHandle<ClientSession>) {
        blocked[client, default: Blocked()].flights.append(flight)
    }

    /// Number of flights that wait for room in the window of a client, ended ones included.
    func flightCount(blockedBy client: GenerationalHandle<ClientSession>) -> Int { blocked[client]?.flights.count ?? 0 }

    /// Flights that wait for room in the window of a client, ended ones included.
    func flights(blockedBy client: GenerationalHandle<ClientSession>) -> Deque<FlightName> {
        blocked[client]?.flights ?? []
    }

    mutating func replaceFlights(_ flights: [FlightName], blockedBy client: GenerationalHandle<ClientSession>) {
        blocked[client]?.flights = Deque(flights)
    }

    // MARK: Room

    /// Clients for which work waits.
    var blockedClients: [GenerationalHandle<ClientSession>] { blocked.isEmpty ? [] : Array(blocked.keys) }

    /// Makes the latest handler that waits for a client ready.
    ///
    /// - Returns: whether there was one.
    mutating func unblockHandler(of client: GenerationalHandle<ClientSession>) -> Bool {
        guard blocked[client]?.handlers.isEmpty == false, let handler = blocked[client]?.handlers.removeLast() else {
            return false
        }
        makeReady(handler)
        return true
    }

    /// Removes the first flight that waits for a client; nil if there is none.
    mutating func unblockFlight(of client: GenerationalHandle<ClientSession>) -> FlightName? {
        blocked[client]?.flights.popFirst()
    }

    /// Forgets the lists of a client that has ended, or for which nothing waits.
    mutating func forget(_ client: GenerationalHandle<ClientSession>, hasEnded: Bool) {
        if hasEnded || blocked[client]?.isEmpty == true { blocked[client] = nil }
    }

    // MARK: Checks

    /// - Returns: a sentence for each violated invariant.
    func checkInvariants() -> [String] {
        var faults: [String] = []
        let turns = readyHandlers + reading
        for (handler, claimed) in claims where claimed.isReady != turns.contains(handler) {
            faults.append("1: handler \(handler) has claims and no turn")
        }
        if Set(turns).count != turns.count { faults.append("1: a handler has two turns") }
        return faults
    }

    /// Whether the claims of a handler wait for their turn, or for room in the window of one of these clients.
    func isWaiting(_ handler: Handle<HandlerEntry>, for clients: [GenerationalHandle<ClientSession>]) -> Bool {
        claims[handler]?.isReady == true || clients.contains { blocked[$0]?.handlers.contains(handler) == true }
    }
}
