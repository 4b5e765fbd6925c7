internal import EarshotHTTP
package import EarshotWire

/// Look-ups that need several tables.
///
/// Those of hot paths are inlined or mutating, because the compiler copies all records for a call of a non-mutating
/// method.
extension Records {
    // MARK: Requests

    /// The request that holds this ID; nil if the ID is free.
    @inline(__always)
    package func interestHoldingID(_ request: RequestID, of handler: Handle<HandlerEntry>) -> Handle<Interest>? {
        requests.interestHoldingID(request, of: handler, RequestBook.requestIDHash(request, of: handler))
    }

    /// Principal of the handler of a request.
    @inline(__always)
    package func principal(of interest: Handle<Interest>) -> Handle<Principal> {
        handlers[requests[interest].handler].principal
    }

    /// Maximum open requests of all clients now.
    @inline(__always)
    var maximumOpenRequests: Int { min(limits.maximumOpenRequests, maximumRequestsWhileMemoryIsShort) }

    /// Whether a request is on disk, or being written.
    func isDurable(_ interest: Handle<Interest>) -> Bool { durables.contains(interest) }

    /// Whether a request only waits for its removal: its handler was removed, or the session of its owner has ended.
    @inline(__always)
    package func isAwaitingRemoval(_ interest: Handle<Interest>) -> Bool {
        if !handlers[requests[interest].handler].isNamed { return true }
        guard !clients.endedSessions.isEmpty, let owner = requests[interest].owner else { return false }
        return clients[owner].hasEnded
    }

    /// The last of the redirects of an open request's flight.
    @inline(__always)
    package func lastRedirectedFlight(ofOpen interest: Handle<Interest>) -> Handle<Flight> {
        guard let flight = requests[interest].flight else {
            preconditionFailure("request \(interest) is \(requests[interest].phase) and has no flight")
        }
        return flights.endOfRedirectChain(of: flight)
    }

    /// The current attempt of a running flight.
    @inline(__always)
    package func currentAttempt(of flight: Handle<Flight>) -> AttemptID {
        AttemptID(
            broker: workerLimits.broker, flight: flights[flight].id, attempt: flights[flight].assignedAttemptCount)
    }

    /// Whether a flight reads its body from another node now.
    @inline(__always)
    func isReadingBodyFromNode(_ flight: Handle<Flight>) -> Bool {
        clusterState.map { $0.value.pulls[flight] != nil } ?? false
    }

    /// Principal of the oldest request of a flight; the administrator for one without requests.
    mutating func principalOfOldestRequest(of flight: Handle<Flight>) -> Handle<Principal> {
        flights.firstInterest(of: flight).map { principal(of: $0) } ?? PrincipalTable.administrator
    }

    /// The name of a flight in the book of claims.
    @inline(__always)
    func localFlightName(_ flight: Handle<Flight>) -> LocalFlight { LocalFlight(flights.name(of: flight).reference) }

    /// The claim of a flight in the cluster, even one that another node has overtaken; nil without one.
    @inline(__always)
    func clusterClaim(of flight: Handle<Flight>) -> ClusterBook.Claim? {
        clusterState.flatMap { $0.value.book.claims[localFlightName(flight)] }
    }

    /// Highest class of the interests whose owners have room in their windows, and of other nodes.
    mutating func highestPriority(of flight: Handle<Flight>) -> PriorityClass {
        var highest =
            flights[flight].isAwaitedByOtherNodes ? clusterClaim(of: flight)?.want.priority ?? .background : .background
        forEachInterest(of: flight) { records, interest in
            let isServed = records.requests[interest].owner.map { !records.clients[$0].deliveries.isClosed } ?? true
            if isServed { highest = max(highest, records.requests[interest].priority) }
        }
        return highest
    }

    /// Largest size that one of its interests allows; nil if one of them has no limit.
    mutating func largestAllowedBodyBytes(of flight: Handle<Flight>) -> Int? {
        guard !flights[flight].isRevalidation else { return nil }
        var largest: Int? = flights[flight].isAwaitedByOtherNodes ? clusterClaim(of: flight)?.maximumHostedBytes : 0
        guard largest != nil else { return nil }
        forEachInterest(of: flight) { records, interest in
            guard let known = largest, let rareOptions = records.requests[interest].rareOptions,
                let limit = records.requests[rareOptions].maximumBodyBytes
            else {
                largest = nil
                return
            }
            largest = max(known, limit)
        }
        return largest
    }

    /// Request fields for a flight's JOB.
    @inline(__always)
    func jobHeaderFields(of flight: Handle<Flight>) -> HeaderFields {
        guard let plan = cachePlans[flight] else { return flights[flight].headerFields }
        return plan.plannedRequest(from: flights[flight].request).fields
    }

    @inline(__always)
    func origin(of flight: Handle<Flight>) -> Handle<OriginEntry> {
        originGovernor.scopes[flights[flight].originScope].origin
    }

    @inline(__always)
    func pool(of flight: Handle<Flight>) -> Handle<WorkerPool> { originGovernor.origins[origin(of: flight)].workerPool }

    /// Calls `body` for each interest in a flight and in the flights redirected to it. O(interests).
    mutating func forEachInterest(of flight: Handle<Flight>, _ body: (inout Records, Handle<Interest>) -> Void) {
        // A shortcut without an array: most flights have one interest.
        if let only = flights.onlyInterest(of: flight) {
            body(&self, only)
            return
        }
        for interest in flights.interests(of: flight) { body(&self, interest) }
    }

    // MARK: Handlers and clients

    /// A handler in the namespace of a client's principal.
    @inline(__always)
    func handlerKey(_ id: HandlerID, of client: Handle<ClientSession>) -> HandlerKey {
        HandlerKey(clients[client].principal, id)
    }

    /// Clients that listen to a handler, each once.
    @inline(__always)
    package func subscribers(of handler: Handle<HandlerEntry>) -> [Handle<ClientSession>] {
        guard !clients.endedSessions.isEmpty || handlers.hasSubtreeSubscriptions else {
            return handlers[handler].subscribers
        }
        // A departed session may not have been unsubscribed from this handler yet.
        return clients.excludingEnded(handlers.subscribers(of: handler))
    }

    /// Whether a stored result may be delivered to a client now.
    @inline(__always)
    func hasRoomForStoredResult(_ client: Handle<ClientSession>) -> Bool {
        !clients[client].isCloseRequested
            && clients[client].deliveries.unsentCount + clients[client].cacheReservationCount
                < max(1, limits.maximumWaitingTerminals)
    }

    // MARK: Outcomes

    /// The outcome of a request that has one.
    @inline(__always)
    func outcome(of interest: Handle<Interest>) -> Handle<Outcome> {
        guard let number = requests[interest].outcome else {
            preconditionFailure("request \(interest) is \(requests[interest].phase) and has no outcome")
        }
        return number
    }

    /// Bytes that a request charges to its principal while its outcome is held.
    func byteWeightOfHeldOutcome(of interest: Handle<Interest>) -> DeliveryWindow.ByteWeight {
        guard let outcome = requests[interest].outcome, let response = outcomes[outcome].response else {
            return DeliveryWindow.ByteWeight()
        }
        return DeliveryWindow.ByteWeight(
            response, isWarm: requests[interest].usesWarmDelivery, memoryBodyBytes: limits.maximumInMemoryBodyBytes)
    }

    /// Whether the principal of a request may have this many durable bytes more. The administrator leaves the last
    /// quarter of the store to other users, if there are any.
    @inline(__always)
    func hasRoomForDurableBytes(_ bytes: Int, of interest: Handle<Interest>) -> Bool {
        quotaUse.hasRoomForDurableBytes(bytes, of: principal(of: interest), within: settings[.durableSize] ?? 0)
    }

    @inline(__always)
    func demandedBodyForm(of interest: Handle<Interest>) -> BodyDelivery {
        if let number = requests[interest].rareOptions { requests[number].demandedBodyForm } else { .auto }
    }

    /// Spool file that the terminal of a request names; nil for a body in its message, and without a body.
    @inline(__always)
    func fileNamedInTerminal(of interest: Handle<Interest>) -> String? {
        let outcome = outcome(of: interest)
        // Without a copy of the response.
        guard case .file(let file, spilledBody: nil)? = outcomes[outcome].response?.body,
            !requests[interest].usesWarmDelivery, demandedBodyForm(of: interest) != .inline
        else { return nil }
        return file
    }

    // MARK: Terminals

    /// Record of a terminal's request; nil if it was freed.
    @inline(__always)
    func interest(ofDue due: DueTerminal) -> Handle<Interest>? {
        switch due.kind {
        case .uncountedTerminal(let interest), .countedTerminal(let interest): interest
        case .compactFailure(let number): outcomes.compactFailures[number].interest
        case .withdrawn: nil
        }
    }

    /// Handler and ID of a terminal's request; nil if it was withdrawn.
    @inline(__always)
    func handlerAndRequestID(of due: DueTerminal) -> (Handle<HandlerEntry>, RequestID)? {
        switch due.kind {
        case .uncountedTerminal(let interest), .countedTerminal(let interest):
            (requests[interest].handler, requests[interest].request)
        case .compactFailure(let number):
            (outcomes.compactFailures[number].handler, outcomes.compactFailures[number].request)
        case .withdrawn: nil
        }
    }

    /// Whether a due terminal is one of these requests.
    @inline(__always)
    func isDueTerminal(_ due: DueTerminal, amongRemoved requests: RemovedRequests) -> Bool {
        guard let (handler, id) = handlerAndRequestID(of: due), requests.request == nil || id == requests.request else {
            return false
        }
        return requests.handlerPattern.matches(handlers[handler].id)
    }

    /// Spool file named in a terminal.
    @inline(__always)
    func fileNamedInTerminal(ofDue due: DueTerminal) -> String? {
        switch due.kind {
        case .uncountedTerminal(let interest), .countedTerminal(let interest): fileNamedInTerminal(of: interest)
        case .compactFailure, .withdrawn: nil
        }
    }

    /// Bytes of a terminal in the window. Constant while the entry is in the window.
    @inline(__always)
    func byteWeight(of due: DueTerminal) -> DeliveryWindow.ByteWeight {
        switch due.kind {
        case .uncountedTerminal(let interest), .countedTerminal(let interest):
            guard let response = outcomes[outcome(of: interest)].response else { return DeliveryWindow.ByteWeight() }
            return DeliveryWindow.ByteWeight(
                response, isWarm: requests[interest].usesWarmDelivery, memoryBodyBytes: limits.maximumInMemoryBodyBytes)
        case .compactFailure(let number):
            return DeliveryWindow.ByteWeight(failureTextBytes: outcomes.compactFailureURLs[number]?.utf8.count ?? 0)
        case .withdrawn: return DeliveryWindow.ByteWeight()
        }
    }

    /// Outcome that counts towards the bounds of each window in which it waits.
    @inline(__always)
    func countedOutcome(_ outcome: Handle<Outcome>) -> DeliveryWindow.CountedOutcome {
        DeliveryWindow.CountedOutcome(
            outcome: outcome, fieldBytes: outcomes[outcome].response?.headerFields.count ?? 0)
    }

    /// The outcome of a due terminal if it counts towards the bounds of the window; nil otherwise.
    @inline(__always)
    func countedOutcome(ofDue due: DueTerminal) -> DeliveryWindow.CountedOutcome? {
        switch due.kind {
        case .countedTerminal(let interest): countedOutcome(outcome(of: interest))
        case .compactFailure(let number): countedOutcome(outcomes.compactFailures[number].outcome)
        case .uncountedTerminal, .withdrawn: nil
        }
    }
}
