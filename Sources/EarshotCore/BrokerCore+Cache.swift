internal import DequeModule
internal import EarshotHTTP
internal import EarshotWire

/// Events of the cache, and flights that validate stored responses in the background.
extension BrokerCore {
    /// Handles the result of a cache lookup for a flight: the stored variants of its URL, in any order.
    public mutating func cacheLookupCompleted(_ name: FlightName, _ variants: [CacheVariant], now: MonotonicTime) {
        records.latestEventTime = now
        guard let flight = liveFlight(name) else { return }
        switch Cache.lookupCompleted(flight, variants, now: now, in: &records) {
        case .step(let step): performStep(step, of: flight, now: now)
        case .useWhileRevalidating(let stored, let conditions):
            beginRevalidation(of: stored, addingFields: conditions, for: flight)
            performStep(
                Cache.useStoredResponse(stored, for: flight, as: .cache, now: now, in: &records), of: flight, now: now)
        }
    }

    /// Handles the body read for a flight. The core takes ownership of a file.
    ///
    /// - Parameter sha256: SHA-256 of a range of a body, as 64 hexadecimal digits; nil for a whole body.
    public mutating func cachedBodyRead(
        _ name: FlightName, _ body: CachedBody, sha256: String? = nil, now: MonotonicTime
    ) {
        records.latestEventTime = now
        // The cache's own size limit bounds these bytes.
        if case .file(let file) = body { records.outcomes.retainFile(file, bytes: 0, isShared: true) }
        guard let flight = liveFlight(name),
            let step = Cache.cachedBodyRead(body, sha256: sha256, for: flight, now: now, in: &records)
        else {
            records.releaseCachedBody(body)
            return
        }
        performStep(step, of: flight, now: now)
    }

    private mutating func beginRevalidation(
        of stored: CacheVariant, addingFields: HeaderFields, for flight: Handle<Flight>
    ) {
        guard let key = Cache.revalidationKey(for: flight, in: &records) else { return }
        let record = records.flights[flight]
        let scope = Origins.originScope(of: record.request, for: WorkerPool.webPoolHandle, in: &records)
        let revalidation = Flights.beginFlight(
            record.request, redirect: record.redirect, partition: record.partition, key, scope: scope,
            servesSingleRequest: false,
            body: nil, in: &records)
        Cache.beginRevalidation(of: stored, adding: addingFields, by: revalidation, for: flight, in: &records)
    }

    /// Starts queued revalidations in slots that no request needs. One whose origin is full goes to the end of the
    /// list.
    mutating func startRevalidations(now: MonotonicTime) {
        for _ in 0..<min(records.queuedRevalidations.count, records.limits.maximumRevalidationsPerPass) {
            let slots = records.workers.slotCount(of: WorkerPool.webPoolHandle)
            guard slots.freeSlots > 0, !slots.onlyHighMayStart, let name = records.queuedRevalidations.popFirst() else {
                return
            }
            guard let flight = liveFlight(name), records.flights[flight].isRevalidation,
                records.flights[flight].phase == .queued, !records.flights[flight].isSuspectedOfWorkerDeath
            else {
                continue
            }
            let scope = records.flights[flight].originScope
            if records.originGovernor.coolDownRefusalEnd(in: scope) != nil {
                if Cache.endRevalidation(of: flight, in: &records) { freeFlight(flight) }
            } else if Cluster.mustClaim(flight, now: now, in: &records) {
                continue
            } else if records.originGovernor.admitsTransfer(scope, .background) {
                startFlight(flight, now: now)
            } else {
                records.queuedRevalidations.append(name)
            }
        }
    }
}
