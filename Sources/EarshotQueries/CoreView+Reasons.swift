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
    func writeWaitReason(_ key: HandlerKey, _ request: RequestID, seesAll: Bool, to json: inout JSONText) {
        json.member("handler", key.id.description)
        json.member("request", request.description)
        guard let number = records.handlers.handle(of: key),
            let interest = records.interestHoldingID(request, of: number)
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
            writeRequestEnd(of: interest, to: &json)
        }
        let hasSubscribers = !records.subscribers(of: records.requests[interest].handler).isEmpty
        switch records.requests[interest].phase {
        case .awaitingDurableAcceptance, .writingOutcome:
            writeWait(for: "disk", reason: "the broker writes the request to disk", to: &json)
        case .outcomeOnlyOnDisk
        where records.durables.hasUnreadResult(interest) && records.durables.storedFailure(of: interest) != nil:
            writeWait(
                for: "retry", reason: "it has failed; its failure stays on disk until it is repeated or removed",
                to: &json)
        case .awaitingSubscriber where requestEnd(of: interest)?.failure != nil:
            writeWait(for: "subscriber", reason: "it has failed, and no subscriber has received the failure", to: &json)
        case .awaitingSubscriber where hasSubscribers, .outcomeOnlyOnDisk where hasSubscribers:
            writeWait(
                for: "window", reason: "its result is stored, and too many terminals wait for its subscribers",
                to: &json)
        case .awaitingSubscriber, .outcomeOnlyOnDisk:
            writeWait(
                for: "subscriber", reason: "it has ended, and the handler has no subscriber for its result", to: &json)
        case .delivering:
            writeWait(
                for: "acknowledgement",
                reason: "its result waits for an acknowledgement, or for room in the window of a client",
                to: &json)
        case .open: writeWaitReason(ofOpen: interest, state, seesAll: seesAll, to: &json)
        }
    }

    private func writeWaitReason(
        ofOpen interest: Handle<Interest>, _ state: RequestState, seesAll: Bool, to json: inout JSONText
    ) {
        let leaf = records.lastRedirectedFlight(ofOpen: interest)
        let flight = records.flights[leaf]
        json.member("url", flight.url.redacted)
        json.member("state", state.rawValue)
        json.member("attempts", Int(flight.assignedAttemptCount))
        switch flight.phase {
        case .lookingUp where records.cachePlans[leaf]?.waitsForReceiverRoom == true:
            writeWait(
                for: "window", reason: "its response is stored, and too many terminals wait for its client", to: &json)
        case .lookingUp: writeWait(for: "cache", reason: "the broker looks it up in the cache", to: &json)
        case .queued: writeWaitReason(ofQueued: interest, leaf, seesAll: seesAll, to: &json)
        case .claiming: writeWaitReason(ofClaiming: leaf, to: &json)
        case .running(let worker):
            let lease = records.workers[worker].leases[records.currentAttempt(of: leaf)]
            let isResuming = lease?.resumedBytes ?? 0 > 0
            json.member("reason", isResuming ? "a worker resumes its partial body" : "a worker transfers it")
            json.member("worker", records.workers[worker].workerProcessID)
            json.member("received", lease?.receivedBytes ?? 0)
        case .backingOff:
            writeWait(for: "retry", reason: "an attempt failed; the broker retries after a delay", to: &json)
            json.member("retry-in-ms", (records.flights.backOffEnds[leaf] ?? now).milliseconds(since: now))
        case .following: json.member("reason", "it follows a redirect")
        case .ended: json.member("reason", "its transfer has ended, and its result is being sent")
        }
    }

    private func writeWaitReason(ofClaiming flight: Handle<Flight>, to json: inout JSONText) {
        guard let cluster = records.clusterState else { return }
        let localFlight = LocalFlight(records.flights.name(of: flight).reference)
        if !cluster.value.book.isMember {
            writeWait(
                for: "engine", reason: "the engine of the cluster is unreachable; the broker waits for it", to: &json)
        } else if cluster.value.book.claims[localFlight]?.isFetchedElsewhere == true {
            writeWait(for: "node", reason: "another node of the cluster fetches it", to: &json)
        } else {
            writeWait(for: "cluster", reason: "the cluster assigns it to a node when its origin has room", to: &json)
        }
    }

    private func writeWait(for wait: String, reason: String, to json: inout JSONText) {
        json.member("waits-for", wait)
        json.member("reason", reason)
    }

    // MARK: Queued requests

    private func writeWaitReason(
        ofQueued interest: Handle<Interest>, _ flight: Handle<Flight>, seesAll: Bool, to json: inout JSONText
    ) {
        let scope = records.originGovernor.scopes[records.flights[flight].originScope]
        let pool = records.originGovernor.origins[scope.origin].workerPool
        let slots = records.workers.slotCount(of: pool)
        let classSource = classDeterminingInterest(of: flight, for: interest)
        if records.isDraining {
            writeWait(for: "next-broker", reason: "the broker is draining and starts no transfers", to: &json)
        } else if records.workers.isAwaitingEarlierProcesses {
            writeWait(for: "earlier-workers", reason: "workers end their transfers for a broker that died", to: &json)
        } else if slots.totalSlots == 0 {
            let scheme = records.workerPools[pool].scheme.map { " for the scheme \($0)" } ?? ""
            let mayKnow = records.workerPools[pool].scheme == nil && seesAll
            let loop = mayKnow ? childFailures.first { $0.childRole == "worker" } : nil
            let cause =
                loop.map {
                    "; \($0.consecutiveDeathCount) workers ended in a row, the last one with \($0.lastExitDescription)"
                } ?? ""
            writeWait(for: "worker", reason: "no worker\(scheme) is connected\(cause)", to: &json)
        } else if records.flights[flight].isSuspectedOfWorkerDeath, scope.canTakeRequest,
            records.originGovernor.origins[scope.origin].admitsTransfer(.high)
        {
            writeWait(
                for: "isolation", reason: "its workers died; it runs in isolation, after other such requests",
                to: &json)
        } else if let classSource, records.quotaUse.isTransferQuotaFull(records.principal(of: classSource)) {
            writeWait(for: "quota", reason: "its user has reached the setting transfers-per-user", to: &json)
            json.member("running", records.quotaUse.currentUse(by: records.principal(of: classSource)).transfers)
            json.member("limit", records.quotaUse.limits.transfers)
        } else if let classSource {
            writeOriginWaitReason(
                for: records.requests[classSource].priority, of: records.flights[flight].originScope, slots,
                seesAll: seesAll, to: &json)
        } else if let owner = records.requests[interest].owner {
            writeDeliveryWindowWait(of: owner, to: &json)
        }
        if let classSource { writeEffectiveClass(from: classSource, for: interest, seesAll: seesAll, to: &json) }
    }

    private func writeOriginWaitReason(
        for priority: PriorityClass, of number: Handle<OriginScope>, _ slots: PoolSlotCounts, seesAll: Bool,
        to json: inout JSONText
    ) {
        let scope = records.originGovernor.scopes[number]
        let origin = records.originGovernor.origins[scope.origin]
        if let until = scope.coolDown?.pauseEnd {
            let pause = until.milliseconds(since: now)
            writeWait(for: "cool-down", reason: "its origin is in cool-down for another \(pause) ms", to: &json)
            json.member("origin", origin.origin.description)
            json.member("cooling-ms", pause)
        } else if !scope.canTakeRequest {
            writeWait(for: "probe", reason: "after a cool-down, one request probes its origin first", to: &json)
            json.member("origin", origin.origin.description)
        } else if !origin.hasTransferSlot(for: priority) {
            writeFullOrigin(scope.origin, seesAll: seesAll, to: &json)
        } else if origin.isInSpacingPause {
            let pause = origin.pauseEnd.milliseconds(since: now)
            writeWait(
                for: "spacing", reason: "the next transfer from its origin starts in \(pause) ms at the earliest",
                to: &json)
            json.member("origin", origin.origin.description)
            json.member("spacing-ms", Int(origin.spacingMilliseconds))
            json.member("starts-in-ms", pause)
        } else {
            writeSlotWait(slots, for: priority, seesAll: seesAll, to: &json)
        }
    }

    private func writeDeliveryWindowWait(of owner: Handle<ClientSession>, to json: inout JSONText) {
        let window = records.clients[owner].deliveries
        let reason: String
        switch window.phase {
        case .detached: reason = "the client is disconnected"
        case .open: reason = "the client's window is full until it acknowledges results"
        case .blocked: reason = "the client's socket is full until it reads"
        case .ended:
            writeWait(for: "removal", reason: "its owner is disconnected, and its removal is pending", to: &json)
            return
        }
        writeWait(for: "window", reason: reason, to: &json)
        json.member("outstanding", window.dueTerminalCount)
        json.member("window", window.maximumSentTerminals)
    }

    private func writeSlotWait(
        _ slots: PoolSlotCounts, for priority: PriorityClass, seesAll: Bool, to json: inout JSONText
    ) {
        if slots.freeSlots == 0 {
            writeWait(for: "slot", reason: "all worker slots are in use", to: &json)
        } else if slots.onlyHighMayStart, priority != .high {
            writeWait(for: "slot", reason: "the free slots are reserved for class high", to: &json)
        } else {
            writeWait(for: "turn", reason: "it is the next one for a worker", to: &json)
        }
        guard seesAll else { return }
        json.member("slots", slots.totalSlots)
        json.member("slots-free", slots.freeSlots)
        json.member("slots-for-high", slots.slotsReservedForHigh)
    }

    /// Writes the handlers that fill an origin. Each transfer counts for the first interest in its flight. O(running).
    private func writeFullOrigin(_ number: Handle<OriginEntry>, seesAll: Bool, to json: inout JSONText) {
        let origin = records.originGovernor.origins[number]
        guard seesAll else {
            writeWait(for: "origin", reason: "its origin has reached its limit of transfers", to: &json)
            json.member("origin", origin.origin.description)
            return
        }
        let isKept = origin.hasTransferSlot(for: .high)
        writeWait(
            for: "origin",
            reason: "its origin has \(origin.runningTransferCount) of \(origin.transferLimit) transfers"
                + (isKept ? ", and the last slot is reserved for class high" : ""),
            to: &json)
        json.member("origin", origin.origin.description)
        json.member("running", Int(origin.runningTransferCount))
        json.member("limit", Int(origin.transferLimit))
        var counts: [Handle<HandlerEntry>: Int] = [:]
        var cancelling = 0
        for worker in records.workers.indices {
            for lease in records.workers[worker].leases.allLeases where lease.origin == number {
                guard let flight = lease.flight else {
                    cancelling += 1
                    continue
                }
                if let interest = records.flights.firstInterest(of: flight) {
                    counts[records.requests[interest].handler, default: 0] += 1
                }
            }
        }
        let busiest = counts.map { (handler: $0.key, name: records.handlers[$0.key].id.description, running: $0.value) }
            .sorted { ($1.running, $0.name) < ($0.running, $1.name) }
        json.member("running-for") { json in
            json.array(busiest.prefix(Self.namedHandlers)) { json, one in
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
    private func classDeterminingInterest(of flight: Handle<Flight>, for own: Handle<Interest>) -> Handle<Interest>? {
        var classSource = isServed(own) ? own : nil
        for other in records.flights.interests(of: flight) where isServed(other) {
            guard classSource.map({ records.requests[$0].priority < records.requests[other].priority }) ?? true else {
                continue
            }
            classSource = other
        }
        return classSource
    }

    private func isServed(_ interest: Handle<Interest>) -> Bool {
        !records.isAwaitingRemoval(interest)
            && records.requests[interest].owner.map { records.clients[$0].deliveries.isClosed } != true
    }

    private func writeEffectiveClass(
        from classSource: Handle<Interest>, for own: Handle<Interest>, seesAll: Bool, to json: inout JSONText
    ) {
        json.member("effective-class", records.requests[classSource].priority.name)
        json.member("class-is-own", classSource == own)
        let principal = records.handlers[records.requests[own].handler].principal
        let other = records.requests[classSource].handler
        guard classSource != own, seesAll || records.handlers[other].principal == principal else { return }
        json.member("class-from") { json in
            json.object { json in
                json.member("handler", records.handlers[other].id.description)
                writePrincipal(of: other, for: principal, to: &json)
                json.member("request", records.requests[classSource].request.description)
            }
        }
    }
}
