internal import EarshotCore
internal import EarshotHTTP
internal import EarshotWire

/// Reasons why a request has not ended yet, as JSON. protocols/administration.md lists the members.
///
/// Only the administrator learns numbers that count the requests of other principals, and names of their handlers.
extension CoreView {
    /// Maximum number of handlers listed for a full origin.
    private static let namedHandlers = 5

    /// - Parameter seesAll: whether the reason may count the requests of all principals.
    func writeReason(
        _ key: HandlerKey, _ request: RequestID, seesAll: Bool, to json: inout JSONText
    ) {
        json.member("handler", key.id.description)
        json.member("request", request.description)
        guard let number = records.handlers.handle(of: key),
            let interest = records.listedInterest(request, of: number)
        else {
            json.member("state", "unknown")
            json.member("reason", "unknown request; its result may be acknowledged already")
            return
        }
        json.member("class", records.requests[interest].priority.name)
        json.member("age-ms", now.milliseconds(since: records.requests[interest].requestedAt))
        let state = state(of: interest)
        if records.requests[interest].phase != .open {
            json.member("state", state.rawValue)
            writeEnd(of: interest, to: &json)
        }
        let hasListeners = !records.listeners(of: records.requests[interest].handler).isEmpty
        switch records.requests[interest].phase {
        case .entering, .recording:
            writeWait("disk", "the broker writes the request to disk", to: &json)
        case .resting where records.durables.isUnread(interest) && records.durables.failure(of: interest) != nil:
            writeWait("retry", "it has failed; its failure stays on disk until it is repeated or removed", to: &json)
        case .held where end(of: interest)?.failure != nil:
            writeWait("listener", "it has failed, and no subscriber has received the failure", to: &json)
        case .held where hasListeners, .resting where hasListeners:
            writeWait("window", "its result is stored, and too many terminals wait for its subscribers", to: &json)
        case .held, .resting:
            writeWait("listener", "it has ended, and the handler has no subscriber for its result", to: &json)
        case .delivering:
            writeWait(
                "acknowledgement", "its result waits for an acknowledgement, or for room in the window of a client",
                to: &json)
        case .open: writeReason(ofOpen: interest, state, seesAll: seesAll, to: &json)
        }
    }

    private func writeReason(
        ofOpen interest: Handle<Interest>, _ state: RequestState, seesAll: Bool, to json: inout JSONText
    ) {
        let leaf = records.leaf(ofOpen: interest)
        let flight = records.flights[leaf]
        json.member("url", flight.url.redacted)
        json.member("state", state.rawValue)
        json.member("attempts", Int(flight.attempts))
        switch flight.phase {
        case .asking where records.cachePlans[leaf]?.waitsForRoom == true:
            writeWait("window", "its response is stored, and too many terminals wait for its client", to: &json)
        case .asking: writeWait("cache", "the broker looks it up in the cache", to: &json)
        case .queued: writeReason(ofQueued: interest, leaf, seesAll: seesAll, to: &json)
        case .claiming: writeReason(ofClaiming: leaf, to: &json)
        case .running(let worker):
            let isResuming = records.workers[worker].leases[records.attempt(of: leaf)]?.resumedBytes ?? 0 > 0
            json.member("reason", isResuming ? "a worker resumes its partial body" : "a worker transfers it")
            json.member("worker", records.workers[worker].pid)
            json.member("received", records.workers[worker].leases[records.attempt(of: leaf)]?.receivedBytes ?? 0)
        case .backingOff:
            writeWait("retry", "an attempt failed; the broker retries after a delay", to: &json)
            json.member("retry-in-ms", (records.flights.pauses[leaf] ?? now).milliseconds(since: now))
        case .following: json.member("reason", "it follows a redirect")
        case .ended: json.member("reason", "its transfer has ended, and its result is being sent")
        }
    }

    private func writeReason(ofClaiming flight: Handle<Flight>, to json: inout JSONText) {
        guard let cluster = records.cluster else { return }
        if !cluster.value.book.isMember {
            writeWait("engine", "the engine of the cluster is unreachable; the broker waits for it", to: &json)
        } else if cluster.value.book.claims[LocalFlight(records.flights.name(of: flight).reference)]?.isFetchedElsewhere
            == true
        {
            writeWait("node", "another node of the cluster fetches it", to: &json)
        } else {
            writeWait("cluster", "the cluster assigns it to a node when its origin has room", to: &json)
        }
    }

    private func writeWait(_ wait: String, _ reason: String, to json: inout JSONText) {
        json.member("waits-for", wait)
        json.member("reason", reason)
    }

    // MARK: Queued requests

    private func writeReason(
        ofQueued interest: Handle<Interest>, _ flight: Handle<Flight>, seesAll: Bool, to json: inout JSONText
    ) {
        let pool = records.governor.origins[records.governor.scopes[records.flights[flight].scope].origin].pool
        let slots = records.workers.slotCount(of: pool)
        let rateSource = rateSource(of: flight, for: interest)
        let scope = records.governor.scopes[records.flights[flight].scope]
        if records.isDraining {
            writeWait("next-broker", "the broker is draining and starts no transfers", to: &json)
        } else if records.workers.isAwaiting {
            writeWait("earlier-workers", "workers end their transfers for a broker that died", to: &json)
        } else if slots.total == 0 {
            let scheme = records.pools[pool].scheme.map { " for the scheme \($0)" } ?? ""
            let mayKnow = records.pools[pool].scheme == nil && seesAll
            let loop = mayKnow ? childFailures.first { $0.role == "worker" } : nil
            let cause = loop.map { "; \($0.deaths) workers ended in a row, the last one with \($0.lastEnd)" } ?? ""
            writeWait("worker", "no worker\(scheme) is connected\(cause)", to: &json)
        } else if records.flights[flight].isSuspect, scope.admits, records.governor.origins[scope.origin].admits(.high)
        {
            writeWait("isolation", "its workers died; it runs in isolation, after other such requests", to: &json)
        } else if let rateSource, records.quotas.isFull(records.principal(of: rateSource)) {
            writeWait("quota", "its user has reached the setting transfers-per-user", to: &json)
            json.member("running", records.quotas.use(by: records.principal(of: rateSource)).transfers)
            json.member("limit", records.quotas.limits.transfers)
        } else if let rateSource {
            writeObstacle(
                to: records.requests[rateSource].priority, of: records.flights[flight].scope, slots, seesAll: seesAll,
                to: &json)
        } else if let owner = records.requests[interest].owner {
            writeWindow(of: owner, to: &json)
        }
        if let rateSource { writeClass(from: rateSource, for: interest, seesAll: seesAll, to: &json) }
    }

    private func writeObstacle(
        to priority: PriorityClass, of number: Handle<OriginScope>, _ slots: SlotCount, seesAll: Bool,
        to json: inout JSONText
    ) {
        let scope = records.governor.scopes[number]
        let origin = records.governor.origins[scope.origin]
        if let until = scope.coolDown?.end {
            let pause = until.milliseconds(since: now)
            writeWait("cool-down", "its origin is in cool-down for another \(pause) ms", to: &json)
            json.member("origin", origin.origin.description)
            json.member("cooling-ms", pause)
        } else if !scope.admits {
            writeWait("probe", "after a cool-down, one request probes its origin first", to: &json)
            json.member("origin", origin.origin.description)
        } else if !origin.hasRoom(for: priority) {
            writeFull(scope.origin, seesAll: seesAll, to: &json)
        } else if origin.isPaused {
            let pause = origin.pauseEnd.milliseconds(since: now)
            writeWait("spacing", "the next transfer from its origin starts in \(pause) ms at the earliest", to: &json)
            json.member("origin", origin.origin.description)
            json.member("spacing-ms", Int(origin.spacingMilliseconds))
            json.member("starts-in-ms", pause)
        } else {
            write(slots, for: priority, seesAll: seesAll, to: &json)
        }
    }

    private func writeWindow(of owner: Handle<ClientSession>, to json: inout JSONText) {
        let window = records.clients[owner].deliveries
        let reason: String
        switch window.phase {
        case .detached: reason = "the client is disconnected"
        case .open: reason = "the client's window is full until it acknowledges results"
        case .blocked: reason = "the client's socket is full until it reads"
        case .ended:
            writeWait("removal", "its owner is disconnected, and its removal is pending", to: &json)
            return
        }
        writeWait("window", reason, to: &json)
        json.member("outstanding", window.count)
        json.member("window", window.size)
    }

    private func write(_ slots: SlotCount, for priority: PriorityClass, seesAll: Bool, to json: inout JSONText) {
        if slots.free == 0 {
            writeWait("slot", "all worker slots are in use", to: &json)
        } else if slots.areForHigh, priority != .high {
            writeWait("slot", "the free slots are reserved for class high", to: &json)
        } else {
            writeWait("turn", "it is the next one for a worker", to: &json)
        }
        guard seesAll else { return }
        json.member("slots", slots.total)
        json.member("slots-free", slots.free)
        json.member("slots-for-high", slots.forHigh)
    }

    /// Writes the handlers that fill an origin. Each transfer counts for the first interest in its flight. O(running).
    private func writeFull(_ number: Handle<OriginEntry>, seesAll: Bool, to json: inout JSONText) {
        let origin = records.governor.origins[number]
        guard seesAll else {
            writeWait("origin", "its origin has reached its limit of transfers", to: &json)
            json.member("origin", origin.origin.description)
            return
        }
        let isKept = origin.hasRoom(for: .high)
        writeWait(
            "origin",
            "its origin has \(origin.running) of \(origin.limit) transfers"
                + (isKept ? ", and the last slot is reserved for class high" : ""),
            to: &json)
        json.member("origin", origin.origin.description)
        json.member("running", Int(origin.running))
        json.member("limit", Int(origin.limit))
        var counts: [Handle<HandlerEntry>: Int] = [:]
        var cancelling = 0
        for worker in records.workers.indices {
            for lease in records.workers[worker].leases.values where lease.origin == number {
                guard let flight = lease.flight else {
                    cancelling += 1
                    continue
                }
                if let interest = records.flights.firstInterest(of: flight) {
                    counts[records.requests[interest].handler, default: 0] += 1
                }
            }
        }
        let most = counts.map { (handler: $0.key, name: records.handlers[$0.key].id.description, running: $0.value) }
            .sorted { ($1.running, $0.name) < ($0.running, $1.name) }
        json.member("running-for") { json in
            json.array(most.prefix(Self.namedHandlers)) { json, one in
                json.object { json in
                    json.member("handler", one.name)
                    writePrincipal(of: one.handler, for: PrincipalTable.administrator, to: &json)
                    json.member("running", one.running)
                }
            }
        }
        json.member("cancelling", cancelling)
    }

    // MARK: Classes

    /// Returns the interest that determines a flight's class: the one with the highest class that can be served now.
    /// Prefers `own` among equals. O(interests).
    private func rateSource(of flight: Handle<Flight>, for own: Handle<Interest>) -> Handle<Interest>? {
        var rateSource = isServed(own) ? own : nil
        for other in records.flights.interests(of: flight) where isServed(other) {
            guard rateSource.map({ records.requests[$0].priority < records.requests[other].priority }) ?? true else {
                continue
            }
            rateSource = other
        }
        return rateSource
    }

    private func isServed(_ interest: Handle<Interest>) -> Bool {
        !records.isDoomed(interest)
            && records.requests[interest].owner.map { records.clients[$0].deliveries.isClosed } != true
    }

    private func writeClass(
        from rateSource: Handle<Interest>, for own: Handle<Interest>, seesAll: Bool, to json: inout JSONText
    ) {
        json.member("effective-class", records.requests[rateSource].priority.name)
        json.member("class-is-own", rateSource == own)
        let principal = records.handlers[records.requests[own].handler].principal
        let other = records.requests[rateSource].handler
        guard rateSource != own, seesAll || records.handlers[other].principal == principal else { return }
        json.member("class-from") { json in
            json.object { json in
                json.member("handler", records.handlers[other].id.description)
                writePrincipal(of: other, for: principal, to: &json)
                json.member("request", records.requests[rateSource].request.description)
            }
        }
    }
}
