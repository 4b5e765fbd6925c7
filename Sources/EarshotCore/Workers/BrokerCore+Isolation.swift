internal import DequeModule
internal import EarshotHTTP
internal import EarshotWire

/// Isolation: a flight that lost two workers runs again alone.
///
/// A worker's death has one culprit among its flights, or none if it was killed from outside. The first death of a
/// flight's worker has no consequence: the flight is queued again at once. After the second death the flight is a
/// *suspect*. Suspects leave the fair queue. They run one by one in an empty worker, the pool's *quarantine*, while the
/// other workers serve the queue. A suspect whose worker is alive after the isolation is *cleared*, and the next one
/// starts beside it. If the worker dies during the isolation, the isolated flight is *accused*. It runs next, and in an
/// empty worker. If that one dies too, the flight is *poisonous* and fails.
///
/// ```
/// queued → suspect → isolated → cleared (PONG after the isolation) → its end
///             ↑          │         │
///             └──────────┴─────────┴── its worker dies
/// ```
extension BrokerCore {
    // MARK: Deaths

    /// Counts a worker's death against one of its flights. Accuses the isolated flight, or the only one if it lost a
    /// worker before.
    ///
    /// - Returns: whether the flight is poisonous.
    mutating func countDeath(
        against flight: Handle<Flight>, _ attempt: AttemptID, in gone: WorkerFleet.Departure
    ) -> Bool {
        let isAccused = gone.isolated.map { $0 == attempt } ?? (gone.wasAlone && flights[flight].workerDeaths > 0)
        let isGuilty = isAccused && gone.wasAlone && flights[flight].isAccused
        flights[flight].workerDeaths += 1
        flights[flight].isAccused = isAccused
        return isGuilty || flights[flight].workerDeaths >= limits.workerDeathsPerFlight
    }

    /// Queues a flight that lost its worker: first in its lane, or as a suspect.
    mutating func requeue(_ flight: Handle<Flight>, isDeath: Bool, now: Tick) {
        let name = flights.name(of: flight)
        if isDeath, flights[flight].workerDeaths >= limits.deathsOfSuspect {
            flights[flight].isSuspect = true
            let end = now.advanced(byMilliseconds: limits.suspicionMilliseconds)
            setTimer(end, .suspicion(name, deaths: flights[flight].workerDeaths))
        }
        enqueue(flight: flight, first: true)
        if !flights[flight].isSuspect { pools.returned(name, to: pool(of: flight)) }
    }

    /// Adds a suspect to the list of its pool. An accused one goes first, since it needs an empty worker.
    mutating func enqueue(suspect flight: Handle<Flight>) {
        let name = flights.name(of: flight)
        pools.add(suspect: name, first: flights[flight].isAccused, to: pool(of: flight))
    }

    // MARK: Assignment

    /// Starts the next suspect of a pool, and ends the quarantine after the last one. Moves the suspects of a closed
    /// pool to the queue, which fails a bounded number per pass.
    mutating func serveSuspects(of pool: Handle<WorkerPool>, now: Tick) {
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
        let place = workers.placeForSuspect(of: pool, quarantine: quarantine(of: pool))
        if let place { startSuspect(in: pool, at: place, now: now) }
    }

    /// Drops names of ended flights and of flights that are no longer suspects from the head of the list.
    private mutating func dropSettled(of pool: Handle<WorkerPool>) {
        while pools.contains(pool), let name = pools[pool].suspects.first {
            let suspect = settledSuspect(name)
            guard pools.contains(pool), suspect == nil else { return }
            _ = pools.nextSuspect(of: pool)
        }
    }

    /// Returns the flight of a name while it is a suspect in the list of its pool, without its doomed requests.
    private mutating func settledSuspect(_ name: FlightName) -> Handle<Flight>? {
        guard let flight = liveFlight(name), flights[flight].phase == .queued, flights[flight].isSuspect else {
            return nil
        }
        return flight
    }

    /// Starts the first suspect whose origin has room. O(suspects) if none has. The others keep their order.
    private mutating func startSuspect(
        in pool: Handle<WorkerPool>, at place: (worker: Handle<WorkerSession>, isEmpty: Bool), now: Tick
    ) {
        var skipped: [FlightName] = []
        defer { for name in skipped.reversed() { pools.add(suspect: name, first: true, to: pool) } }
        for _ in 0..<pools[pool].suspects.count {
            guard let name = pools.nextSuspect(of: pool) else { return }
            let suspect = settledSuspect(name)
            guard pools.contains(pool) else { return }
            guard let flight = suspect else { continue }
            let scope = flights[flight].scope
            let mayStart = flights[flight].isWanted && (place.isEmpty || !flights[flight].isAccused)
            if let until = governor.refusal(in: scope) {
                failCooling(flight, until: until, now: now)
                guard pools.contains(pool) else { return }
            } else if mayStart, governor.admits(scope, .high) {
                guard !mustClaim(flight, now: now) else { continue }
                enterQuarantine(of: pool, place.worker)
                start(flight, at: place.worker, now: now)
                let end = now.advanced(byMilliseconds: limits.isolation(deaths: flights[flight].workerDeaths))
                workers.isolate(attempt(of: flight), until: end, at: place.worker)
                setTimer(end, .isolation(workers[place.worker].id))
                return
            } else {
                skipped.append(name)
            }
        }
    }

    private func quarantine(of pool: Handle<WorkerPool>) -> Handle<WorkerSession>? {
        pools[pool].quarantine.flatMap { workers.number(of: $0) }
    }

    private mutating func enterQuarantine(of pool: Handle<WorkerPool>, _ worker: Handle<WorkerSession>) {
        leaveQuarantine(of: pool)
        pools.setQuarantine(workers[worker].id, of: pool)
        workers.setQuarantine(worker, true)
    }

    /// Ends a pool's quarantine unless its worker isolates a suspect.
    private mutating func leaveQuarantine(of pool: Handle<WorkerPool>) {
        if let worker = quarantine(of: pool) {
            guard workers[worker].isolation == nil else { return }
            workers.setQuarantine(worker, false)
        }
        pools.setQuarantine(nil, of: pool)
    }

    // MARK: Time

    /// Handles the isolation timer of a worker: sends a PING, whose PONG clears the suspect, or ends a worker that did
    /// not answer.
    mutating func isolationEnded(of id: WorkerID, now: Tick) {
        guard let worker = workers.number(of: id) else { return }
        switch workers.isolationEnded(at: worker, now: now) {
        case .stale, .cleared(nil): break
        case .awaiting(let end, let asks):
            if asks { actions.append(.worker(.send(id, .ping))) }
            setTimer(end, .isolation(id))
        case .cleared(let flight?): flights[flight].isSuspect = false
        case .silent: end(silent: worker, now: now)
        }
    }

    /// Releases a suspect that found no empty worker in time into the queue.
    mutating func suspicionEnded(_ name: FlightName, deaths: UInt8) {
        guard let flight = liveFlight(name), flights[flight].isSuspect, flights[flight].workerDeaths == deaths
        else {
            return
        }
        flights[flight].isSuspect = false
        if flights[flight].phase == .queued { enqueue(flight: flight, first: true) }
    }

    /// Moves the suspects of a closed pool to the queue, where they fail. If a worker comes before, they run like others:
    /// the time in which they awaited an empty worker has passed.
    private mutating func releaseSuspects(of pool: Handle<WorkerPool>) {
        for name in pools.takeSuspects(of: pool) {
            guard let flight = settledSuspect(name) else { continue }
            flights[flight].isSuspect = false
            enqueue(flight: flight, first: true)
        }
    }
}
