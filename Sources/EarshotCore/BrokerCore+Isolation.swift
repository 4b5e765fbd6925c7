internal import DequeModule
internal import EarshotHTTP
internal import EarshotWire

/// Isolation: a flight that lost two workers runs again alone.
///
/// A worker's death has one culprit among its flights, or none if it was killed from outside. The first death of a
/// flight's worker has no consequence: the flight runs again at once. After the second death the flight is a
/// *suspect*. Suspects leave the fair queue and run one by one in an empty worker, while other workers do ordinary
/// work. A suspect whose worker is alive after the isolation is cleared, and the worker takes other work beside it. A
/// flight is poisonous after `CoreLimits.deathsAlonePerFlight` deaths of workers that ran nothing else.
///
/// ```
/// queued → suspect → isolated → cleared (PONG after the isolation) → its end
///             ↑          │         │
///             └──────────┴─────────┴── its worker dies
/// ```
extension BrokerCore {
    // MARK: Deaths

    /// Returns the attempt to blame for the death of a worker: its only one, if the flight lost a worker before.
    func culprit(in worker: Int32) -> AttemptID? {
        guard workers[worker].leases.count == 1, workers[worker].foreign.isEmpty,
            let (attempt, lease) = workers[worker].leasesInOrder.first, lease.flight >= 0,
            flights[lease.flight].workerDeaths > 0
        else { return nil }
        return attempt
    }

    /// Counts a worker's death against one of its flights.
    ///
    /// - Returns: whether the flight is poisonous.
    mutating func countDeath(against flight: Int32, isAlone: Bool) -> Bool {
        flights[flight].workerDeaths += 1
        if isAlone { flights[flight].deathsAlone += 1 }
        return flights[flight].deathsAlone >= limits.deathsAlonePerFlight
            || flights[flight].workerDeaths >= limits.workerDeathsPerFlight
    }

    /// Queues a flight whose worker is gone: first in its lane, or as a suspect after the second death.
    mutating func requeue(_ flight: Int32, now: Tick) {
        let name = FlightName(number: flight, id: flights[flight].id)
        if flights[flight].workerDeaths >= limits.deathsOfSuspect {
            flights[flight].isSuspect = true
            let end = now.advanced(byMilliseconds: limits.suspicionMilliseconds)
            setTimer(end, .suspicion(name, deaths: flights[flight].workerDeaths))
        }
        enqueue(flight: flight, first: true)
        if !flights[flight].isSuspect { pools[pool(of: flight)].returned.append(name) }
    }

    // MARK: Assignment

    /// Starts the next suspect if no other is isolated and a worker is empty. O(suspects + workers).
    mutating func startSuspect(in pool: Int32, now: Tick) {
        guard let empty = workersForSuspects(in: pool) else { return }
        for _ in 0..<pools[pool].suspects.count {
            guard let name = pools[pool].suspects.popFirst() else { return }
            if let flight = flight(name) { settlePurges(of: flight) }
            guard let flight = flight(name), flights[flight].phase == .queued, flights[flight].isSuspect else {
                continue
            }
            let scope = scopes[flights[flight].scope]
            let mayBeBesideCleared = flights[flight].workerDeaths == limits.deathsOfSuspect
            let worker = empty.truly ?? (mayBeBesideCleared ? empty.cleared : nil)
            if case .refusing(let until) = scope.coolDown?.phase {
                failCooling(flight, until: until, now: now)
            } else if let worker, scope.admits, origins[scope.origin].admits(.high) {
                start(flight, at: worker, now: now)
                let end = now.advanced(byMilliseconds: limits.isolation(deaths: flights[flight].workerDeaths))
                workers[worker].isolation = WorkerSession.Isolation(attempt: attempt(of: flight), end: end)
                setTimer(end, .isolation(workers[worker].id))
                return
            } else {
                pools[pool].suspects.append(name)
            }
        }
    }

    /// Returns a worker without transfers, and one that runs cleared suspects only; nil if there is neither, or a
    /// worker isolates a suspect already: the others are for other work.
    private func workersForSuspects(in pool: Int32) -> (truly: Int32?, cleared: Int32?)? {
        var truly: Int32?
        var cleared: Int32?
        for worker in workers.indices where workers[worker].phase == .ready && workers[worker].pools.contains(pool) {
            guard workers[worker].isolation == nil else { return nil }
            guard workers[worker].freeSlots > 0, workers[worker].foreign.isEmpty else { continue }
            if workers[worker].leases.isEmpty {
                truly = truly ?? worker
            } else if runsClearedOnly(worker) {
                cleared = cleared ?? worker
            }
        }
        return truly == nil && cleared == nil ? nil : (truly, cleared)
    }

    /// Whether each transfer of a worker is of a cleared suspect, or is being cancelled. O(leases).
    private func runsClearedOnly(_ worker: Int32) -> Bool {
        workers[worker].leases.allSatisfy { _, lease in
            lease.flight >= 0 ? flights[lease.flight].workerDeaths >= limits.deathsOfSuspect : lease.orphan == nil
        }
    }

    // MARK: Time

    /// Asks the worker of an isolated suspect for a sign of life when the time of the isolation is over. The answer
    /// clears the suspect.
    mutating func isolationEnded(of id: WorkerID, now: Tick) {
        guard let worker = workerNumbers[id], let isolation = workers[worker].isolation, isolation.end <= now else {
            return
        }
        let silence = limits.silenceMilliseconds
        if let asked = workers[worker].askedAt {
            guard asked.advanced(byMilliseconds: silence) <= now else { return }
            end(silent: worker, now: now)
        } else {
            workers[worker].askedAt = now
            actions.append(.sendWorker(id, .ping))
            setTimer(now.advanced(byMilliseconds: silence), .isolation(id))
        }
    }

    /// Clears the suspect of a worker that answered a PING after the isolation.
    mutating func ponged(_ worker: Int32, now: Tick) {
        guard let isolation = workers[worker].isolation, isolation.end <= now else { return }
        endIsolation(of: workers[worker].leases[isolation.attempt]?.flight ?? -1, at: worker)
    }

    /// Clears a suspect whose attempt ended or whose worker outlived its isolation; -1 for a cancelled flight.
    mutating func endIsolation(of flight: Int32, at worker: Int32) {
        workers[worker].isolation = nil
        if flight >= 0 { flights[flight].isSuspect = false }
    }

    /// Lets a suspect that found no empty worker in time run with other flights.
    mutating func suspicionEnded(_ name: FlightName, deaths: UInt8) {
        guard let flight = flight(name), flights[flight].isSuspect, flights[flight].workerDeaths == deaths else {
            return
        }
        flights[flight].isSuspect = false
        if flights[flight].phase == .queued { enqueue(flight: flight, first: true) }
    }

    /// Moves the suspects of a pool without workers to its queue, which fails in portions.
    mutating func releaseSuspects(of pool: Int32) {
        while let name = pools[pool].suspects.popFirst() {
            if let flight = flight(name) { settlePurges(of: flight) }
            guard let flight = flight(name), flights[flight].phase == .queued, flights[flight].isSuspect else {
                continue
            }
            flights[flight].isSuspect = false
            enqueue(flight: flight, first: true)
        }
    }
}
