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
extension Workers {
    /// Counts a worker's death against one of its flights. Accuses the isolated flight, or the only one if it lost a
    /// worker before.
    ///
    /// - Returns: whether the flight is poisonous.
    static func countWorkerDeath(
        against flight: Handle<Flight>, _ attempt: AttemptID, from gone: WorkerFleet.RemovedWorker,
        in records: inout Records
    ) -> Bool {
        let before = records.flights[redirectsAndFailuresOf: flight]
        let isSuspectedCause =
            gone.isolatedAttempt.map { $0 == attempt } ?? (gone.hadSingleTransfer && before.workerDeaths > 0)
        let isRepeatedCause = isSuspectedCause && gone.hadSingleTransfer && before.wasIsolatedAtWorkerDeath
        records.flights[redirectsAndFailuresOf: flight].workerDeaths += 1
        records.flights[redirectsAndFailuresOf: flight].wasIsolatedAtWorkerDeath = isSuspectedCause
        return isRepeatedCause || before.workerDeaths + 1 >= records.limits.maximumWorkerDeathsPerFlight
    }

    /// Makes a flight that lost its worker a suspect, if it has lost too many.
    static func suspectFlight(_ flight: Handle<Flight>, now: MonotonicTime, in records: inout Records) {
        guard records.flights[redirectsAndFailuresOf: flight].workerDeaths >= records.limits.workerDeathsBeforeSuspicion
        else { return }
        records.flights[flight].isSuspectedOfWorkerDeath = true
        let end = now.advanced(byMilliseconds: records.limits.maximumSuspectWaitMilliseconds)
        let deaths = records.flights[redirectsAndFailuresOf: flight].workerDeaths
        records.setTimer(at: end, for: .suspectWaitEnd(records.flights.name(of: flight), deaths: deaths))
    }

    /// Adds a suspect to the list of its pool. An accused one goes first, since it needs an empty worker.
    static func addSuspect(_ flight: Handle<Flight>, in records: inout Records) {
        let name = records.flights.name(of: flight)
        let isSuspectedCause = records.flights[redirectsAndFailuresOf: flight].wasIsolatedAtWorkerDeath
        records.workerPools.addSuspect(name, atFront: isSuspectedCause, to: records.pool(of: flight))
    }

    /// Begins the isolation of a suspect that has started in the quarantine of its pool.
    static func beginIsolation(
        of flight: Handle<Flight>, at worker: Handle<WorkerSession>, now: MonotonicTime, in records: inout Records
    ) {
        let deaths = records.flights[redirectsAndFailuresOf: flight].workerDeaths
        let end = now.advanced(byMilliseconds: records.limits.isolationMilliseconds(deaths: deaths))
        records.workers.isolateAttempt(records.currentAttempt(of: flight), until: end, at: worker)
        records.setTimer(at: end, for: .isolationEnd(records.workers[worker].id))
    }

    /// Handles the isolation timer of a worker: sends a PING, whose PONG clears the suspect.
    ///
    /// - Returns: the worker if it did not answer in time. It must end.
    static func isolationTimerFired(
        of id: WorkerID, now: MonotonicTime, in records: inout Records
    ) -> Handle<WorkerSession>? {
        guard let worker = records.workers.handle(of: id) else { return nil }
        switch records.workers.isolationTimerFired(at: worker, now: now) {
        case .staleTimer, .suspectCleared(nil): return nil
        case .awaitAnswer(let end, let pings):
            if pings { records.outbox.actions.append(.worker(.send(id, .ping))) }
            records.setTimer(at: end, for: .isolationEnd(id))
            return nil
        case .suspectCleared(let flight?):
            records.flights[flight].isSuspectedOfWorkerDeath = false
            return nil
        case .workerUnresponsive: return worker
        }
    }

    // MARK: Quarantine

    /// Place for the next suspect of a pool; nil if there is none now.
    static func workerForSuspect(
        of pool: Handle<WorkerPool>, in records: inout Records
    ) -> (worker: Handle<WorkerSession>, isEmpty: Bool)? {
        let quarantine = quarantineWorker(of: pool, in: &records)
        return records.workers.workerForSuspect(of: pool, quarantine: quarantine)
    }

    private static func quarantineWorker(
        of pool: Handle<WorkerPool>, in records: inout Records
    ) -> Handle<WorkerSession>? {
        records.workerPools[pool].quarantineWorker.flatMap { records.workers.handle(of: $0) }
    }

    static func setQuarantineWorker(
        of pool: Handle<WorkerPool>, to worker: Handle<WorkerSession>, in records: inout Records
    ) {
        endQuarantine(of: pool, in: &records)
        records.workerPools.setQuarantineWorker(records.workers[worker].id, of: pool)
        records.workers.setQuarantine(of: worker, true)
    }

    /// Ends a pool's quarantine unless its worker isolates a suspect.
    static func endQuarantine(of pool: Handle<WorkerPool>, in records: inout Records) {
        if let worker = quarantineWorker(of: pool, in: &records) {
            guard records.workers[worker].suspectIsolation == nil else { return }
            records.workers.setQuarantine(of: worker, false)
        }
        records.workerPools.setQuarantineWorker(nil, of: pool)
    }
}
