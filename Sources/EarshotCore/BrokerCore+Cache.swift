internal import DequeModule
internal import EarshotHTTP
internal import EarshotWire

/// Events of the cache, and flights that validate stored responses in the background.
extension BrokerCore {
    /// Handles the result of a cache lookup for a flight: the stored variants of its URL, in any order.
    public mutating func cacheAnswered(_ name: FlightName, _ variants: [CacheVariant], now: Tick) {
        records.clock = now
        guard let flight = liveFlight(name) else { return }
        switch Cache.answered(flight, variants, now: now, in: &records) {
        case .step(let step): apply(step, to: flight, now: now)
        case .revalidation(let stored, let conditions):
            beginRevalidation(of: stored, adding: conditions, for: flight)
            apply(Cache.use(stored, for: flight, as: .cache, now: now, in: &records), to: flight, now: now)
        }
    }

    /// Handles the body read for a flight. The core takes ownership of a file.
    ///
    /// - Parameter sha256: SHA-256 of a range of a body, as 64 hexadecimal digits; nil for a whole body.
    public mutating func cacheRead(_ name: FlightName, _ body: CachedBody, sha256: String? = nil, now: Tick) {
        records.clock = now
        // The cache's own size limit bounds these bytes.
        if case .file(let file) = body { records.outcomes.hold(file: file, bytes: 0, isShared: true) }
        guard let flight = liveFlight(name),
            let step = Cache.read(body, sha256: sha256, for: flight, now: now, in: &records)
        else {
            records.drop(body)
            return
        }
        apply(step, to: flight, now: now)
    }

    private mutating func beginRevalidation(of stored: CacheVariant, adding: HeaderFields, for flight: Handle<Flight>) {
        guard let key = Cache.revalidationKey(for: flight, in: &records) else { return }
        let record = records.flights[flight]
        let scope = Origins.scope(of: record.request, for: WorkerPool.web, in: &records)
        let behind = Flights.begin(
            record.request, redirect: record.redirect, partition: record.partition, key, scope: scope, isAlone: false,
            body: nil, in: &records)
        Cache.beginRevalidation(of: stored, adding: adding, by: behind, for: flight, in: &records)
    }

    /// Starts queued revalidations in slots that no request needs. One whose origin is full goes to the end of the
    /// list.
    mutating func startRevalidations(now: Tick) {
        for _ in 0..<min(records.revalidations.count, records.limits.revalidationsPerPass) {
            let slots = records.workers.slotCount(of: WorkerPool.web)
            guard slots.free > 0, !slots.areForHigh, let name = records.revalidations.popFirst() else { return }
            guard let flight = liveFlight(name), records.flights[flight].isRevalidation,
                records.flights[flight].phase == .queued,
                !records.flights[flight].isSuspect
            else {
                continue
            }
            let scope = records.flights[flight].scope
            if records.governor.refusal(in: scope) != nil {
                if Cache.endRevalidation(of: flight, in: &records) { forget(flight) }
            } else if Cluster.mustClaim(flight, now: now, in: &records) {
                continue
            } else if records.governor.admits(scope, .background) {
                start(flight, now: now)
            } else {
                records.revalidations.append(name)
            }
        }
    }
}
