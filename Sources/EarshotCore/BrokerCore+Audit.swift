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
        auditInterests(check)
        auditWorkers(check)
        auditHandlers(check)
        auditRemovals(check)
        auditSessions(check)
        auditDurables(check)
        auditOutcomes(check)
        faults += queue.checkInvariants()
        faults += auditQuotas()
        faults += auditPulls()
        faults += auditStoredResults()
        faults += auditCluster()
        return faults
    }

    /// Whether no request, transfer, terminal or stored state is left, as at the end of a run.
    public var isIdle: Bool {
        interests.count == 0 && flights.count == 0 && extras.count == 0 && queue.count == 0
            && !isRemoving && outcomes.isEmpty && parts.isEmpty
            && runningAttempts == 0
            && durables.isEmpty
            && governor.origins.count == 0
            && requestBodies.ids.isEmpty && requestHeads == RequestHeads() && ledger.requests.pending == 0
            && ledger.deliveries.outstanding == 0
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
        let number = principal.map { principals.number(of: $0) } ?? PrincipalTable.administrator
        guard let number, let handler = handlers.number(of: HandlerKey(number, handler)),
            let interest = listedInterest(request, of: handler)
        else {
            return nil
        }
        return interests[interest].phase
    }

    /// Number of timers, stale ones included.
    var timerCount: Int { timers.count }

    private typealias Check = (Bool, @autoclosure () -> String) -> Void

    private func auditLedger(_ check: Check) {
        check(ledger.requests.isBalanced, "10: requests do not balance: \(ledger.requests)")
        check(ledger.deliveries.isBalanced, "10: deliveries do not balance: \(ledger.deliveries)")
        let pending = interests.indices.count { interests[$0].phase != .delivering }
        check(ledger.requests.pending == pending, "10: \(pending) pending, not \(ledger.requests.pending)")
        let outstanding =
            interests.indices.reduce(0) { $0 + Int(interests[$1].outstanding) }
            + outcomes.owed.indices.reduce(0) { sum, number in
                let failure = outcomes.owed[number]
                return failure.interest == nil ? sum + Int(failure.holders) : sum
            }
        check(ledger.deliveries.outstanding == outstanding, "10: \(outstanding) outstanding deliveries")
        let due = clients.indices.reduce(0) { $0 + clients[$1].deliveries.count }
        check(due == outstanding, "10: clients have \(due) due terminals, records have \(outstanding)")
        for client in clients.indices {
            let window = clients[client].deliveries
            for fault in window.checkInvariants() { check(false, "\(fault) (client \(client))") }
            let weight = window.entries.reduce(into: DeliveryWindow.Weight()) { $0 += self.weight(of: $1) }
            check(window.weight == weight, "11: client \(client) is due \(weight)")
        }
    }

    private func auditSessions(_ check: Check) {
        for client in clients.indices {
            let session = clients[client]
            check(
                session.replies.kept <= limits.keptReplies,
                "11: \(session.replies.kept) replies are kept for client \(client)")
        }
        for fault in clients.checkInvariants() { check(false, fault) }
        let used = Self.principals(of: clients, handlers, quotas, workers, pools)
        for fault in principals.checkInvariants(used: used) { check(false, fault) }
        check(clients.away.count <= limits.awayClients, "11: \(clients.away.count) clients are kept aside")
    }

    private func auditHandlers(_ check: Check) {
        for fault in handlers.checkInvariants() { check(false, fault) }
        for fault in cookieJars.checkInvariants() { check(false, fault) }
        check(cookieJars.used.allSatisfy { handlers.hasRoot($0) }, "12: a cookie jar in use has no root")
        check(
            handlers.subscribedClients.allSatisfy { clients.contains($0) }, "12: subscriptions of a client that is gone"
        )
        var references: [Handle<HandlerEntry>: Int] = [:]
        for interest in interests.indices { references[interests[interest].handler, default: 0] += 1 }
        for number in outcomes.owed.indices { references[outcomes.owed[number].handler, default: 0] += 1 }
        for handler in handlers.indices {
            let entry = handlers[handler]
            check(
                handlers.requests(of: handler).allSatisfy {
                    interests.contains($0) && interests[$0].handler == handler && interests[$0].isListed
                }, "12: handler \(entry.id) lists a wrong request")
            check(
                entry.references == references[handler, default: 0],
                "12: handler \(entry.id) counts \(entry.references) of \(references[handler, default: 0]) references")
        }
    }

    private func auditRemovals(_ check: Check) {
        for handler in handlers.indices {
            let entry = handlers[handler]
            let open = handlers.requests(of: handler).filter { interests[$0].phase != .delivering }
            let own = open.count { interests[$0].owner == nil }
            check(
                entry.requests.pending == open.count && entry.ownRequests == own,
                "10: handler \(entry.id) has \(open.count) open requests, \(own) of its own")
        }
        let awaited = removals.values.reduce(into: Set()) { $0.formUnion($1.awaited) }
        check(awaited.isSubset(of: handlers.removing), "2: a removal awaits a handler that is gone")
        check(removals.keys.allSatisfy { clients.contains($0) }, "2: a removal has no client")
        check(
            removals.allSatisfy {
                $1.isUnnaming || !$1.awaited.isEmpty || clients[$0].deliveries.isWithdrawing
            }, "2: a removal has ended without a reply")
        check(
            clients.indices.allSatisfy { !clients[$0].deliveries.isWithdrawing || removals[$0] != nil },
            "1: terminals wait for a withdrawal that does not go on")
    }

    private func auditFlights(_ check: Check) {
        let bodies = flights.indices.compactMap { flights[$0].body }
        check(
            Set(bodies) == Set(requestBodies.ids)
                && requestBodies.ids.allSatisfy { id in bodies.count { $0 == id } == requestBodies.holders(of: id) },
            "12: flights have \(bodies.count) bodies, \(requestBodies.ids.count) are held")
        check(
            requestHeads.holders.allSatisfy { holder in
                switch holder {
                case .flight(let flight): flights.contains(flight)
                case .entering(let interest): durables.entering(interest) != nil
                case .joined(let interest):
                    interests.contains(interest)
                        && interests[interest].extras.map { extras[$0].fields != nil } ?? false
                }
            }, "12: a counted head has no holder")
        for fault in flights.checkInvariants() { check(false, fault) }
        for number in flights.indices {
            let flight = flights[number]
            let name = flights.name(of: number)
            check(
                flight.isWanted || flights.deferrals[number] != nil,
                "4: flight \(flight.id) has no interest")
            check(
                !flight.isRevalidation || flight.phase != .queued || flight.isSuspect || revalidations.contains(name),
                "4: queued revalidation \(flight.id) is in no list")
            check(
                cachePlans[number]?.reading == nil || flight.phase == .asking,
                "4: flight \(flight.id) waits for a body and is \(flight.phase)")
            if flight.isSuspect, flight.phase == .queued {
                check(pools[pool(of: number)].suspects.contains(name), "4: queued suspect \(flight.id) is in no list")
            }
            if flight.isAlone {
                let count = flight.interests.count + flight.parents.count
                check(
                    count == (flight.isHosted ? 0 : 1), "3: \(count) share flight \(flight.id), which is to be alone")
            }
            if case .running(let worker) = flight.phase {
                check(
                    workers.contains(worker) && workers[worker].leases[attempt(of: number)]?.flight == number,
                    "6: flight \(flight.id) runs without a lease")
            }
        }
        for number in parts.kept.keys {
            check(
                flights.contains(number) && !flights[number].isRunning, "12: flight \(number) must not keep a part")
        }
        for fault in parts.checkInvariants() { check(false, fault) }
        let growing = workers.indices.reduce(0) { sum, worker in
            workers[worker].leases.values.reduce(sum) { $0 + $1.growingBytes }
        }
        check(outcomes.growingBytes == growing, "11: \(growing) bytes grow, not \(outcomes.growingBytes)")
        check(cachePlans.keys.allSatisfy { flights.contains($0) }, "12: a cache plan has no flight")
    }

    private func auditInterests(_ check: Check) {
        let claimed = Set(handlers.indices.flatMap { storedResults.claimed(of: $0) })
        for number in interests.indices {
            let interest = interests[number]
            switch interest.phase {
            case .open:
                guard let flight = interest.flight, flights.contains(flight) else {
                    check(false, "1: open interest \(number) is in no flight")
                    continue
                }
                let leaf = flights.leaf(of: flight)
                let isQueued = flights[leaf].phase == .queued && !flights[leaf].isSuspect
                // The queue of a draining node lacks flights that only this node may fetch.
                let isLeft = isDraining && cluster != nil && isQueued
                check(
                    queue.contains(number) == isQueued || isLeft,
                    "4: interest \(number) and its flight differ on the queue")
            case .held:
                check(
                    isDoomed(number) || listeners(of: interest.handler).isEmpty
                        || claimed.contains(interests.reference(to: number)),
                    "1: held interest \(number) has listeners and no claim")
            case .entering, .recording, .resting:
                check(isDurable(number), "12: interest \(number) is \(interest.phase) and not durable")
            case .delivering:
                check(interest.outstanding > 0, "12: interest \(number) has no delivery")
                check(!queue.contains(number), "2: ended interest \(number) is queued")
                if let file = interest.outcome.flatMap({ outcomes[$0].response?.file }), SpoolName.isTaken(file) {
                    let isExclusive = interest.outstanding == 1 && outcomes.files[file]?.holders == 1
                    check(isExclusive, "15: the file of interest \(number) has an owner and other users")
                }
            }
            let isOwed =
                outcomes.owedNumber(of: number).map { interest.outstanding == outcomes.owed[$0].holders } ?? false
            let isOutcomeDue =
                interest.phase == .held || interest.phase == .delivering && !isOwed || interest.phase == .recording
            let hasOutcome = interest.outcome.map { outcomes.contains($0) } ?? false
            check(hasOutcome == isOutcomeDue, "1: interest \(number) has a wrong outcome")
        }
    }

    private func auditOutcomes(_ check: Check) {
        var holders: [Handle<OwedFailure>: Int] = [:]
        for client in clients.indices {
            let window = clients[client].deliveries
            var counts: [Handle<Outcome>: Int32] = [:]
            for due in window.entries {
                if case .owed(let number) = due.kind { holders[number, default: 0] += 1 }
                if let outcome = counted(due) { counts[outcome.outcome, default: 0] += 1 }
            }
            check(window.outcomes == counts, "11: client \(client) counts other outcomes than are due to it")
            let fields = counts.keys.reduce(0) { $0 + counted($1).fieldBytes }
            check(window.fieldBytes == fields, "11: client \(client) counts \(window.fieldBytes) of \(fields) bytes")
            check(
                counts.count <= limits.dueOutcomes || clients[client].isClosing || clients[client].isGone,
                "11: \(counts.count) outcomes wait for client \(client)")
        }
        for number in outcomes.owed.indices {
            let failure = outcomes.owed[number]
            let due = holders.removeValue(forKey: number) ?? 0
            check(failure.holders == due, "12: \(failure.holders) hold owed failure \(number), due to \(due)")
            guard let interest = failure.interest else { continue }
            check(
                interests.contains(interest) && interests[interest].outstanding >= failure.holders,
                "12: owed failure \(number) names a wrong request")
        }
        check(holders.isEmpty, "1: \(holders.count) due failures have no record")
        for fault in outcomes.checkInvariants() { check(false, fault) }
    }

    private func auditDurables(_ check: Check) {
        for fault in durables.checkInvariants() { check(false, fault) }
        for client in durables.load.messages.keys where !clients.contains(client) || clients[client].isGone {
            check(false, "12: a message of an ended session waits for durable requests")
        }
        for (number, record) in durables.records {
            guard interests.contains(number) else {
                check(false, "12: durable \(record.id) has no request")
                continue
            }
            let interest = interests[number]
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
        let resting = interests.indices.count { interests[$0].phase == .resting }
        let chained = handlers.indices.reduce(0) { $0 + Int(handlers[$1].resting.count) }
        check(resting == chained, "12: \(resting) outcomes are on the disk alone, handlers have \(chained)")
    }

    private func auditWorkers(_ check: Check) {
        var running = [Handle<OriginEntry>: Int]()
        var lower = [Handle<OriginEntry>: Int]()
        for fault in workers.checkInvariants() + pools.checkInvariants() { check(false, fault) }
        auditRates(check)
        for worker in workers.indices {
            for (attempt, lease) in workers[worker].leases {
                running[lease.origin, default: 0] += 1
                if !lease.isHigh { lower[lease.origin, default: 0] += 1 }
                guard let flight = lease.flight else { continue }
                check(
                    flights.contains(flight) && self.attempt(of: flight) == attempt,
                    "3: \(attempt) of worker \(worker) is not the attempt of its flight")
            }
        }
        auditPools(check)
        auditOrigins(running, lower, check)
    }

    private func auditPools(_ check: Check) {
        for number in pools.indices where number != WorkerPool.web {
            let pool = pools[number]
            let scheme = pool.scheme ?? "none"
            let serving = workers.indices.count { workers[$0].pools.contains(number) }
            check(pool.workers == serving, "14: \(scheme) counts \(pool.workers) of \(serving) workers")
            guard case .awaited(let serial) = pool.phase else { continue }
            let awaited = Timer.Subject.lonely(pool: number, absence: serial)
            check(timers.unordered.contains { $0.subject == awaited }, "14: awaited pool \(scheme) has no timer")
        }
        var counts = [Handle<WorkerPool>: Int]()
        for origin in governor.origins.indices { counts[governor.origins[origin].pool, default: 0] += 1 }
        for number in pools.indices {
            let count = counts[number, default: 0]
            check(
                pools[number].origins == count, "14: pool \(number) counts \(pools[number].origins) of \(count) origins"
            )
        }
        for worker in workers.indices {
            check(
                workers[worker].pools.allSatisfy { pools.contains($0) && !pools[$0].isClosed },
                "14: worker \(worker) serves a missing or closed pool")
        }
        auditPoolPrincipals(check)
    }

    /// A pool serves requests of its principal alone, and has workers of that principal and of the administrator. The
    /// administrator's pools serve all.
    private func auditPoolPrincipals(_ check: Check) {
        for worker in workers.indices where workers[worker].isRemote {
            let principal = workers[worker].principal
            check(
                workers[worker].pools.allSatisfy { $0 != WorkerPool.web && pools[$0].principal == principal },
                "14: worker \(worker) of principal \(principal) serves another principal's pool")
            check(
                workers[worker].leases.values.allSatisfy { $0.part == nil },
                "14: worker \(worker) of principal \(principal) has a file")
        }
        for flight in flights.indices {
            let owner = pools[pool(of: flight)].principal
            guard owner != PrincipalTable.administrator else { continue }
            for interest in flights.interests(of: flight) {
                check(
                    principal(of: interest) == owner,
                    "14: flight \(flight) in a pool of principal \(owner) serves principal \(principal(of: interest))")
            }
        }
    }

    private func auditRates(_ check: Check) {
        for fault in rates.checkInvariants() { check(false, fault) }
        guard let due = rates.due else { return }
        check(timers.unordered.contains { $0.subject == .rates(due) }, "12: the division of rates has no timer")
    }

    private func auditOrigins(
        _ running: [Handle<OriginEntry>: Int], _ lower: [Handle<OriginEntry>: Int], _ check: Check
    ) {
        for fault in governor.checkInvariants(isCoordinated: isCoordinated(WorkerPool.web)) { check(false, fault) }
        let flightCounts = Dictionary(grouping: flights.indices) { flights[$0].scope }.mapValues(\.count)
        for scope in governor.scopes.indices {
            let count = governor.scopes[scope].flights
            check(count == flightCounts[scope, default: 0], "12: scope \(scope) counts \(count) flights")
        }
        for number in governor.origins.indices {
            let origin = governor.origins[number]
            var fresh = origin
            fresh.set(terms(for: origin))
            check(
                origin.ruleLimit == fresh.ruleLimit && origin.spacingMilliseconds == fresh.spacingMilliseconds
                    && origin.allowsHTTP2 == fresh.allowsHTTP2 && origin.rate == fresh.rate,
                "9: origin \(origin.origin) has other terms than the rules")
            check(origin.running == running[number, default: 0], "9: origin \(origin.origin) counts \(origin.running)")
            check(
                origin.lower == lower[number, default: 0],
                "7: origin \(origin.origin) counts \(origin.lower) of lower classes")
            guard let pause = origin.pause else { continue }
            let timer = Timer(at: origin.pauseEnd, subject: .paused(origin: number, pause: pause))
            check(
                timers.unordered.contains { $0.at == timer.at && $0.subject == timer.subject },
                "9: origin \(origin.origin) is paused without a timer")
        }
    }
}
