internal import DequeModule
internal import EarshotHTTP
internal import EarshotWire

/// Suspects: flights that lost their workers, on their way through the queue and the quarantine. `Workers` decides.
extension BrokerCore {
    /// Queues a flight that lost its worker: first in its lane, or as a suspect.
    mutating func requeue(_ flight: Handle<Flight>, isDeath: Bool, now: Tick) {
        if isDeath { Workers.suspect(flight, now: now, in: &records) }
        enqueue(flight: flight, first: true)
        guard !records.flights[flight].isSuspect else { return }
        records.pools.flightReturned(records.flights.name(of: flight), to: records.pool(of: flight))
    }

    // MARK: Assignment

    /// Starts the next suspect of a pool, and ends the quarantine after the last one. Moves the suspects of a closed
    /// pool to the queue, which fails a bounded number per pass.
    mutating func serveSuspects(of pool: Handle<WorkerPool>, now: Tick) {
        guard !records.pools[pool].isClosed else {
            releaseSuspects(of: pool)
            return
        }
        dropEnded(of: pool)
        guard records.pools.contains(pool) else { return }
        guard !records.pools[pool].suspects.isEmpty else {
            Workers.leaveQuarantine(of: pool, in: &records)
            return
        }
        if let place = Workers.workerForSuspect(of: pool, in: &records) {
            startSuspect(in: pool, at: place, now: now)
        }
    }

    /// Drops names of ended flights and of flights that are no longer suspects from the head of the list.
    private mutating func dropEnded(of pool: Handle<WorkerPool>) {
        while records.pools.contains(pool), let name = records.pools[pool].suspects.first {
            let suspect = currentSuspect(name)
            guard records.pools.contains(pool), suspect == nil else { return }
            _ = records.pools.nextSuspect(of: pool)
        }
    }

    /// Returns the flight of a name while it is a suspect in the list of its pool, without its doomed requests.
    private mutating func currentSuspect(_ name: FlightName) -> Handle<Flight>? {
        guard let flight = liveFlight(name), records.flights[flight].phase == .queued, records.flights[flight].isSuspect
        else {
            return nil
        }
        return flight
    }

    /// Starts the first suspect whose origin has room. O(suspects) if none has. The others keep their order.
    private mutating func startSuspect(
        in pool: Handle<WorkerPool>, at place: (worker: Handle<WorkerSession>, isEmpty: Bool), now: Tick
    ) {
        var skipped: [FlightName] = []
        defer { for name in skipped.reversed() { records.pools.add(suspect: name, first: true, to: pool) } }
        for _ in 0..<records.pools[pool].suspects.count {
            guard let name = records.pools.nextSuspect(of: pool) else { return }
            let suspect = currentSuspect(name)
            guard records.pools.contains(pool) else { return }
            guard let flight = suspect else { continue }
            let scope = records.flights[flight].scope
            let mayStart =
                records.flights.isWanted(flight) && (place.isEmpty || !records.flights[extras: flight].isSuspected)
            if let until = records.governor.refusal(in: scope) {
                failCooling(flight, until: until, now: now)
                guard records.pools.contains(pool) else { return }
            } else if mayStart, records.governor.admits(scope, .high) {
                guard !Cluster.mustClaim(flight, now: now, in: &records) else { continue }
                Workers.enterQuarantine(of: pool, place.worker, in: &records)
                start(flight, at: place.worker, now: now)
                Workers.isolate(flight, at: place.worker, now: now, in: &records)
                return
            } else {
                skipped.append(name)
            }
        }
    }

    // MARK: Time

    /// Releases a suspect that found no empty worker in time into the queue.
    mutating func suspicionEnded(_ name: FlightName, deaths: UInt8) {
        guard let flight = liveFlight(name), records.flights[flight].isSuspect,
            records.flights[extras: flight].workerDeaths == deaths
        else {
            return
        }
        records.flights[flight].isSuspect = false
        if records.flights[flight].phase == .queued { enqueue(flight: flight, first: true) }
    }

    /// Moves the suspects of a closed pool to the queue, where they fail. If a worker comes before, they run like others:
    /// the time in which they awaited an empty worker has passed.
    private mutating func releaseSuspects(of pool: Handle<WorkerPool>) {
        for name in records.pools.takeSuspects(of: pool) {
            guard let flight = currentSuspect(name) else { continue }
            records.flights[flight].isSuspect = false
            enqueue(flight: flight, first: true)
        }
    }
}
