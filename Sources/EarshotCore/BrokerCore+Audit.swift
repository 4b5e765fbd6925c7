internal import DequeModule
public import EarshotWire
internal import HeapModule
internal import OrderedCollections

/// Checks of the core's invariants over all tables. Linear or worse in the size of the tables, for tests and
/// simulations.
extension BrokerCore {
    /// A sentence for each violation, which begins with the number of the invariant in ARCHITECTURE.md; empty if there
    /// is none.
    public func audit() -> [String] {
        var faults: [String] = []
        func check(_ holds: Bool, _ fault: @autoclosure () -> String) { if !holds { faults.append(fault()) } }
        auditLedger(check)
        auditFlights(check)
        auditParts(check)
        auditInterests(check)
        auditWorkers(check)
        auditHandlers(check)
        auditRemovals(check)
        auditSessions(check)
        auditDurables(check)
        auditOutcomes(check)
        faults += records.queue.checkInvariants()
        faults += auditQuotas()
        faults += auditPulls()
        faults += auditStoredResults()
        faults += Cluster.checkInvariants(in: records)
        return faults
    }

    /// Whether no request, transfer, terminal or stored state is left, as at the end of a run.
    public var isIdle: Bool {
        records.requests.isEmpty && records.flights.count == 0 && records.queue.count == 0
            && !isRemoving && records.outcomes.isEmpty && records.parts.isEmpty
            && runningAttempts == 0
            && records.durables.isEmpty
            && records.governor.origins.count == 0
            && records.ledger.requests.pending == 0
            && records.ledger.deliveries.outstanding == 0
    }

    /// Whether a request with this ID waits for the outcome of its flight.
    ///
    /// - Parameter principal: owner of the handler; nil for the administrator.
    public func isOpen(_ request: RequestID, of handler: HandlerID, _ principal: PrincipalName? = nil) -> Bool {
        phase(of: request, handler, principal) == .open
    }

    /// Whether the result of a request with this ID is held in memory until a listener has room.
    ///
    /// - Parameter principal: owner of the handler; nil for the administrator.
    public func isHeld(_ request: RequestID, of handler: HandlerID, _ principal: PrincipalName? = nil) -> Bool {
        phase(of: request, handler, principal) == .held
    }

    private func phase(of request: RequestID, _ handler: HandlerID, _ principal: PrincipalName?) -> Interest.Phase? {
        let number = principal.map { records.principals.handle(of: $0) } ?? PrincipalTable.administrator
        guard let number, let handler = records.handlers.handle(of: HandlerKey(number, handler)),
            let interest = records.listedInterest(request, of: handler)
        else {
            return nil
        }
        return records.requests[interest].phase
    }

    /// Number of timers, stale ones included.
    var timerCount: Int { records.outbox.timers.count }

    private typealias Check = (Bool, @autoclosure () -> String) -> Void

    private func auditLedger(_ check: Check) {
        check(records.ledger.requests.isBalanced, "10: requests do not balance: \(records.ledger.requests)")
        check(records.ledger.deliveries.isBalanced, "10: deliveries do not balance: \(records.ledger.deliveries)")
        let pending = records.requests.indices.count { records.requests[$0].phase != .delivering }
        check(
            records.ledger.requests.pending == pending, "10: \(pending) pending, not \(records.ledger.requests.pending)"
        )
        let outstanding =
            records.requests.indices.reduce(0) { $0 + Int(records.requests[$1].outstanding) }
            + records.outcomes.compact.indices.reduce(0) { sum, number in
                let failure = records.outcomes.compact[number]
                return failure.interest == nil ? sum + Int(failure.holders) : sum
            }
        check(records.ledger.deliveries.outstanding == outstanding, "10: \(outstanding) outstanding deliveries")
        let due = records.clients.indices.reduce(0) { $0 + records.clients[$1].deliveries.count }
        check(due == outstanding, "10: clients have \(due) due terminals, records have \(outstanding)")
        for client in records.clients.indices {
            let window = records.clients[client].deliveries
            for fault in window.checkInvariants() { check(false, "\(fault) (client \(client))") }
            let weight = window.entries.reduce(into: DeliveryWindow.Weight()) { $0 += records.weight(of: $1) }
            check(window.weight == weight, "11: client \(client) is due \(weight)")
        }
    }

    private func auditSessions(_ check: Check) {
        for client in records.clients.indices {
            let session = records.clients[client]
            check(
                session.replies.keptCount <= records.limits.keptReplies,
                "11: \(session.replies.keptCount) replies are kept for client \(client)")
        }
        for fault in records.clients.checkInvariants() { check(false, fault) }
        let used = Principals.principals(
            of: records.clients, records.handlers, records.quotas, records.workers, records.pools)
        for fault in records.principals.checkInvariants(used: used) { check(false, fault) }
        check(
            records.clients.awaySessions.count <= records.limits.awayClients,
            "11: \(records.clients.awaySessions.count) clients are kept aside")
    }

    private func auditHandlers(_ check: Check) {
        for fault in records.handlers.checkInvariants() { check(false, fault) }
        for fault in records.cookieJars.checkInvariants() { check(false, fault) }
        check(
            records.cookieJars.usedRoots.allSatisfy { records.handlers.hasRoot($0) },
            "12: a cookie jar in use has no root")
        check(
            records.handlers.subscribedClients.allSatisfy { records.clients.contains($0) },
            "12: subscriptions of a client that is gone"
        )
        var references: [Handle<HandlerEntry>: Int] = [:]
        for interest in records.requests.indices { references[records.requests[interest].handler, default: 0] += 1 }
        for number in records.outcomes.compact.indices {
            references[records.outcomes.compact[number].handler, default: 0] += 1
        }
        for handler in records.handlers.indices {
            let entry = records.handlers[handler]
            check(
                records.handlers.requests(of: handler).allSatisfy {
                    records.requests.contains($0) && records.requests[$0].handler == handler
                        && records.requests[$0].isListed
                }, "12: handler \(entry.id) lists a wrong request")
            check(
                entry.references == references[handler, default: 0],
                "12: handler \(entry.id) counts \(entry.references) of \(references[handler, default: 0]) references")
        }
    }

    private func auditRemovals(_ check: Check) {
        for handler in records.handlers.indices {
            let entry = records.handlers[handler]
            let open = records.handlers.requests(of: handler).filter { records.requests[$0].phase != .delivering }
            let own = open.count { records.requests[$0].owner == nil }
            check(
                entry.requests.pending == open.count && entry.ownRequests == own,
                "10: handler \(entry.id) has \(open.count) open requests, \(own) of its own")
        }
        let awaited = records.removals.values.reduce(into: Set()) { $0.formUnion($1.awaitedHandlers) }
        check(awaited.isSubset(of: records.handlers.removing), "2: a removal awaits a handler that is gone")
        check(records.removals.keys.allSatisfy { records.clients.contains($0) }, "2: a removal has no client")
        check(
            records.removals.allSatisfy {
                $1.isUnnaming || !$1.awaitedHandlers.isEmpty || records.clients[$0].deliveries.isWithdrawing
            }, "2: a removal has ended without a reply")
        check(
            records.clients.indices.allSatisfy {
                !records.clients[$0].deliveries.isWithdrawing || records.removals[$0] != nil
            },
            "1: terminals wait for a withdrawal that does not go on")
    }

    private func auditFlights(_ check: Check) {
        let bodies = records.flights.indices.compactMap { records.flights[$0].body }
        let held = records.requests.bodies
        check(
            Set(bodies) == Set(held.ids)
                && held.ids.allSatisfy { id in bodies.count { $0 == id } == held.holders(of: id) },
            "12: flights have \(bodies.count) bodies, \(held.ids.count) are held")
        check(
            records.requests.heads.holders.allSatisfy { holder in
                switch holder {
                case .flight(let flight): records.flights.contains(flight)
                case .entering(let interest): records.durables.entering(interest) != nil
                case .joined(let interest):
                    records.requests.contains(interest)
                        && records.requests[interest].extras.map { records.requests[$0].fields != nil } ?? false
                }
            }, "12: a counted head has no holder")
        for fault in records.flights.checkInvariants() { check(false, fault) }
        for number in records.flights.indices {
            let flight = records.flights[number]
            let name = records.flights.name(of: number)
            check(
                records.flights.isWanted(number) || records.flights.deferrals[number] != nil,
                "4: flight \(flight.id) has no interest")
            check(
                !flight.isRevalidation || flight.phase != .queued || flight.isSuspect
                    || records.revalidations.contains(name),
                "4: queued revalidation \(flight.id) is in no list")
            check(
                records.cachePlans[number]?.reading == nil || flight.phase == .asking,
                "4: flight \(flight.id) waits for a body and is \(flight.phase)")
            if flight.isSuspect, flight.phase == .queued {
                check(
                    records.pools[records.pool(of: number)].suspects.contains(name),
                    "4: queued suspect \(flight.id) is in no list")
            }
            if flight.isAlone {
                let count = flight.interests.count + records.flights[extras: number].parents.count
                check(
                    count == (flight.isHosted ? 0 : 1), "3: \(count) share flight \(flight.id), which is to be alone")
            }
            if case .running(let worker) = flight.phase {
                check(
                    records.workers.contains(worker)
                        && records.workers[worker].leases[records.attempt(of: number)]?.flight == number,
                    "6: flight \(flight.id) runs without a lease")
            }
        }
        check(records.cachePlans.keys.allSatisfy { records.flights.contains($0) }, "12: a cache plan has no flight")
    }

    private func auditParts(_ check: Check) {
        for number in records.parts.keptParts.keys {
            check(
                records.flights.contains(number) && !records.flights[number].isRunning,
                "12: flight \(number) must not keep a part")
        }
        for fault in records.parts.checkInvariants() { check(false, fault) }
        let growing = records.workers.indices.reduce(0) { sum, worker in
            records.workers[worker].leases.values.reduce(sum) { $0 + $1.growingBytes }
        }
        check(
            records.outcomes.growingBytes == growing, "11: \(growing) bytes grow, not \(records.outcomes.growingBytes)")
    }

    private func auditInterests(_ check: Check) {
        for fault in records.requests.checkInvariants() { check(false, fault) }
        let claimed = Set(records.handlers.indices.flatMap { records.storedResults.claimed(of: $0) })
        for number in records.requests.indices {
            let interest = records.requests[number]
            switch interest.phase {
            case .open:
                guard let flight = interest.flight, records.flights.contains(flight) else {
                    check(false, "1: open interest \(number) is in no flight")
                    continue
                }
                let leaf = records.flights.leaf(of: flight)
                let isQueued = records.flights[leaf].phase == .queued && !records.flights[leaf].isSuspect
                // The queue of a draining node lacks flights that only this node may fetch.
                let isLeft = records.isDraining && records.cluster != nil && isQueued
                check(
                    records.queue.contains(number) == isQueued || isLeft,
                    "4: interest \(number) and its flight differ on the queue")
            case .held:
                check(
                    records.isDoomed(number)
                        || records.listeners(of: interest.handler).isEmpty
                        || claimed.contains(records.requests.reference(to: number)),
                    "1: held interest \(number) has listeners and no claim")
            case .entering, .recording, .resting:
                check(records.isDurable(number), "12: interest \(number) is \(interest.phase) and not durable")
            case .delivering:
                check(interest.outstanding > 0, "12: interest \(number) has no delivery")
                check(!records.queue.contains(number), "2: ended interest \(number) is queued")
                if let file = interest.outcome.flatMap({ records.outcomes[$0].response?.file }), SpoolName.isTaken(file)
                {
                    let isExclusive = interest.outstanding == 1 && records.outcomes.files[file]?.holders == 1
                    check(isExclusive, "15: the file of interest \(number) has an owner and other users")
                }
            }
            let isCompact =
                records.outcomes.compactNumber(of: number).map {
                    interest.outstanding == records.outcomes.compact[$0].holders
                } ?? false
            let isOutcomeDue =
                interest.phase == .held || interest.phase == .delivering && !isCompact || interest.phase == .recording
            let hasOutcome = interest.outcome.map { records.outcomes.contains($0) } ?? false
            check(hasOutcome == isOutcomeDue, "1: interest \(number) has a wrong outcome")
        }
    }

    private func auditOutcomes(_ check: Check) {
        var holders: [Handle<CompactFailure>: Int] = [:]
        for client in records.clients.indices {
            let window = records.clients[client].deliveries
            var counts: [Handle<Outcome>: Int32] = [:]
            for due in window.entries {
                if case .compact(let number) = due.kind { holders[number, default: 0] += 1 }
                if let outcome = records.counted(due) { counts[outcome.outcome, default: 0] += 1 }
            }
            check(window.outcomes == counts, "11: client \(client) counts other outcomes than are due to it")
            let fields = counts.keys.reduce(0) { $0 + records.counted($1).fieldBytes }
            check(window.fieldBytes == fields, "11: client \(client) counts \(window.fieldBytes) of \(fields) bytes")
            check(
                counts.count <= records.limits.dueOutcomes || records.clients[client].isClosing
                    || records.clients[client].isGone,
                "11: \(counts.count) outcomes wait for client \(client)")
        }
        for number in records.outcomes.compact.indices {
            let failure = records.outcomes.compact[number]
            let due = holders.removeValue(forKey: number) ?? 0
            check(failure.holders == due, "12: \(failure.holders) hold owed failure \(number), due to \(due)")
            guard let interest = failure.interest else { continue }
            check(
                records.requests.contains(interest) && records.requests[interest].outstanding >= failure.holders,
                "12: owed failure \(number) names a wrong request")
        }
        check(holders.isEmpty, "1: \(holders.count) due failures have no record")
        for fault in records.outcomes.checkInvariants() { check(false, fault) }
    }

    private func auditDurables(_ check: Check) {
        for fault in records.durables.checkInvariants() { check(false, fault) }
        for client in records.durables.load.messages.keys
        where !records.clients.contains(client) || records.clients[client].isGone {
            check(false, "12: a message of an ended session waits for durable requests")
        }
        for (number, record) in records.durables.records {
            guard records.requests.contains(number) else {
                check(false, "12: durable \(record.id) has no request")
                continue
            }
            let interest = records.requests[number]
            check(interest.isListed && interest.owner == nil, "12: durable \(record.id) is owned, or was removed")
            let isLegal =
                switch record.phase {
                case .entering, .reopening: interest.phase == .entering
                case .stored: [.open, .held, .delivering].contains(interest.phase)
                case .writing: interest.phase == .recording
                case .complete: [.resting, .delivering].contains(interest.phase)
                case .reading: interest.phase == .resting
                }
            check(isLegal, "1: durable \(record.id) is \(record.phase) while its request is \(interest.phase)")
        }
        let resting = records.requests.indices.count { records.requests[$0].phase == .resting }
        let chained = records.handlers.indices.reduce(0) { $0 + Int(records.handlers[$1].restingRequests.count) }
        check(resting == chained, "12: \(resting) outcomes are on the disk alone, handlers have \(chained)")
    }

    private func auditWorkers(_ check: Check) {
        var running = [Handle<OriginEntry>: Int]()
        var lower = [Handle<OriginEntry>: Int]()
        for fault in records.workers.checkInvariants() + records.pools.checkInvariants() { check(false, fault) }
        auditRates(check)
        for worker in records.workers.indices {
            for (attempt, lease) in records.workers[worker].leases {
                running[lease.origin, default: 0] += 1
                if !lease.isHigh { lower[lease.origin, default: 0] += 1 }
                guard let flight = lease.flight else { continue }
                check(
                    records.flights.contains(flight) && records.attempt(of: flight) == attempt,
                    "3: \(attempt) of worker \(worker) is not the attempt of its flight")
            }
        }
        auditPools(check)
        auditOrigins(running, lower, check)
    }

    private func auditPools(_ check: Check) {
        for number in records.pools.indices where number != WorkerPool.web {
            let pool = records.pools[number]
            let scheme = pool.scheme ?? "none"
            let serving = records.workers.indices.count { records.workers[$0].pools.contains(number) }
            check(pool.workers == serving, "14: \(scheme) counts \(pool.workers) of \(serving) workers")
            guard case .awaited(let serial) = pool.phase else { continue }
            let awaited = Timer.Subject.poolEmpty(pool: number, absence: serial)
            check(
                records.outbox.timers.unordered.contains { $0.subject == awaited },
                "14: awaited pool \(scheme) has no timer")
        }
        var counts = [Handle<WorkerPool>: Int]()
        for origin in records.governor.origins.indices {
            counts[records.governor.origins[origin].pool, default: 0] += 1
        }
        for number in records.pools.indices {
            let count = counts[number, default: 0]
            check(
                records.pools[number].origins == count,
                "14: pool \(number) counts \(records.pools[number].origins) of \(count) origins"
            )
        }
        for worker in records.workers.indices {
            check(
                records.workers[worker].pools.allSatisfy { records.pools.contains($0) && !records.pools[$0].isClosed },
                "14: worker \(worker) serves a missing or closed pool")
        }
        auditPoolPrincipals(check)
    }

    /// A pool serves requests of its principal alone, and has workers of that principal and of the administrator. The
    /// administrator's pools serve all.
    private func auditPoolPrincipals(_ check: Check) {
        for worker in records.workers.indices where records.workers[worker].isRemote {
            let principal = records.workers[worker].principal
            check(
                records.workers[worker].pools.allSatisfy {
                    $0 != WorkerPool.web && records.pools[$0].principal == principal
                },
                "14: worker \(worker) of principal \(principal) serves another principal's pool")
            check(
                records.workers[worker].leases.values.allSatisfy { $0.part == nil },
                "14: worker \(worker) of principal \(principal) has a file")
        }
        for flight in records.flights.indices {
            let owner = records.pools[records.pool(of: flight)].principal
            guard owner != PrincipalTable.administrator else { continue }
            for interest in records.flights.interests(of: flight) {
                check(
                    records.principal(of: interest) == owner,
                    "14: flight \(flight) in a pool of principal \(owner) serves principal \(records.principal(of: interest))"
                )
            }
        }
    }

    private func auditRates(_ check: Check) {
        for fault in records.rates.checkInvariants() { check(false, fault) }
        guard let due = records.rates.nextDivision else { return }
        check(
            records.outbox.timers.unordered.contains { $0.subject == .rates(due) },
            "12: the division of rates has no timer")
    }

    private func auditOrigins(
        _ running: [Handle<OriginEntry>: Int], _ lower: [Handle<OriginEntry>: Int], _ check: Check
    ) {
        for fault in records.governor.checkInvariants(isCoordinated: Cluster.isCoordinated(WorkerPool.web, in: records))
        {
            check(false, fault)
        }
        let flightCounts = Dictionary(grouping: records.flights.indices) { records.flights[$0].scope }.mapValues(
            \.count)
        for scope in records.governor.scopes.indices {
            let count = records.governor.scopes[scope].flights
            check(count == flightCounts[scope, default: 0], "12: scope \(scope) counts \(count) flights")
        }
        for number in records.governor.origins.indices {
            let origin = records.governor.origins[number]
            var fresh = origin
            fresh.set(Origins.terms(for: origin, by: records.limits.origins, records.cluster))
            check(
                origin.ruleLimit == fresh.ruleLimit && origin.spacingMilliseconds == fresh.spacingMilliseconds
                    && origin.allowsHTTP2 == fresh.allowsHTTP2 && origin.rate == fresh.rate,
                "9: origin \(origin.origin) has other terms than the rules")
            check(origin.running == running[number, default: 0], "9: origin \(origin.origin) counts \(origin.running)")
            check(
                origin.transfersBelowHigh == lower[number, default: 0],
                "7: origin \(origin.origin) counts \(origin.transfersBelowHigh) of lower classes")
            guard let pause = origin.pause else { continue }
            let timer = Timer(at: origin.pauseEnd, subject: .paused(origin: number, pause: pause))
            check(
                records.outbox.timers.unordered.contains { $0.at == timer.at && $0.subject == timer.subject },
                "9: origin \(origin.origin) is paused without a timer")
        }
    }
}
