internal import EarshotHTTP
internal import EarshotWire
internal import OrderedCollections

/// Flights by handle and by key, the requests that wait for them, and the redirects between them.
///
/// `Flight.Phase` documents the phases of a flight; only `enterPhase` changes them. The table knows requests and
/// workers by handle alone, and only keeps outcomes. A key names at most one flight. A flight has one handle and one ID
/// from its insertion to its removal.
package struct FlightTable {
    private var flights = Slab<Flight>()
    /// The same flights by their keys, which they hold themselves.
    private var handlesByKey = HandleTable<Flight>()
    private var lastID: UInt64 = 0
    package private(set) var phaseCounts = FlightCounts()
    /// Number of flights whose cache mode is not `default`.
    private(set) var nonDefaultCacheModeCount = 0
    private var redirectsAndFailuresByFlight: [Handle<Flight>: Flight.RedirectAndFailureState] = [:]
    /// Ends of the back-offs of flights in this phase.
    package private(set) var backOffEnds: [Handle<Flight>: MonotonicTime] = [:]
    /// Deferred cancellations of running or ended flights without requests.
    private(set) var deferredCancellations: [Handle<Flight>: DeferredCancellation] = [:]
    /// Flights whose requests end in slices, in the order of their turns, with one reference to the outcome of each.
    private var flightsEndingInSlices: OrderedDictionary<Handle<Flight>, Handle<Outcome>> = [:]
    private var interestChains = LinkedLists<Interest>()
    private var parentChains = LinkedLists<Flight>()

    // MARK: Queries

    /// Facts about a flight change in place; its phase, key, requests and redirects only through the other methods.
    package subscript(flight: Handle<Flight>) -> Flight {
        _read { yield flights[flight] }
        _modify { yield &flights[flight] }
    }

    /// Redirects and failures of a flight. A change adds them if needed.
    subscript(redirectsAndFailuresOf flight: Handle<Flight>) -> Flight.RedirectAndFailureState {
        @inline(__always) get {
            flights[flight].hasRedirectsOrFailures
                ? redirectsAndFailuresByFlight[flight, default: Flight.RedirectAndFailureState()]
                : Flight.RedirectAndFailureState()
        }
        _modify {
            flights[flight].hasRedirectsOrFailures = true
            yield &redirectsAndFailuresByFlight[flight, default: Flight.RedirectAndFailureState()]
        }
    }

    var count: Int { flights.count }

    /// Handles of all flights. O(flights).
    var indices: [Handle<Flight>] { flights.indices }

    func contains(_ flight: Handle<Flight>) -> Bool { flights.contains(flight) }

    /// ID of the next new flight.
    var nextID: UInt64 { lastID + 1 }

    /// The flight with this name; nil if the flight has ended.
    @inline(__always)
    func handle(of name: FlightName) -> Handle<Flight>? { flights.resolve(name.reference) }

    package func name(of flight: Handle<Flight>) -> FlightName { FlightName(reference: flights.reference(to: flight)) }

    /// The flight with exactly this key; nil if there is none.
    @inline(__always)
    func handle(of key: FlightKey) -> Handle<Flight>? {
        handlesByKey.findRecord(withHash: key.hash) { flights[$0].hasKey(key) }
    }

    /// The flight that is or will be fetched for this one: the end of its chain of redirects.
    @inline(__always)
    func endOfRedirectChain(of flight: Handle<Flight>) -> Handle<Flight> {
        var flight = flight
        while case .following(let child) = flights[flight].phase { flight = child }
        return flight
    }

    /// The only request of a flight, counted with redirects to it; nil if there are none or several.
    @inline(__always)
    func onlyInterest(of flight: Handle<Flight>) -> Handle<Interest>? {
        hasParents(flight) ? nil : flights[flight].interests.onlyMember
    }

    /// Whether flights were redirected to this one and wait for it.
    @inline(__always)
    func hasParents(_ flight: Handle<Flight>) -> Bool { !self[redirectsAndFailuresOf: flight].parentFlights.isEmpty }

    /// Whether a request waits for a flight, directly or through a redirect.
    @inline(__always)
    func isAwaitedByRequest(_ flight: Handle<Flight>) -> Bool {
        !flights[flight].interests.isEmpty || hasParents(flight)
    }

    /// Whether a request, the cache or another node needs the result of a flight.
    @inline(__always)
    func isResultNeeded(_ flight: Handle<Flight>) -> Bool {
        isAwaitedByRequest(flight) || flights[flight].isRevalidation || flights[flight].isAwaitedByOtherNodes
    }

    /// Requests that wait for a flight, then those of the flights redirected to it. O(requests).
    package func interests(of flight: Handle<Flight>) -> [Handle<Interest>] {
        var found = interestChains.members(of: flights[flight].interests)
        for parent in parents(of: flight) { found += interests(of: parent) }
        return found
    }

    /// Requests that wait for this flight, without those of flights redirected to it. O(requests).
    func directInterests(of flight: Handle<Flight>) -> [Handle<Interest>] {
        interestChains.members(of: flights[flight].interests)
    }

    /// The first request of a flight or of the flights redirected to it; nil if only the cache has an interest in it.
    package func firstInterest(of flight: Handle<Flight>) -> Handle<Interest>? {
        var flight = flight
        while flights[flight].interests.isEmpty {
            guard let parent = self[redirectsAndFailuresOf: flight].parentFlights.first else { return nil }
            flight = parent
        }
        return flights[flight].interests.first
    }

    /// Flights redirected to this one.
    func parents(of flight: Handle<Flight>) -> [Handle<Flight>] {
        hasParents(flight) ? parentChains.members(of: self[redirectsAndFailuresOf: flight].parentFlights) : []
    }

    /// Requests whose redirects led to a flight that no other request can join. Needed to detect a loop; loops of
    /// shared flights are detected when they meet. At most as many as a flight may have redirects.
    func ancestors(of flight: Handle<Flight>) -> [HTTPRequest] {
        var found: [HTTPRequest] = []
        var next = flight
        while let parent = self[redirectsAndFailuresOf: next].parentFlights.first {
            found.append(flights[parent].request)
            next = parent
        }
        return found
    }

    /// Flights that exceed the hop limit because `flight` was redirected: that flight itself, or ancestors that wait
    /// for it. Their own ancestors are not listed. Flights beyond the limit leave their chain at once, so chains stay
    /// short enough for recursion.
    func flightsExceedingHopLimit(_ flight: Handle<Flight>, hops: Int) -> [Handle<Flight>] {
        var distance = 0
        var next = flight
        while case .following(let child) = flights[next].phase {
            distance += 1
            next = child
        }
        var found = [flight]
        while distance <= hops, !found.isEmpty {
            distance += 1
            found = found.flatMap { parents(of: $0) }
        }
        return found
    }

    // MARK: Life

    /// Inserts a new flight in phase `queued`, without interests. Its key must name no other flight.
    mutating func begin(
        _ request: HTTPRequest, redirect: RedirectMode, partition: String?, _ key: FlightKey,
        scope: Handle<OriginScope>, servesSingleRequest: Bool, body: BodyID?
    ) -> Handle<Flight> {
        lastID += 1
        let flight = flights.insert(
            Flight(
                id: lastID, request: request, redirect: redirect, partition: partition, key: key, scope: scope,
                servesSingleRequest: servesSingleRequest, body: body))
        handlesByKey.insert(flight, key.hash)
        phaseCounts[.queued] += 1
        if key.cacheMode != .default { nonDefaultCacheModeCount += 1 }
        return flight
    }

    /// Changes the phase of a flight and counts it. All changes go through here.
    mutating func enterPhase(_ phase: Flight.Phase, _ flight: Handle<Flight>) {
        let last = flights[flight].phase
        flights[flight].transition(to: phase)
        phaseCounts[last] -= 1
        phaseCounts[phase] += 1
        if case .backingOff = last { backOffEnds[flight] = nil }
    }

    /// Enters `backingOff` until a time.
    mutating func backOff(_ flight: Handle<Flight>, until end: MonotonicTime) {
        enterPhase(.backingOff, flight)
        backOffEnds[flight] = end
    }

    /// Frees a flight and its key. It must have no requests, redirects and deferred cancellation.
    mutating func remove(_ flight: Handle<Flight>) {
        precondition(
            !isAwaitedByRequest(flight) && deferredCancellations[flight] == nil,
            "flight \(flights[flight].id) is still needed")
        handlesByKey.remove(flight, flights[flight].keyHash)
        backOffEnds.removeUnlessEmpty(forKey: flight)
        if flights[flight].hasRedirectsOrFailures { redirectsAndFailuresByFlight[flight] = nil }
        if flights[flight].cacheMode != .default { nonDefaultCacheModeCount -= 1 }
        phaseCounts[flights[flight].phase] -= 1
        flights.destroy(flight)
    }

    /// Sets the stricter mode of a request for a flight found by `joinableDefaultModeFlight`. Its redirects inherit it.
    mutating func adoptStricterMode(_ flight: Handle<Flight>, of key: FlightKey) {
        precondition(handle(of: key) == nil, "the key of flight \(flights[flight].id) is taken")
        flights[flight].adoptCacheMode(of: key)
        nonDefaultCacheModeCount += 1
    }

    /// Moves a flight, and those redirected to it, into another partition, where no request can join them.
    mutating func isolateFlight(_ flight: Handle<Flight>, in partition: String) {
        handlesByKey.remove(flight, flights[flight].keyHash)
        flights[flight].isolate(inPartition: partition)
        handlesByKey.insert(flight, flights[flight].keyHash)
        for parent in parents(of: flight) { isolateFlight(parent, in: partition) }
    }

    // MARK: Requests and redirects

    /// Adds a request that waits for a flight.
    mutating func attachInterest(_ interest: Handle<Interest>, to flight: Handle<Flight>) {
        interestChains.append(interest, to: &flights[flight].interests)
    }

    /// Removes a request that waits for a flight.
    mutating func detachInterest(_ interest: Handle<Interest>, from flight: Handle<Flight>) {
        interestChains.remove(interest, from: &flights[flight].interests)
    }

    /// Makes a flight wait for the flight of its redirect's target, which must not lead back to it.
    mutating func followRedirect(_ child: Handle<Flight>, by flight: Handle<Flight>) {
        precondition(endOfRedirectChain(of: child) != flight, "flight \(flights[flight].id) would follow itself")
        enterPhase(.following(child: child), flight)
        flights[child].hasRedirectsOrFailures = true
        parentChains.append(
            flight, to: &redirectsAndFailuresByFlight[child, default: Flight.RedirectAndFailureState()].parentFlights)
    }

    /// Removes a flight from those that wait for the one that it follows. The caller ends it next.
    mutating func stopFollowing(_ child: Handle<Flight>, by flight: Handle<Flight>) {
        parentChains.remove(
            flight, from: &redirectsAndFailuresByFlight[child, default: Flight.RedirectAndFailureState()].parentFlights)
    }

    /// Detaches the flights redirected to a flight, none of which has requests.
    ///
    /// - Returns: those flights. The caller next removes them in this order, and then `flight`.
    mutating func detachParents(of flight: Handle<Flight>) -> [Handle<Flight>] {
        var redirected: [Handle<Flight>] = []
        for parent in parents(of: flight) {
            stopFollowing(flight, by: parent)
            redirected += detachParents(of: parent)
            redirected.append(parent)
        }
        return redirected
    }

    // MARK: Deferred cancellation

    /// Defers the cancellation of a flight without requests. An outcome that is kept already stays.
    mutating func deferCancellation(of flight: Handle<Flight>, by message: MessagePosition?) {
        precondition(!isAwaitedByRequest(flight), "flight \(flights[flight].id) has requests")
        deferredCancellations[flight] = DeferredCancellation(
            message: message, outcome: deferredCancellations[flight]?.outcome)
    }

    /// Keeps the outcome of a flight whose cancellation is deferred, and enters `ended`.
    ///
    /// - Returns: false if the flight has requests, or no deferred cancellation.
    mutating func retainOutcomeIfDeferred(_ outcome: Handle<Outcome>, of flight: Handle<Flight>) -> Bool {
        guard !deferredCancellations.isEmpty, !isAwaitedByRequest(flight), deferredCancellations[flight] != nil else {
            return false
        }
        deferredCancellations[flight]?.outcome = outcome
        enterPhase(.ended, flight)
        return true
    }

    /// Ends a deferral, because the flight was rejoined.
    ///
    /// - Returns: the deferral; nil if there was none.
    mutating func endDeferral(of flight: Handle<Flight>) -> DeferredCancellation? {
        deferredCancellations.removeUnlessEmpty(forKey: flight)
    }

    // MARK: Ends in slices

    /// The flight whose requests end next: `flight`, or one that was redirected to it if it has no requests left.
    @inline(__always)
    func nextFlightToEnd(upTo flight: Handle<Flight>) -> Handle<Flight> {
        var next = flight
        while flights[next].interests.isEmpty, let parent = self[redirectsAndFailuresOf: next].parentFlights.first {
            next = parent
        }
        return next
    }

    /// Keeps the outcome with which the other requests of a flight end in later passes. The flight enters `ended`, and
    /// no request can join it or a flight that was redirected to it. The flights take turns.
    ///
    /// - Returns: false if that has begun already.
    mutating func endInSlices(_ flight: Handle<Flight>, with outcome: Handle<Outcome>) -> Bool {
        guard flightsEndingInSlices.removeValue(forKey: flight) == nil else {
            flightsEndingInSlices[flight] = outcome
            return false
        }
        flightsEndingInSlices[flight] = outcome
        enterPhase(.ended, flight)
        isolateFlight(flight, in: "ended")
        return true
    }

    /// The flight whose requests have the next turn to end, and its outcome; nil if there is none.
    var nextFlightEndingInSlices: (flight: Handle<Flight>, outcome: Handle<Outcome>)? {
        flightsEndingInSlices.elements.first.map { ($0.key, $0.value) }
    }

    /// Takes the outcome of a flight that ends, if one is kept, and ends the deferral of its cancellation.
    @inline(__always)
    mutating func takeRetainedOutcome(of flight: Handle<Flight>) -> Handle<Outcome>? {
        let kept = deferredCancellations.removeUnlessEmpty(forKey: flight)?.outcome
        return flightsEndingInSlices.isEmpty ? kept : flightsEndingInSlices.removeValue(forKey: flight) ?? kept
    }

    // MARK: Memory

    func hasSpareCapacity(beyond: Int) -> Bool { flights.hasSpareCapacity(beyond: beyond) }

    /// Releases spare capacity of tables, and the entries of requests from `bound` on, which must not exist.
    mutating func releaseSpareCapacity(beyond bound: Int, retaining least: Int) {
        flights.releaseSpareCapacity(retaining: least)
        handlesByKey.releaseSpareCapacity(retaining: least)
        backOffEnds.releaseSpareCapacity(retaining: least)
        redirectsAndFailuresByFlight.releaseSpareCapacity(retaining: least)
        interestChains.releaseSpareCapacity(beyond: bound, retaining: least)
        parentChains.releaseSpareCapacity(beyond: flights.bound, retaining: least)
    }
}

extension FlightTable {
    /// Returns a sentence for each violated invariant. O(flights and requests).
    func checkInvariants() -> [String] {
        var faults: [String] = []
        func check(_ holds: Bool, _ fault: @autoclosure () -> String) { if !holds { faults.append(fault()) } }
        check(handlesByKey.count == flights.count, "3: \(flights.count) flights, \(handlesByKey.count) keys")
        var counts = FlightCounts()
        for number in flights.indices {
            let flight = flights[number]
            counts[flight.phase] += 1
            check(self.handle(of: flight.key) == number, "3: the key of flight \(flight.id) names another flight")
            check(flight.id <= lastID, "3: flight \(flight.id) has a future name")
            check(
                (backOffEnds[number] != nil) == (flight.phase == .backingOff),
                "4: flight \(flight.id) has a wrong back-off")
            let kept = deferredCancellations[number]?.outcome != nil
            check(
                flight.phase != .ended || kept || flightsEndingInSlices[number] != nil,
                "4: ended flight \(flight.id) has no kept outcome")
            let parents = parents(of: number)
            check(
                parents.allSatisfy { flights[$0].phase == .following(child: number) },
                "4: a parent of flight \(flight.id) follows another one")
            let members = interestChains.members(of: flight.interests)
            let parentCount = Int(self[redirectsAndFailuresOf: number].parentFlights.count)
            check(
                members.count == Int(flight.interests.count) && parents.count == parentCount,
                "4: a chain of flight \(flight.id) is broken")
            if flight.servesSingleRequest {
                let sharing = members.count + parents.count
                check(sharing <= 1, "3: \(sharing) share flight \(flight.id), which is to be alone")
            }
            check(
                flight.hasRedirectsOrFailures == (redirectsAndFailuresByFlight[number] != nil),
                "12: flight \(flight.id) has no redirects")
            if case .following(let child) = flight.phase {
                check(
                    flights.contains(child) && self.parents(of: child).contains(number),
                    "4: flight \(flight.id) is no parent of the flight it follows")
            }
        }
        check(counts == self.phaseCounts, "10: flights are counted \(self.phaseCounts), not \(counts)")
        let moded = flights.indices.count { flights[$0].cacheMode != .default }
        check(moded == nonDefaultCacheModeCount, "10: \(moded) flights have a mode, not \(nonDefaultCacheModeCount)")
        let keys = [
            Array(backOffEnds.keys), Array(deferredCancellations.keys), Array(redirectsAndFailuresByFlight.keys),
        ]
        check(
            keys.joined().allSatisfy { flights.contains($0) },
            "12: a back-off, a deferred cancellation or a record of redirects has no flight")
        return faults
    }
}

/// Number of flights in each phase, counted incrementally.
package struct FlightCounts: Equatable {
    package private(set) var lookingUp = 0
    package private(set) var queued = 0
    package private(set) var claiming = 0
    package private(set) var running = 0
    package private(set) var backingOff = 0
    package private(set) var following = 0
    private(set) var ended = 0

    subscript(phase: Flight.Phase) -> Int {
        get {
            switch phase {
            case .lookingUp: lookingUp
            case .queued: queued
            case .claiming: claiming
            case .running: running
            case .backingOff: backingOff
            case .following: following
            case .ended: ended
            }
        }
        set {
            switch phase {
            case .lookingUp: lookingUp = newValue
            case .queued: queued = newValue
            case .claiming: claiming = newValue
            case .running: running = newValue
            case .backingOff: backingOff = newValue
            case .following: following = newValue
            case .ended: ended = newValue
            }
        }
    }
}
