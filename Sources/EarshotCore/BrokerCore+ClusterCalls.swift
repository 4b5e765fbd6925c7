internal import EarshotHTTP
internal import EarshotWire

/// Look-ups and entries of mechanisms under the names by which `Cluster` calls them.
extension BrokerCore {
    @inline(__always)
    func origin(of flight: Handle<Flight>) -> Handle<OriginEntry> { records.origin(of: flight) }

    @inline(__always)
    func pool(of flight: Handle<Flight>) -> Handle<WorkerPool> { records.pool(of: flight) }

    mutating func scopeNumber(of request: HTTPRequest, in pool: Handle<WorkerPool>) -> Handle<OriginScope> {
        Origins.scope(of: request, for: pool, in: &records)
    }

    mutating func leave(_ pool: Handle<WorkerPool>?) {
        if let pool { records.pools.originForgotten(by: pool) }
    }

    mutating func holdHead(
        of request: HTTPRequest, for holder: RequestHeads.Holder, of client: ClientID, by principal: Handle<Principal>
    ) {
        records.holdHead(of: request, for: holder, of: client, by: principal)
    }

    mutating func applyOriginRules(now: Tick) { Origins.applyRules(now: now, in: &records) }

    mutating func askCache(for flight: Handle<Flight>, _ request: HTTPRequest) {
        Cache.flightBegan(flight, request, in: &records)
    }

    mutating func cool(_ scope: Handle<OriginScope>, asked: RetryAfter?, now: Tick) {
        Origins.cool(scope, asked: asked, now: now, in: &records)
    }

    static func words(_ detail: String) -> String { Workers.words(detail) }
}
