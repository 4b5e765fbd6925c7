internal import EarshotHTTP
internal import EarshotWire

/// Adoption: what workers fetch for a broker that is gone, flights of this one go on with.
///
/// A JOB says its flight's identity, and the worker says it to the next broker. Until somebody asks for the same the
/// attempt is an *orphan*: a lease without a flight, which takes its slot and its origin's place. A flight that is
/// about to wait in the queue takes the orphan of its identity, or the answer that the orphan has become. An answer
/// that ended before a request of that flight was made is only used as the cache's rules allow. All of this is for a
/// while after the start; then what nobody asked for is stopped and dropped.
extension BrokerCore {
    // MARK: Events

    /// Takes over what workers hold of earlier brokers, from now on and for `CoreLimits.adoptionMilliseconds`.
    public mutating func beginAdoption(now: Tick) {
        isAdopting = true
        workerLimits.adopts = true
        setTimer(now.advanced(byMilliseconds: limits.adoptionMilliseconds), .adoption)
    }

    /// A worker tells of an attempt of an earlier broker. What users' own workers make is not gone on with: it is made
    /// anew.
    mutating func attemptHeld(_ held: HeldAttempt, by worker: Int32, now: Tick) {
        workers[worker].untold.remove(held.attempt)
        // What it runs while this broker drains is the next one's to judge.
        guard workers[worker].foreign.contains(held.attempt), !isDraining else { return }
        guard isAdopting, !isOwn(worker), let identity = held.flight, orphans[identity] == nil,
            let url = try? FetchURL(held.url), url.isHTTP
        else {
            actions.append(.sendWorker(workers[worker].id, .cancel(held.attempt)))
            return
        }
        if let name = adopters[identity], let flight = flight(name) { settlePurges(of: flight) }
        let adopter = adopters[identity].flatMap { flight($0) }.flatMap { self.identity(of: $0) == identity ? $0 : nil }
        if let adopter, flights[adopter].isRunning {
            // It was not awaited long enough.
            actions.append(.sendWorker(workers[worker].id, .cancel(held.attempt)))
            return
        }
        take(held, identity, from: url, at: worker, now: now)
        guard let adopter else { return }
        switch flights[adopter].phase {
        case .queued, .backingOff: _ = adopts(adopter)
        // What the cache says decides; and what was redirected has its answer.
        case .asking, .running, .following, .ended: break
        }
    }

    /// The time is over: what nobody asked for ends.
    mutating func adoptionEnded() {
        // A broker that ends soon leaves them to the next one.
        guard !isDraining else { return }
        isAdopting = false
        workerLimits.adopts = false
        adopters = [:]
        answered = []
        for identity in orphans.keys.sorted(by: { $0.description < $1.description }) { giveUp(identity) }
        for worker in workers.indices {
            workers[worker].untold = []
            for attempt in workers[worker].foreign.sorted(by: { $0.description < $1.description }) {
                actions.append(.sendWorker(workers[worker].id, .cancel(attempt)))
            }
        }
        actions.append(.sweepSpool)
    }

    // MARK: Orphans

    /// Makes a lease of what a worker runs.
    private mutating func take(
        _ held: HeldAttempt, _ identity: FlightIdentity, from url: FetchURL, at worker: Int32, now: Tick
    ) {
        workers[worker].foreign.remove(held.attempt)
        let start = now.advanced(byMilliseconds: -held.elapsedMilliseconds)
        let origin = originNumber(of: url)
        setTimer(governor.takeTransfer(at: origin, startedAt: start, now: now), of: origin)
        // The spacing may have ended without its timer, which is stale from now on.
        queue.originOpened(origin)
        var lease = WorkerSession.Lease(
            origin: origin, isHigh: false, flight: -1, startedAt: start, maxBytes: held.maxBytes)
        lease.orphan = identity
        lease.heldAt = now
        lease.receivedBytes = held.receivedBytes
        lease.totalBytes = held.totalBytes
        workers[worker].leases.insert(lease, of: held.attempt)
        workers[worker].lower += 1
        workers[worker].lowerCeiling()
        orphans[identity] = .running(worker: worker, held.attempt)
        partTold(held.part, of: held.attempt, at: worker)
        _ = countGrowth(of: held.attempt, at: worker)
    }

    /// Keeps an answer for whoever asks, within bounds.
    mutating func keep(_ response: Outcome.Response, for identity: FlightIdentity) {
        let bytes = response.body == nil ? 0 : response.length
        // An error was nobody's: who asks for it begins anew.
        guard response.status < 400, bytes <= limits.orphanBytes - orphanBytes,
            response.file == nil || hasRoomInSpool()
        else {
            orphans[identity] = nil
            drop(response)
            return
        }
        orphanBytes += bytes
        orphans[identity] = .answered(response)
    }

    /// Stops an attempt, or drops an answer, that nobody asked for.
    mutating func giveUp(_ identity: FlightIdentity) {
        switch orphans.removeValue(forKey: identity) {
        case .running(let worker, let attempt):
            workers[worker].leases[attempt]?.orphan = nil
            workers[worker].cancelling += 1
            ledger.flights.cancelled += 1
            actions.append(.sendWorker(workers[worker].id, .cancel(attempt)))
        case .answered(let response):
            orphanBytes -= response.body == nil ? 0 : response.length
            drop(response)
        case nil: break
        }
    }

    // MARK: Flights

    /// What tells a flight from all others, with all that decides who may share it and what the server is asked; nil
    /// for one that is for one request alone.
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

    /// Appends text behind its length, so that no text can pass for the end of another.
    private static func append(_ text: String, to bytes: inout [UInt8]) {
        let utf8 = text.utf8
        let span = utf8.span
        bytes.append(contentsOf: String(span.count).utf8)
        bytes.append(addingCapacity: span.count + 1) { output in
            output.append(UInt8(ascii: " "))
            for index in span.indices { output.append(span[index]) }
        }
    }

    /// A flight is about to wait for a worker: it goes on with what one fetches for an earlier broker, if there is
    /// that.
    /// - Returns: whether it runs now.
    mutating func adopts(_ flight: Int32) -> Bool {
        guard isAdopting, let identity = identity(of: flight) else { return false }
        let name = FlightName(number: flight, id: flights[flight].id)
        if adopters.count < limits.adopters || adopters[identity] != nil { adopters[identity] = name }
        switch orphans[identity] {
        case .running(let worker, let attempt):
            adopt(attempt, at: worker, for: flight)
            orphans[identity] = nil
            return true
        case .answered: answered.append(name)
        case nil: break
        }
        return false
    }

    private mutating func adopt(_ attempt: AttemptID, at worker: Int32, for flight: Int32) {
        forEachInterest(of: flight) { core, interest in core.queue.remove(interest) }
        delete(parts.take(flight))
        pauses.drop(flight)
        governor.probeStarted(flights[flight].scope, flights[flight].id)
        enter(.running(worker: worker), flight)
        flights[flight].attempts += 1
        ledger.flights.adopted += 1
        adopted[flight] = attempt
        workers[worker].leases[attempt]?.orphan = nil
        workers[worker].leases[attempt]?.flight = flight
        // Who asks first is not in it yet, and has it raised then.
        if flights[flight].isAwaited || flights[flight].isRevalidation {
            raise(flight, at: worker, to: sizeLimit(of: flight))
        }
        guard let lease = workers[worker].leases[attempt], lease.receivedBytes > 0 else { return }
        forEachInterest(of: flight) { core, interest in core.tellProgress(of: interest, lease, now: core.clock) }
    }

    /// Gives flights the answers that came before anybody asked.
    mutating func useAnswers(now: Tick) {
        while let name = answered.popLast() {
            if let flight = flight(name) { settlePurges(of: flight) }
            guard let flight = flight(name), flights[flight].phase == .queued, let identity = identity(of: flight),
                case .answered(var response)? = orphans[identity]
            else { continue }
            orphans[identity] = nil
            orphanBytes -= response.body == nil ? 0 : response.length
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

    /// Whether all requests of a flight had been made at a moment. An answer that came before is no answer to them.
    private mutating func wasAwaited(_ flight: Int32, at moment: Tick) -> Bool {
        var isOlder = flights[flight].isAwaited && !flights[flight].isRevalidation
        forEachInterest(of: flight) { core, interest in
            if core.interests[interest].askedAt > moment { isOlder = false }
        }
        return isOlder
    }

    /// Whether the answer of an adopted attempt ended before its worker said HOLDS, and before all its flight's requests
    /// were made. One that ends later is shared with them as any running transfer is.
    mutating func isTooOld(_ response: Outcome.Response, of lease: WorkerSession.Lease, for flight: Int32) -> Bool {
        guard let heldAt = lease.heldAt, response.endedAt <= heldAt else { return false }
        return !wasAwaited(flight, at: response.endedAt)
    }
}
