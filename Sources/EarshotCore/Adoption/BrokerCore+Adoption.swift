internal import EarshotHTTP
internal import EarshotWire

/// Adoption: flights continue the attempts that workers run for an earlier broker, which crashed or was replaced.
///
/// A JOB names its flight's identity, which its worker reports to the next broker. Until a request with the same
/// identity arrives, the attempt is an *orphan*: a lease without a flight, which counts against its worker's slots and
/// its origin's limit. A flight that is about to wait in the queue adopts the orphan with its identity, or takes the
/// orphan's response. A response older than one of the flight's requests is used only as far as the cache's rules
/// allow. The adoption period ends some time after the start; the broker then cancels or drops the remaining orphans.
extension BrokerCore {
    // MARK: Events

    /// Starts the adoption period, which lasts `CoreLimits.adoptionMilliseconds`.
    public mutating func beginAdoption(now: Tick) {
        adoption.open()
        workerLimits.adopts = true
        setTimer(now.advanced(byMilliseconds: limits.adoptionMilliseconds), .adoption)
    }

    /// Handles HOLDS, a worker's report of an attempt of an earlier broker. Cancels the attempt if no flight may adopt
    /// it, and if it belongs to a user's own worker.
    mutating func attemptHeld(_ held: HeldAttempt, by worker: Handle<WorkerSession>, now: Tick) {
        // A draining broker leaves the decision to the next broker.
        guard workers.foreignTold(held.attempt, by: worker), !isDraining else { return }
        guard !workers[worker].isOwn, let identity = held.flight, adoption.accepts(identity),
            let url = try? FetchURL(held.url), url.isHTTP
        else {
            actions.append(.worker(.send(workers[worker].id, .cancel(held.attempt))))
            return
        }
        let seeker = adoption.seeker(of: identity).flatMap { liveFlight($0) }
        let adopter = seeker.flatMap { self.identity(of: $0) == identity ? $0 : nil }
        if let adopter, flights[adopter].isRunning {
            // The report came after the end of this flight's wait: this broker has started its own attempt.
            actions.append(.worker(.send(workers[worker].id, .cancel(held.attempt))))
            return
        }
        take(held, identity, from: url, at: worker, now: now)
        guard let adopter else { return }
        switch flights[adopter].phase {
        case .queued, .backingOff: _ = adopts(adopter)
        // A flight in `asking` waits for the cache's answer, and one in `following` has its response.
        case .asking, .claiming, .running, .following, .ended: break
        }
    }

    /// Ends the adoption period: cancels or drops all orphans.
    mutating func adoptionEnded() {
        // A draining broker leaves its orphans to the next broker.
        guard !isDraining else { return }
        workerLimits.adopts = false
        for orphan in adoption.close() { end(orphan) }
        for worker in workers.indices {
            for attempt in workers.stopAwaitingHolds(of: worker) {
                actions.append(.worker(.send(workers[worker].id, .cancel(attempt))))
            }
        }
        actions.append(.spool(.sweep))
    }

    // MARK: Orphans

    /// Takes a lease for an attempt that a worker reported, and makes it an orphan.
    private mutating func take(
        _ held: HeldAttempt, _ identity: FlightIdentity, from url: FetchURL, at worker: Handle<WorkerSession>, now: Tick
    ) {
        let start = now.advanced(byMilliseconds: -held.elapsedMilliseconds)
        let origin = originNumber(of: url, in: WorkerPool.web)
        setTimer(governor.takeTransfer(at: origin, startedAt: start, now: now), of: origin)
        // The spacing may be over although its timer, which is stale from here on, has not fired.
        queue.originOpened(origin)
        var lease = WorkerLease(
            origin: origin, isHigh: false, use: .orphan(identity), startedAt: start, maxBytes: held.maxBytes)
        lease.heldAt = now
        lease.receivedBytes = held.receivedBytes
        lease.totalBytes = held.totalBytes
        workers.take(held.attempt, lease, at: worker)
        adoption.hold(held.attempt, at: worker, as: identity)
        orphanTaken(at: origin, now: now)
        partTold(held.part, of: held.attempt, at: worker)
        _ = countGrowth(of: held.attempt, at: worker)
    }

    /// Keeps the response of an orphan until a flight takes it. Drops a response with a status of 400 or more, so that
    /// its URL is fetched again.
    mutating func orphanEnded(_ identity: FlightIdentity, _ response: Outcome.Response) {
        let isUsable = response.status < 400 && (response.file == nil || hasRoomInSpool())
        if !adoption.ended(identity, with: isUsable ? response : nil) { drop(response) }
    }

    /// Cancels the attempt of an orphan removed from the book, or drops its response.
    mutating func end(_ orphan: AdoptionBook.Orphan) {
        switch orphan {
        case .running(let worker, let attempt):
            workers.cancel(attempt, at: worker)
            ledger.flights.cancelled += 1
            actions.append(.worker(.send(workers[worker].id, .cancel(attempt))))
        case .responded(let response): drop(response)
        }
    }

    // MARK: Flights

    /// Digest of the flight's key and of all fields sent to the server; nil for a flight that no other request can
    /// join.
    @inline(__always)
    func identity(of flight: Handle<Flight>) -> FlightIdentity? {
        guard let identify = facilities.identify, !flights[flight].isAlone else { return nil }
        return identify(identityBytes(of: flight))
    }

    /// Bytes of the flight's key and of all fields sent to the server.
    @inline(__always)
    func identityBytes(of flight: Handle<Flight>) -> [UInt8] {
        let url = flights[flight].url.description
        let variant = flights[flight].variant
        var bytes: [UInt8] = []
        bytes.reserveCapacity(url.utf8.count + variant.utf8.count + 32)
        Self.append(flights[flight].mode.rawValue, to: &bytes)
        Self.append(url, to: &bytes)
        Self.append(variant, to: &bytes)
        bytes += jobFields(of: flight).bytes
        return bytes
    }

    /// Appends a text preceded by its length, so that different lists of texts never have the same bytes.
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
    mutating func adopts(_ flight: Handle<Flight>) -> Bool {
        guard adoption.isOpen, let identity = identity(of: flight) else { return false }
        guard let (worker, attempt) = adoption.seek(identity, for: flights.name(of: flight)) else { return false }
        forEachInterest(of: flight) { core, interest in core.queue.remove(interest) }
        delete(parts.take(flight))
        if cluster != nil { clusterStarts(flight, now: clock) }
        governor.probeStarted(flights[flight].scope, flights[flight].id)
        flights.enter(.running(worker: worker), flight)
        flights[flight].attempts += 1
        ledger.flights.adopted += 1
        workers.adopt(attempt, for: flight, at: worker)
        rateAdopted(attempt, now: clock)
        // A new flight has no interest yet. Its first request raises the limit when it joins.
        if flights[flight].isWanted {
            raise(flight, at: worker, to: sizeLimit(of: flight))
        }
        if let lease = workers[worker].leases[attempt], lease.receivedBytes > 0 {
            forEachInterest(of: flight) { core, interest in core.tellProgress(of: interest, lease, now: core.clock) }
        }
        return true
    }

    /// Concludes queued flights with the responses of orphans that ended before.
    mutating func useOrphanedResponses(now: Tick) {
        while let name = adoption.nextMatch() {
            guard let flight = liveFlight(name), flights[flight].phase == .queued,
                let identity = identity(of: flight),
                var response = adoption.takeResponse(identity)
            else { continue }
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

    /// Whether all requests of a flight were made before `moment`. A response that ended earlier does not answer them.
    private mutating func wasAwaited(_ flight: Handle<Flight>, at moment: Tick) -> Bool {
        var isOlder = flights[flight].isAwaited && !flights[flight].isRevalidation
        forEachInterest(of: flight) { core, interest in
            if core.interests[interest].askedAt > moment { isOlder = false }
        }
        return isOlder
    }

    /// Whether the response of an adopted attempt ended before its worker said HOLDS, and before all requests of the
    /// flight were made. A later response is shared with all of them like that of any other running transfer.
    mutating func isTooOld(_ response: Outcome.Response, of lease: WorkerLease, for flight: Handle<Flight>) -> Bool {
        guard let heldAt = lease.heldAt, response.endedAt <= heldAt else { return false }
        return !wasAwaited(flight, at: response.endedAt)
    }
}
