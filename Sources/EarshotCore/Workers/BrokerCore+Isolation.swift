internal import DequeModule
internal import EarshotHTTP
internal import EarshotWire

/// Isolation: a flight that lost two workers runs again alone.
///
/// A worker's death has one culprit among its flights, or none if it was killed from outside. The first death of a
/// flight's worker has no consequence: the flight runs again at once. After the second death the flight is a
/// *suspect*. Suspects leave the fair queue. They run one by one in an empty worker, the pool's *quarantine*, while
/// other workers do ordinary work. A suspect whose worker is alive after the isolation is cleared, and the next one
/// starts beside it. The isolated flight is *accused* of its worker's death. It runs next, and in an empty worker: if
/// that dies too, the flight is poisonous.
///
/// ```
/// queued → suspect → isolated → cleared (PONG after the isolation) → its end
///             ↑          │         │
///             └──────────┴─────────┴── its worker dies
/// ```
extension BrokerCore {
    // MARK: Deaths

    /// Returns the attempt to accuse of the death of a worker: the isolated one, or the only one, if its flight lost a
    /// worker before.
    func accused(in worker: Int32) -> AttemptID? {
        if let isolation = workers[worker].isolation { return isolation.attempt }
        guard workers[worker].leases.count == 1, workers[worker].foreign.isEmpty,
            let (attempt, lease) = workers[worker].leasesInOrder.first, lease.flight >= 0,
            flights[lease.flight].workerDeaths > 0
        else { return nil }
        return attempt
    }

    /// Counts a worker's death against one of its flights.
    ///
    /// - Returns: whether the flight is poisonous.
    mutating func countDeath(against flight: Int32, isAccused: Bool, isAlone: Bool) -> Bool {
        let isGuilty = isAccused && isAlone && flights[flight].isAccused
        flights[flight].workerDeaths += 1
        flights[flight].isAccused = isAccused
        return isGuilty || flights[flight].workerDeaths >= limits.workerDeathsPerFlight
    }

    /// Queues a flight whose worker is gone: first in its lane, or as a suspect.
    mutating func requeue(_ flight: Int32, isDeath: Bool, now: Tick) {
        let name = FlightName(number: flight, id: flights[flight].id)
        if isDeath, flights[flight].workerDeaths >= limits.deathsOfSuspect {
            flights[flight].isSuspect = true
            let end = now.advanced(byMilliseconds: limits.suspicionMilliseconds)
            setTimer(end, .suspicion(name, deaths: flights[flight].workerDeaths))
        }
        enqueue(flight: flight, first: true)
        if !flights[flight].isSuspect { pools[pool(of: flight)].returned.append(name) }
    }

    /// Adds a suspect to the list of its pool. An accused one is first: it needs an empty worker, and the next one is.
    mutating func enqueue(suspect flight: Int32) {
        let name = FlightName(number: flight, id: flights[flight].id)
        let pool = pool(of: flight)
        if flights[flight].isAccused {
            pools[pool].suspects.prepend(name)
        } else {
            pools[pool].suspects.append(name)
        }
    }

    // MARK: Assignment

    /// Starts the next suspect of a pool, and ends its quarantine after the last one. A pool without workers has its
    /// suspects moved to its queue, which fails in portions.
    mutating func serveSuspects(of pool: Int32, now: Tick) {
        guard !pools[pool].isClosed else {
            releaseSuspects(of: pool)
            return
        }
        dropSettled(of: pool)
        guard pools.contains(pool) else { return }
        guard !pools[pool].suspects.isEmpty else {
            leaveQuarantine(of: pool)
            return
        }
        if let place = placeForSuspects(in: pool) { startSuspect(in: pool, at: place, now: now) }
    }

    /// Drops names of flights that ended or are no suspects from the head of the list.
    private mutating func dropSettled(of pool: Int32) {
        while pools.contains(pool), let name = pools[pool].suspects.first {
            if let flight = flight(name) { settlePurges(of: flight) }
            guard pools.contains(pool), suspect(name) == nil else { return }
            pools[pool].suspects.removeFirst()
        }
    }

    /// Returns the flight of a name while it is a suspect in the list of its pool.
    private func suspect(_ name: FlightName) -> Int32? {
        guard let flight = flight(name), flights[flight].phase == .queued, flights[flight].isSuspect else { return nil }
        return flight
    }

    /// O(suspects), if no origin of theirs has room.
    private mutating func startSuspect(in pool: Int32, at place: (worker: Int32, isEmpty: Bool), now: Tick) {
        for _ in 0..<pools[pool].suspects.count {
            guard let name = pools[pool].suspects.popFirst() else { return }
            if let flight = flight(name) { settlePurges(of: flight) }
            guard pools.contains(pool) else { return }
            guard let flight = suspect(name) else { continue }
            let scope = flights[flight].scope
            let mayStart = place.isEmpty || !flights[flight].isAccused
            if let until = governor.refusal(in: scope) {
                failCooling(flight, until: until, now: now)
                guard pools.contains(pool) else { return }
            } else if mayStart, governor.admits(scope, .high) {
                enterQuarantine(of: pool, place.worker)
                start(flight, at: place.worker, now: now)
                let end = now.advanced(byMilliseconds: limits.isolation(deaths: flights[flight].workerDeaths))
                workers[place.worker].isolation = WorkerSession.Isolation(attempt: attempt(of: flight), end: end)
                setTimer(end, .isolation(workers[place.worker].id))
                return
            } else {
                pools[pool].suspects.append(name)
            }
        }
    }

    /// Returns the pool's quarantine, or an empty worker; nil if there is neither, or the quarantine isolates a suspect:
    /// the other workers are for other work. O(workers).
    private func placeForSuspects(in pool: Int32) -> (worker: Int32, isEmpty: Bool)? {
        var place: (Int32, Bool)?
        if let worker = quarantine(of: pool) {
            guard workers[worker].isolation == nil else { return nil }
            if workers[worker].phase == .ready, workers[worker].unusedSlots > 0 {
                place = (worker, workers[worker].isEmpty)
                if workers[worker].isEmpty { return place }
            }
        }
        let empty = workers.indices.first { worker in
            workers[worker].pools.contains(pool) && workers[worker].freeSlots > 0 && workers[worker].isEmpty
        }
        return empty.map { ($0, true) } ?? place
    }

    private func quarantine(of pool: Int32) -> Int32? { pools[pool].quarantine.flatMap { workerNumbers[$0] } }

    private mutating func enterQuarantine(of pool: Int32, _ worker: Int32) {
        leaveQuarantine(of: pool)
        pools[pool].quarantine = workers[worker].id
        workers[worker].isQuarantine = true
    }

    /// Lets the worker of a pool's quarantine take other work again, once nothing is isolated there.
    private mutating func leaveQuarantine(of pool: Int32) {
        if let worker = quarantine(of: pool) {
            guard workers[worker].isolation == nil else { return }
            workers[worker].isQuarantine = false
        }
        pools[pool].quarantine = nil
    }

    // MARK: Time

    /// Asks the worker of an isolated suspect for a sign of life when the time of the isolation is over. The answer
    /// clears the suspect.
    mutating func isolationEnded(of id: WorkerID, now: Tick) {
        guard let worker = workerNumbers[id], let isolation = workers[worker].isolation, isolation.end <= now else {
            return
        }
        guard let asked = isolation.askedAt else {
            if workers[worker].askedAt == nil {
                workers[worker].askedAt = now
                actions.append(.sendWorker(id, .ping))
            }
            workers[worker].isolation?.askedAt = now
            setTimer(now.advanced(byMilliseconds: limits.silenceMilliseconds), .isolation(id))
            return
        }
        guard asked.advanced(byMilliseconds: limits.silenceMilliseconds) <= now else { return }
        // Another message than a PONG is a sign of life too, if none was on its way when the worker was asked.
        if workers[worker].lastHeard > asked {
            endIsolation(at: worker)
        } else {
            end(silent: worker, now: now)
        }
    }

    /// Clears the suspect of a worker that answered a PING after the isolation.
    mutating func ponged(_ worker: Int32, now: Tick) {
        if workers[worker].isolation?.askedAt != nil { endIsolation(at: worker) }
    }

    /// Clears the isolated suspect of a worker.
    mutating func endIsolation(at worker: Int32) {
        guard let isolation = workers[worker].isolation else { return }
        workers[worker].isolation = nil
        guard let flight = workers[worker].leases[isolation.attempt]?.flight, flight >= 0 else { return }
        flights[flight].isSuspect = false
    }

    /// Lets a suspect that found no empty worker in time run with other flights.
    mutating func suspicionEnded(_ name: FlightName, deaths: UInt8) {
        guard let flight = flight(name), flights[flight].isSuspect, flights[flight].workerDeaths == deaths else {
            return
        }
        flights[flight].isSuspect = false
        if flights[flight].phase == .queued { enqueue(flight: flight, first: true) }
    }

    private mutating func releaseSuspects(of pool: Int32) {
        let names = pools[pool].suspects
        pools[pool].suspects = []
        for name in names {
            if let flight = flight(name) { settlePurges(of: flight) }
            guard let flight = suspect(name) else { continue }
            flights[flight].isSuspect = false
            enqueue(flight: flight, first: true)
        }
    }
}
