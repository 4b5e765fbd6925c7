internal import DequeModule
internal import OrderedCollections

/// Stored results that wait for room in the windows of their receivers: claimed ones of handlers, in memory or on disk,
/// and flights that the cache can answer.
///
/// A handler with claims:
///
/// ```
///             claim           blockFirstHandler
///  (absent) ─────────→ ready ⇄─────────────────→ blocked, by each of its subscribers
///                       ↑ │    unblockHandler
///   nextHandlerAndClaim │ ↓ deferFirstUntilRead
///                      reading, until fewer results are read from disk
///  ready ── removeClaimsOfFirstHandler ──→ (absent)
/// ```
///
/// The lists may name requests, handlers, flights and sessions that have ended. The caller skips those.
struct StoredResults {
    /// Claimed requests of one handler, in the order of their delivery.
    private struct HandlerClaims {
        var claimedInterests: Deque<GenerationalHandle<Interest>>
        /// Whether it has a turn, or awaits a read.
        var isScheduledOrReading = false
    }

    /// Work that waits for room in the window of one client.
    private struct WindowWaiters {
        var waitingHandlers: OrderedSet<Handle<HandlerEntry>> = []
        var waitingFlights: Deque<FlightName> = []

        var isEmpty: Bool { waitingHandlers.isEmpty && waitingFlights.isEmpty }
    }

    private var claimsByHandler: [Handle<HandlerEntry>: HandlerClaims] = [:]
    /// Handlers whose subscribers may have room, in the order of their turns.
    private var readyHandlers: Deque<Handle<HandlerEntry>> = []
    /// Handlers that await a read, in the same order.
    private var handlersAwaitingRead: Deque<Handle<HandlerEntry>> = []
    private var waitersByClient: OrderedDictionary<GenerationalHandle<ClientSession>, WindowWaiters> = [:]
    /// Whether results were left to the next pass.
    var hasDeferredResults = false

    // MARK: Claims

    var hasClaims: Bool { !claimsByHandler.isEmpty }

    /// Number of claims of a handler, ended requests included.
    func claimCount(of handler: Handle<HandlerEntry>) -> Int { claimsByHandler[handler]?.claimedInterests.count ?? 0 }

    /// Replaces the claims of a handler.
    mutating func claim(_ requests: [GenerationalHandle<Interest>], of handler: Handle<HandlerEntry>) {
        claimsByHandler[handler, default: HandlerClaims(claimedInterests: [])].claimedInterests = Deque(requests)
        scheduleHandler(handler)
    }

    mutating func claim(_ request: GenerationalHandle<Interest>, of handler: Handle<HandlerEntry>) {
        claimsByHandler[handler, default: HandlerClaims(claimedInterests: [])].claimedInterests.append(request)
        scheduleHandler(handler)
    }

    func claimedInterests(of handler: Handle<HandlerEntry>) -> [GenerationalHandle<Interest>] {
        claimsByHandler[handler].map { Array($0.claimedInterests) } ?? []
    }

    /// The first handler whose turn it is, and its first claim; nil for the claim if it has none.
    ///
    /// - Parameter canRead: whether another result may be read from disk.
    mutating func nextHandlerAndClaim(
        canRead: Bool
    ) -> (handler: Handle<HandlerEntry>, claim: GenerationalHandle<Interest>?)? {
        if readyHandlers.isEmpty, canRead, let next = handlersAwaitingRead.popFirst() { readyHandlers.append(next) }
        return readyHandlers.first.map { ($0, claimsByHandler[$0]?.claimedInterests.first) }
    }

    /// Makes the first handler wait until fewer results are read.
    mutating func deferFirstUntilRead() {
        if let handler = readyHandlers.popFirst() { handlersAwaitingRead.append(handler) }
    }

    /// Removes the first claim of the first handler.
    mutating func removeFirstClaim() {
        guard let handler = readyHandlers.first else { return }
        _ = claimsByHandler[handler]?.claimedInterests.popFirst()
    }

    /// Removes all claims of the first handler.
    mutating func removeClaimsOfFirstHandler() {
        guard let handler = readyHandlers.popFirst() else { return }
        claimsByHandler[handler] = nil
    }

    /// Removes all claims of a handler that has been freed.
    mutating func removeClaims(ofFreed handler: Handle<HandlerEntry>) {
        guard let claimed = claimsByHandler.removeUnlessEmpty(forKey: handler), claimed.isScheduledOrReading else {
            return
        }
        // Its turn removes the rest.
        claimsByHandler[handler] = HandlerClaims(claimedInterests: [], isScheduledOrReading: true)
    }

    /// Makes the first handler wait until one of these clients has room.
    mutating func blockFirstHandler(by clients: [GenerationalHandle<ClientSession>]) {
        guard let handler = readyHandlers.popFirst() else { return }
        claimsByHandler[handler]?.isScheduledOrReading = false
        for client in clients { waitersByClient[client, default: WindowWaiters()].waitingHandlers.append(handler) }
    }

    private mutating func scheduleHandler(_ handler: Handle<HandlerEntry>) {
        guard claimsByHandler[handler]?.isScheduledOrReading == false else { return }
        claimsByHandler[handler]?.isScheduledOrReading = true
        readyHandlers.append(handler)
    }

    // MARK: Flights

    /// Makes a flight that the cache can answer wait until a client has room.
    mutating func blockFlight(_ flight: FlightName, by client: GenerationalHandle<ClientSession>) {
        waitersByClient[client, default: WindowWaiters()].waitingFlights.append(flight)
    }

    /// Number of flights that wait for room in the window of a client, ended ones included.
    func flightCount(blockedBy client: GenerationalHandle<ClientSession>) -> Int {
        waitersByClient[client]?.waitingFlights.count ?? 0
    }

    /// Flights that wait for room in the window of a client, ended ones included.
    func flights(blockedBy client: GenerationalHandle<ClientSession>) -> Deque<FlightName> {
        waitersByClient[client]?.waitingFlights ?? []
    }

    mutating func replaceFlights(_ flights: [FlightName], blockedBy client: GenerationalHandle<ClientSession>) {
        waitersByClient[client]?.waitingFlights = Deque(flights)
    }

    // MARK: Room

    /// Clients for which work waits.
    var blockedClients: [GenerationalHandle<ClientSession>] {
        waitersByClient.isEmpty ? [] : Array(waitersByClient.keys)
    }

    /// Makes the latest handler that waits for a client ready.
    ///
    /// - Returns: whether there was one.
    mutating func unblockHandler(of client: GenerationalHandle<ClientSession>) -> Bool {
        guard waitersByClient[client]?.waitingHandlers.isEmpty == false,
            let handler = waitersByClient[client]?.waitingHandlers.removeLast()
        else {
            return false
        }
        scheduleHandler(handler)
        return true
    }

    /// Removes the first flight that waits for a client; nil if there is none.
    mutating func unblockFlight(of client: GenerationalHandle<ClientSession>) -> FlightName? {
        waitersByClient[client]?.waitingFlights.popFirst()
    }

    /// Forgets the lists of a client that has ended, or for which nothing waits.
    mutating func removeWaiters(_ client: GenerationalHandle<ClientSession>, hasEnded: Bool) {
        if hasEnded || waitersByClient[client]?.isEmpty == true { waitersByClient[client] = nil }
    }

    // MARK: Checks

    /// - Returns: a sentence for each violated invariant.
    func checkInvariants() -> [String] {
        var faults: [String] = []
        let turns = readyHandlers + handlersAwaitingRead
        for (handler, claimed) in claimsByHandler where claimed.isScheduledOrReading != turns.contains(handler) {
            faults.append("1: handler \(handler) has claims and no turn")
        }
        if Set(turns).count != turns.count { faults.append("1: a handler has two turns") }
        return faults
    }

    /// Whether the claims of a handler wait for their turn, or for room in the window of one of these clients.
    func hasWaitingClaims(_ handler: Handle<HandlerEntry>, for clients: [GenerationalHandle<ClientSession>]) -> Bool {
        claimsByHandler[handler]?.isScheduledOrReading == true
            || clients.contains { waitersByClient[$0]?.waitingHandlers.contains(handler) == true }
    }
}
