internal import EarshotHTTP
internal import EarshotWire

/// Adoption: flights continue the attempts that workers run for an earlier broker.
///
/// A JOB names its flight's identity, which its worker repeats to the next broker. Until a request for the same comes,
/// the attempt is an *orphan*: a lease without a flight, which counts against its worker's slots and its origin's limit.
/// A flight that is about to wait in the queue adopts the orphan with its identity, or takes the orphan's response. A
/// response older than one of the flight's requests is only used as the cache's rules allow. Some time after the start
/// the broker cancels or drops the remaining orphans.
extension BrokerCore {
    // MARK: Events

    /// Accepts attempts of earlier brokers from now on and for `CoreLimits.adoptionMilliseconds`.
    public mutating func beginAdoption(now: Tick) {
        adoption.open()
        workerLimits.adopts = true
        setTimer(now.advanced(byMilliseconds: limits.adoptionMilliseconds), .adoption)
    }

    /// A worker reports an attempt of an earlier broker. Attempts of users' own workers are cancelled.
    mutating func attemptHeld(_ held: HeldAttempt, by worker: Int32, now: Tick) {
        // The next broker decides about attempts reported to a draining one.
        guard workers.foreignTold(held.attempt, by: worker), !isDraining else { return }
        guard !workers[worker].isOwn, let identity = held.flight, adoption.accepts(identity),
            let url = try? FetchURL(held.url), url.isHTTP
        else {
            actions.append(.sendWorker(workers[worker].id, .cancel(held.attempt)))
            return
        }
        if let name = adoption.seeker(of: identity), let flight = flight(name) { settlePurges(of: flight) }
        let seeker = adoption.seeker(of: identity).flatMap { flight($0) }
        let adopter = seeker.flatMap { self.identity(of: $0) == identity ? $0 : nil }
        if let adopter, flights[adopter].isRunning {
            // Its wait was too short: this broker has started an attempt of its own.
            actions.append(.sendWorker(workers[worker].id, .cancel(held.attempt)))
            return
        }
        take(held, identity, from: url, at: worker, now: now)
        guard let adopter else { return }
        switch flights[adopter].phase {
        case .queued, .backingOff: _ = adopts(adopter)
        // The cache decides about an asking flight, and a redirected one has its response.
        case .asking, .running, .following, .ended: break
        }
    }

    /// The time for adoption is over: cancels and drops all orphans.
    mutating func adoptionEnded() {
        // A broker that ends soon leaves them to the next one.
        guard !isDraining else { return }
        workerLimits.adopts = false
        for orphan in adoption.close() { end(orphan) }
        for worker in workers.indices {
            for attempt in workers.stopAwaitingHolds(of: worker) {
                actions.append(.sendWorker(workers[worker].id, .cancel(attempt)))
            }
        }
        actions.append(.sweepSpool)
    }

    // MARK: Orphans

    /// Makes an attempt that a worker reported a lease and an orphan.
    private mutating func take(
        _ held: HeldAttempt, _ identity: FlightIdentity, from url: FetchURL, at worker: Int32, now: Tick
    ) {
        let start = now.advanced(byMilliseconds: -held.elapsedMilliseconds)
        let origin = originNumber(of: url)
        setTimer(governor.takeTransfer(at: origin, startedAt: start, now: now), of: origin)
        // The spacing may have ended without its timer, which is stale from now on.
        queue.originOpened(origin)
        var lease = WorkerLease(
            origin: origin, isHigh: false, use: .orphan(identity), startedAt: start, maxBytes: held.maxBytes)
        lease.heldAt = now
        lease.receivedBytes = held.receivedBytes
        lease.totalBytes = held.totalBytes
        workers.take(held.attempt, lease, at: worker)
        adoption.hold(held.attempt, at: worker, as: identity)
        partTold(held.part, of: held.attempt, at: worker)
        _ = countGrowth(of: held.attempt, at: worker)
    }

    /// Keeps the response of an orphan for the flight that takes it. An error page is fetched again instead.
    mutating func orphanEnded(_ identity: FlightIdentity, _ response: Outcome.Response) {
        let isUsable = response.status < 400 && (response.file == nil || hasRoomInSpool())
        if !adoption.ended(identity, with: isUsable ? response : nil) { drop(response) }
    }

    /// Cancels the attempt of an orphan that was given up, or drops its response.
    mutating func end(_ orphan: AdoptionBook.Orphan) {
        switch orphan {
        case .running(let worker, let attempt):
            workers.cancel(attempt, at: worker)
            ledger.flights.cancelled += 1
            actions.append(.sendWorker(workers[worker].id, .cancel(attempt)))
        case .responded(let response): drop(response)
        }
    }

    // MARK: Flights

    /// Digest of the flight's key and of all fields sent to the server; nil for a flight of one request alone.
    @inline(__always)
    func identity(of flight: Int32) -> FlightIdentity? {
        guard let identify, !flights[flight].isAlone else { return nil }
        let url = flights[flight].url.description
        let variant = flights[flight].variant
        var bytes: [UInt8] = []
        bytes.reserveCapacity(url.utf8.count + variant.utf8.count + 32)
        Self.append(flights[flight].mode.rawValue, to: &bytes)
        Self.append(url, to: &bytes)
        Self.append(variant, to: &bytes)
        bytes += jobFields(of: flight).bytes
        return identify(bytes)
    }

    /// Appends text after its length, so that no two lists of texts have the same bytes.
    private static func append(_ text: String, to bytes: inout [UInt8]) {
        let utf8 = text.utf8
        let span = utf8.span
        bytes.append(contentsOf: String(span.count).utf8)
        bytes.append(addingCapacity: span.count + 1) { output in
            output.append(UInt8(ascii: " "))
            for index in span.indices { output.append(span[index]) }
        }
    }

    /// Lets a flight that is about to wait for a worker adopt the orphan with its identity.
    ///
    /// - Returns: whether the flight runs now.
    mutating func adopts(_ flight: Int32) -> Bool {
        guard adoption.isOpen, let identity = identity(of: flight) else { return false }
        let name = FlightName(number: flight, id: flights[flight].id)
        guard let (worker, attempt) = adoption.seek(identity, for: name) else { return false }
        forEachInterest(of: flight) { core, interest in core.queue.remove(interest) }
        delete(parts.take(flight))
        pauses.drop(flight)
        governor.probeStarted(flights[flight].scope, flights[flight].id)
        enter(.running(worker: worker), flight)
        flights[flight].attempts += 1
        ledger.flights.adopted += 1
        workers.adopt(attempt, for: flight, at: worker)
        // The first request is not in a new flight yet: it raises the limit when it joins.
        if flights[flight].isAwaited || flights[flight].isRevalidation {
            raise(flight, at: worker, to: sizeLimit(of: flight))
        }
        if let lease = workers[worker].leases[attempt], lease.receivedBytes > 0 {
            forEachInterest(of: flight) { core, interest in core.tellProgress(of: interest, lease, now: core.clock) }
        }
        return true
    }

    /// Gives flights the responses of orphans that ended before.
    mutating func useOrphanedResponses(now: Tick) {
        while let name = adoption.nextMatch() {
            if let flight = flight(name) { settlePurges(of: flight) }
            guard let flight = flight(name), flights[flight].phase == .queued, let identity = identity(of: flight),
                var response = adoption.takeResponse(identity)
            else { continue }
            guard isAsWished(response, for: flight) else {
                drop(response)
                continue
            }
            response.url = flights[flight].url.description
            forEachInterest(of: flight) { core, interest in core.queue.remove(interest) }
            guard wasAwaited(flight, at: response.endedAt) else {
                useAsStored(response, for: flight)
                continue
            }
            flights[flight].attempts += 1
            ledger.flights.adopted += 1
            conclude(flight, response, now: now)
        }
    }

    /// Whether all requests of a flight were made by then. An earlier response does not answer them.
    private mutating func wasAwaited(_ flight: Int32, at moment: Tick) -> Bool {
        var isOlder = flights[flight].isAwaited && !flights[flight].isRevalidation
        forEachInterest(of: flight) { core, interest in
            if core.interests[interest].askedAt > moment { isOlder = false }
        }
        return isOlder
    }

    /// Whether the response of an adopted attempt ended before its worker said HOLDS, and before all requests of its
    /// flight were made. A later response is shared with them like that of any running transfer.
    mutating func isTooOld(_ response: Outcome.Response, of lease: WorkerLease, for flight: Int32) -> Bool {
        guard let heldAt = lease.heldAt, response.endedAt <= heldAt else { return false }
        return !wasAwaited(flight, at: response.endedAt)
    }
}
