internal import DequeModule
internal import EarshotHTTP
internal import EarshotWire

/// Suspects: flights that lost their workers, on their way through the queue and the quarantine. `Workers` decides.
extension BrokerCore {
    /// Queues a flight that lost its worker: first in its lane, or as a suspect.
    mutating func requeueFlight(_ flight: Handle<Flight>, isDeath: Bool, now: MonotonicTime) {
        if isDeath { Workers.suspectFlight(flight, now: now, in: &records) }
        enqueueFlight(flight, first: true)
        guard !records.flights[flight].isSuspectedOfWorkerDeath else { return }
        records.workerPools.addFlightWithLostWorker(records.flights.name(of: flight), to: records.pool(of: flight))
    }

    // MARK: Assignment

    /// Starts the next suspect of a pool, and ends the quarantine after the last one. Moves the suspects of a closed
    /// pool to the queue, which fails a bounded number per pass.
    mutating func startNextSuspect(of pool: Handle<WorkerPool>, now: MonotonicTime) {
        guard !records.workerPools[pool].isClosed else {
            moveSuspectsToQueue(of: pool)
            return
        }
        removeEndedSuspects(of: pool)
        guard records.workerPools.contains(pool) else { return }
        guard !records.workerPools[pool].suspectFlights.isEmpty else {
            Workers.endQuarantine(of: pool, in: &records)
            return
        }
        if let choice = Workers.workerForSuspect(of: pool, in: &records) {
            startSuspect(in: pool, at: choice, now: now)
        }
    }

    /// Drops names of ended flights and of flights that are no longer suspects from the head of the list.
    private mutating func removeEndedSuspects(of pool: Handle<WorkerPool>) {
        while records.workerPools.contains(pool), let name = records.workerPools[pool].suspectFlights.first {
            let suspect = suspectFlight(named: name)
            guard records.workerPools.contains(pool), suspect == nil else { return }
            _ = records.workerPools.popNextSuspect(of: pool)
        }
    }

    /// Returns the flight of a name while it is a suspect in the list of its pool, without its doomed requests.
    private mutating func suspectFlight(named name: FlightName) -> Handle<Flight>? {
        guard let flight = liveFlight(name), records.flights[flight].phase == .queued,
            records.flights[flight].isSuspectedOfWorkerDeath
        else {
            return nil
        }
        return flight
    }

    /// Starts the first suspect whose origin has room. O(suspects) if none has. The others keep their order.
    private mutating func startSuspect(
        in pool: Handle<WorkerPool>, at choice: (worker: Handle<WorkerSession>, isEmpty: Bool), now: MonotonicTime
    ) {
        var skipped: [FlightName] = []
        defer { for name in skipped.reversed() { records.workerPools.addSuspect(name, atFront: true, to: pool) } }
        for _ in 0..<records.workerPools[pool].suspectFlights.count {
            guard let name = records.workerPools.popNextSuspect(of: pool) else { return }
            let suspect = suspectFlight(named: name)
            guard records.workerPools.contains(pool) else { return }
            guard let flight = suspect else { continue }
            let scope = records.flights[flight].originScope
            let mayStart =
                records.flights.isResultNeeded(flight)
                && (choice.isEmpty || !records.flights[redirectsAndFailuresOf: flight].wasIsolatedAtWorkerDeath)
            if let until = records.originGovernor.coolDownRefusalEnd(in: scope) {
                failForCoolDown(flight, until: until, now: now)
                guard records.workerPools.contains(pool) else { return }
            } else if mayStart, records.originGovernor.admitsTransfer(scope, .high) {
                guard !Cluster.mustClaim(flight, now: now, in: &records) else { continue }
                Workers.setQuarantineWorker(of: pool, to: choice.worker, in: &records)
                startFlight(flight, at: choice.worker, now: now)
                Workers.beginIsolation(of: flight, at: choice.worker, now: now, in: &records)
                return
            } else {
                skipped.append(name)
            }
        }
    }

    // MARK: Time

    /// Releases a suspect that found no empty worker in time into the queue.
    mutating func suspectTimedOut(_ name: FlightName, deaths: UInt8) {
        guard let flight = liveFlight(name), records.flights[flight].isSuspectedOfWorkerDeath,
            records.flights[redirectsAndFailuresOf: flight].workerDeaths == deaths
        else {
            return
        }
        records.flights[flight].isSuspectedOfWorkerDeath = false
        if records.flights[flight].phase == .queued { enqueueFlight(flight, first: true) }
    }

    /// Moves the suspects of a closed pool to the queue, where they fail. If a worker comes first, they run like other
    /// flights, because the time in which they awaited an empty worker has passed.
    private mutating func moveSuspectsToQueue(of pool: Handle<WorkerPool>) {
        for name in records.workerPools.removeAllSuspects(of: pool) {
            guard let flight = suspectFlight(named: name) else { continue }
            records.flights[flight].isSuspectedOfWorkerDeath = false
            enqueueFlight(flight, first: true)
        }
    }
}
