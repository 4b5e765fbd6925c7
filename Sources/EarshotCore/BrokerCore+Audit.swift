internal import DequeModule
public import EarshotWire
internal import HeapModule
internal import OrderedCollections

/// Checks of the core's invariants over all tables. Linear or worse in the size of the tables, for tests and
/// simulations.
extension BrokerCore {
    /// Returns a sentence for each violation, which begins with the number of the invariant in ARCHITECTURE.md; empty
    /// if there is none.
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
            && !hasPendingRemovals && records.outcomes.isEmpty && records.keptParts.isEmpty
            && runningAttemptCount == 0 && records.durables.isEmpty && records.originGovernor.origins.count == 0
            && records.ledger.requests.pending == 0 && records.ledger.deliveries.outstanding == 0
    }

    /// Whether a request with this ID waits for the outcome of its flight.
    ///
    /// - Parameter principal: owner of the handler; nil for the administrator.
    public func isRequestOpen(_ request: RequestID, of handler: HandlerID, _ principal: PrincipalName? = nil) -> Bool {
        interestPhase(of: request, handler, principal) == .open
    }

    /// Whether the result of a request with this ID is held in memory until a subscriber has room.
    ///
    /// - Parameter principal: owner of the handler; nil for the administrator.
    public func isResultHeld(_ request: RequestID, of handler: HandlerID, _ principal: PrincipalName? = nil) -> Bool {
        interestPhase(of: request, handler, principal) == .awaitingSubscriber
    }

    private func interestPhase(
        of request: RequestID, _ handler: HandlerID, _ principal: PrincipalName?
    ) -> Interest.Phase? {
        let number = principal.map { records.principals.handle(of: $0) } ?? PrincipalTable.administrator
        guard let number, let handler = records.handlers.handle(of: HandlerKey(number, handler)),
            let interest = records.interestHoldingID(request, of: handler)
        else {
            return nil
        }
        return records.requests[interest].phase
    }

    /// Number of timers, including stale ones.
    var timerCount: Int { records.outbox.timers.count }

    private typealias Check = (Bool, @autoclosure () -> String) -> Void

    private func auditLedger(_ check: Check) {
        check(records.ledger.requests.isBalanced, "10: requests do not balance: \(records.ledger.requests)")
        check(records.ledger.deliveries.isBalanced, "10: deliveries do not balance: \(records.ledger.deliveries)")
        let pending = records.requests.indices.count { records.requests[$0].phase != .delivering }
        check(
            records.ledger.requests.pending == pending,
            "10: \(pending) pending, not \(records.ledger.requests.pending)")
        let outstanding =
            records.requests.indices.reduce(0) { $0 + Int(records.requests[$1].outstandingDeliveryCount) }
            + records.outcomes.compactFailures.indices.reduce(0) { sum, number in
                let failure = records.outcomes.compactFailures[number]
                return failure.interest == nil ? sum + Int(failure.referenceCount) : sum
            }
        check(records.ledger.deliveries.outstanding == outstanding, "10: \(outstanding) outstanding deliveries")
        let due = records.clients.handles.reduce(0) { $0 + records.clients[$1].deliveries.dueTerminalCount }
        check(due == outstanding, "10: clients have \(due) due terminals, records have \(outstanding)")
        for client in records.clients.handles {
            let window = records.clients[client].deliveries
            for fault in window.checkInvariants() { check(false, "\(fault) (client \(client))") }
            let weight = window.dueTerminals.reduce(into: DeliveryWindow.ByteWeight()) {
                $0 += records.byteWeight(of: $1)
            }
            check(window.byteWeight == weight, "11: client \(client) is due \(weight)")
        }
    }

    private func auditSessions(_ check: Check) {
        for client in records.clients.handles {
            let session = records.clients[client]
            check(
                session.replies.keptReplyCount <= records.limits.maximumRepliesPerLeasedSession,
                "11: \(session.replies.keptReplyCount) replies are kept for client \(client)")
        }
        for fault in records.clients.checkInvariants() { check(false, fault) }
        let used = Principals.principalsInUse(
            by: records.clients, records.handlers, records.quotaUse, records.workers, records.workerPools)
        for fault in records.principals.checkInvariants(used: used) { check(false, fault) }
        check(
            records.clients.awaySessions.count <= records.limits.maximumDisconnectedSessions,
            "11: \(records.clients.awaySessions.count) clients are kept aside")
    }

    private func auditHandlers(_ check: Check) {
        for fault in records.handlers.checkInvariants() { check(false, fault) }
        for fault in records.cookieJars.checkInvariants() { check(false, fault) }
        check(
            records.cookieJars.activeRoots.allSatisfy { records.handlers.hasRoot($0) },
            "12: a cookie jar in use has no root")
        check(
            records.handlers.subscribedClients.allSatisfy { records.clients.contains($0) },
            "12: subscriptions of a client that is gone")
        var references: [Handle<HandlerEntry>: Int] = [:]
        for interest in records.requests.indices { references[records.requests[interest].handler, default: 0] += 1 }
        for number in records.outcomes.compactFailures.indices {
            references[records.outcomes.compactFailures[number].handler, default: 0] += 1
        }
        for handler in records.handlers.indices {
            let entry = records.handlers[handler]
            check(
                records.handlers.requests(of: handler).allSatisfy {
                    records.requests.contains($0) && records.requests[$0].handler == handler
                        && records.requests[$0].isRequestIDTaken
                }, "12: handler \(entry.id) lists a wrong request")
            check(
                entry.referenceCount == references[handler, default: 0],
                "12: handler \(entry.id) counts \(entry.referenceCount) of \(references[handler, default: 0]) references"
            )
        }
    }

    private func auditRemovals(_ check: Check) {
        for handler in records.handlers.indices {
            let entry = records.handlers[handler]
            let open = records.handlers.requests(of: handler).filter { records.requests[$0].phase != .delivering }
            let own = open.count { records.requests[$0].owner == nil }
            check(
                entry.requestCounts.pending == open.count && entry.openHandlerOwnedRequests == own,
                "10: handler \(entry.id) has \(open.count) open requests, \(own) of its own")
        }
        let awaited = records.activeClientRemovals.values.reduce(into: Set()) { $0.formUnion($1.awaitedHandlers) }
        check(awaited.isSubset(of: records.handlers.handlersBeingRemoved), "2: a removal awaits a handler that is gone")
        check(
            records.activeClientRemovals.keys.allSatisfy { records.clients.contains($0) }, "2: a removal has no client")
        check(
            records.activeClientRemovals.allSatisfy {
                $1.mayMatchNamedHandlers || !$1.awaitedHandlers.isEmpty || records.clients[$0].deliveries.isWithdrawing
            }, "2: a removal has ended without a reply")
        check(
            records.clients.handles.allSatisfy {
                !records.clients[$0].deliveries.isWithdrawing || records.activeClientRemovals[$0] != nil
            },
            "1: terminals wait for a withdrawal that does not go on")
    }

    private func auditFlights(_ check: Check) {
        let bodies = records.flights.indices.compactMap { records.flights[$0].body }
        let held = records.requests.requestBodies
        check(
            Set(bodies) == Set(held.bodyIDs)
                && held.bodyIDs.allSatisfy { id in bodies.count { $0 == id } == held.holdingFlightCount(of: id) },
            "12: flights have \(bodies.count) bodies, \(held.bodyIDs.count) are held")
        check(
            records.requests.requestHeads.holders.allSatisfy { holder in
                switch holder {
                case .flight(let flight): records.flights.contains(flight)
                case .durableRequest(let interest): records.durables.unacceptedRequest(interest) != nil
                case .joinedRequest(let interest):
                    records.requests.contains(interest)
                        && records.requests[interest].rareOptions.map { records.requests[$0].ownHeaderFields != nil }
                            ?? false
                }
            }, "12: a counted head has no holder")
        for fault in records.flights.checkInvariants() { check(false, fault) }
        for number in records.flights.indices {
            let flight = records.flights[number]
            let name = records.flights.name(of: number)
            check(
                records.flights.isResultNeeded(number) || records.flights.deferredCancellations[number] != nil,
                "4: flight \(flight.id) has no interest")
            check(
                !flight.isRevalidation || flight.phase != .queued || flight.isSuspectedOfWorkerDeath
                    || records.queuedRevalidations.contains(name),
                "4: queued revalidation \(flight.id) is in no list")
            check(
                records.cachePlans[number]?.readingSource == nil || flight.phase == .lookingUp,
                "4: flight \(flight.id) waits for a body and is \(flight.phase)")
            if flight.isSuspectedOfWorkerDeath, flight.phase == .queued {
                check(
                    records.workerPools[records.pool(of: number)].suspectFlights.contains(name),
                    "4: queued suspect \(flight.id) is in no list")
            }
            if flight.servesSingleRequest {
                let count = flight.interests.count + records.flights[redirectsAndFailuresOf: number].parentFlights.count
                check(
                    count == (flight.isAwaitedByOtherNodes ? 0 : 1),
                    "3: \(count) share flight \(flight.id), which is to be alone")
            }
            if case .running(let worker) = flight.phase {
                check(
                    records.workers.contains(worker)
                        && records.workers[worker].leases[records.currentAttempt(of: number)]?.flight == number,
                    "6: flight \(flight.id) runs without a lease")
            }
        }
        check(records.cachePlans.keys.allSatisfy { records.flights.contains($0) }, "12: a cache plan has no flight")
    }

    private func auditParts(_ check: Check) {
        for number in records.keptParts.keptPartsByFlight.keys {
            check(
                records.flights.contains(number) && !records.flights[number].isRunning,
                "12: flight \(number) must not keep a part")
        }
        for fault in records.keptParts.checkInvariants() { check(false, fault) }
        let growing = records.workers.indices.reduce(0) { sum, worker in
            records.workers[worker].leases.allLeases.reduce(sum) { $0 + $1.countedPartFileBytes }
        }
        check(
            records.outcomes.growingFileBytes == growing,
            "11: \(growing) bytes grow, not \(records.outcomes.growingFileBytes)")
    }

    private func auditInterests(_ check: Check) {
        for fault in records.requests.checkInvariants() { check(false, fault) }
        let claimed = Set(records.handlers.indices.flatMap { records.storedResults.claimedInterests(of: $0) })
        for number in records.requests.indices {
            let interest = records.requests[number]
            switch interest.phase {
            case .open:
                guard let flight = interest.flight, records.flights.contains(flight) else {
                    check(false, "1: open interest \(number) is in no flight")
                    continue
                }
                let leaf = records.flights.endOfRedirectChain(of: flight)
                let isQueued = records.flights[leaf].phase == .queued && !records.flights[leaf].isSuspectedOfWorkerDeath
                // The queue of a draining node lacks flights that only this node may fetch.
                let isLeft = records.isDraining && records.clusterState != nil && isQueued
                check(
                    records.queue.contains(number) == isQueued || isLeft,
                    "4: interest \(number) and its flight differ on the queue")
            case .awaitingSubscriber:
                check(
                    records.isAwaitingRemoval(number)
                        || records.subscribers(of: interest.handler).isEmpty
                        || claimed.contains(records.requests.reference(to: number)),
                    "1: held interest \(number) has subscribers and no claim")
            case .awaitingDurableAcceptance, .writingOutcome, .outcomeOnlyOnDisk:
                check(records.isDurable(number), "12: interest \(number) is \(interest.phase) and not durable")
            case .delivering:
                check(interest.outstandingDeliveryCount > 0, "12: interest \(number) has no delivery")
                check(!records.queue.contains(number), "2: ended interest \(number) is queued")
                if let file = interest.outcome.flatMap({ records.outcomes[$0].response?.bodyFile }),
                    SpoolName.isTakenFile(file)
                {
                    let isExclusive =
                        interest.outstandingDeliveryCount == 1 && records.outcomes.spoolFiles[file]?.referenceCount == 1
                    check(isExclusive, "15: the file of interest \(number) has an owner and other users")
                }
            }
            let isCompact =
                records.outcomes.compactFailureHandle(of: number).map {
                    interest.outstandingDeliveryCount == records.outcomes.compactFailures[$0].referenceCount
                } ?? false
            let isOutcomeDue =
                interest.phase == .awaitingSubscriber || interest.phase == .delivering && !isCompact
                || interest.phase == .writingOutcome
            let hasOutcome = interest.outcome.map { records.outcomes.contains($0) } ?? false
            check(hasOutcome == isOutcomeDue, "1: interest \(number) has a wrong outcome")
        }
    }

    private func auditOutcomes(_ check: Check) {
        var holders: [Handle<CompactFailure>: Int] = [:]
        for client in records.clients.handles {
            let window = records.clients[client].deliveries
            var counts: [Handle<Outcome>: Int32] = [:]
            for due in window.dueTerminals {
                if case .compactFailure(let number) = due.kind { holders[number, default: 0] += 1 }
                if let outcome = records.countedOutcome(ofDue: due) { counts[outcome.outcome, default: 0] += 1 }
            }
            check(window.countedOutcomes == counts, "11: client \(client) counts other outcomes than are due to it")
            let fields = counts.keys.reduce(0) { $0 + records.countedOutcome($1).fieldBytes }
            check(
                window.headerFieldBytes == fields,
                "11: client \(client) counts \(window.headerFieldBytes) of \(fields) bytes")
            check(
                counts.count <= records.limits.maximumDueOutcomesPerClient || records.clients[client].isCloseRequested
                    || records.clients[client].hasEnded,
                "11: \(counts.count) outcomes wait for client \(client)")
        }
        for number in records.outcomes.compactFailures.indices {
            let failure = records.outcomes.compactFailures[number]
            let due = holders.removeValue(forKey: number) ?? 0
            check(
                failure.referenceCount == due,
                "12: \(failure.referenceCount) hold owed failure \(number), due to \(due)")
            guard let interest = failure.interest else { continue }
            check(
                records.requests.contains(interest)
                    && records.requests[interest].outstandingDeliveryCount >= failure.referenceCount,
                "12: owed failure \(number) names a wrong request")
        }
        check(holders.isEmpty, "1: \(holders.count) due failures have no record")
        for fault in records.outcomes.checkInvariants() { check(false, fault) }
    }

    private func auditDurables(_ check: Check) {
        for fault in records.durables.checkInvariants() { check(false, fault) }
        for client in records.durables.loadState.waitingMessages.keys
        where !records.clients.contains(client) || records.clients[client].hasEnded {
            check(false, "12: a message of an ended session waits for durable requests")
        }
        for (number, record) in records.durables.records {
            guard records.requests.contains(number) else {
                check(false, "12: durable \(record.id) has no request")
                continue
            }
            let interest = records.requests[number]
            check(
                interest.isRequestIDTaken && interest.owner == nil, "12: durable \(record.id) is owned, or was removed")
            let isLegal =
                switch record.phase {
                case .writingRequest, .deletingFailure: interest.phase == .awaitingDurableAcceptance
                case .stored: [.open, .awaitingSubscriber, .delivering].contains(interest.phase)
                case .writingResult: interest.phase == .writingOutcome
                case .complete: [.outcomeOnlyOnDisk, .delivering].contains(interest.phase)
                case .readingResult: interest.phase == .outcomeOnlyOnDisk
                }
            check(isLegal, "1: durable \(record.id) is \(record.phase) while its request is \(interest.phase)")
        }
        let resting = records.requests.indices.count { records.requests[$0].phase == .outcomeOnlyOnDisk }
        let chained = records.handlers.indices.reduce(0) {
            $0 + Int(records.handlers[$1].durableRequestsAwaitingSubscriber.count)
        }
        check(resting == chained, "12: \(resting) outcomes are on the disk alone, handlers have \(chained)")
    }

    private func auditWorkers(_ check: Check) {
        var running = [Handle<OriginEntry>: Int]()
        var lower = [Handle<OriginEntry>: Int]()
        for fault in records.workers.checkInvariants() + records.workerPools.checkInvariants() { check(false, fault) }
        auditRates(check)
        for worker in records.workers.indices {
            for (attempt, lease) in records.workers[worker].leases {
                running[lease.origin, default: 0] += 1
                if !lease.isHighPriority { lower[lease.origin, default: 0] += 1 }
                guard let flight = lease.flight else { continue }
                check(
                    records.flights.contains(flight) && records.currentAttempt(of: flight) == attempt,
                    "3: \(attempt) of worker \(worker) is not the attempt of its flight")
            }
        }
        auditPools(check)
        auditOrigins(running, lower, check)
    }

    private func auditPools(_ check: Check) {
        for number in records.workerPools.indices where number != WorkerPool.webPoolHandle {
            let pool = records.workerPools[number]
            let scheme = pool.scheme ?? "none"
            let serving = records.workers.indices.count { records.workers[$0].pools.contains(number) }
            check(pool.ownWorkerCount == serving, "14: \(scheme) counts \(pool.ownWorkerCount) of \(serving) workers")
            guard case .awaited(let serial) = pool.phase else { continue }
            let awaited = CoreTimer.TimerEvent.emptyPoolGraceEnd(pool: number, absence: serial)
            check(
                records.outbox.timers.unordered.contains { $0.timerEvent == awaited },
                "14: awaited pool \(scheme) has no timer")
        }
        var counts = [Handle<WorkerPool>: Int]()
        for origin in records.originGovernor.origins.indices {
            counts[records.originGovernor.origins[origin].workerPool, default: 0] += 1
        }
        for number in records.workerPools.indices {
            let count = counts[number, default: 0]
            check(
                records.workerPools[number].originCount == count,
                "14: pool \(number) counts \(records.workerPools[number].originCount) of \(count) origins")
        }
        for worker in records.workers.indices {
            check(
                records.workers[worker].pools.allSatisfy {
                    records.workerPools.contains($0) && !records.workerPools[$0].isClosed
                },
                "14: worker \(worker) serves a missing or closed pool")
        }
        auditPoolPrincipals(check)
    }

    /// Checks that a pool serves requests of its principal alone, and has workers of that principal and of the
    /// administrator. The administrator's pools serve all.
    private func auditPoolPrincipals(_ check: Check) {
        for worker in records.workers.indices where records.workers[worker].isRemote {
            let principal = records.workers[worker].principal
            check(
                records.workers[worker].pools.allSatisfy {
                    $0 != WorkerPool.webPoolHandle && records.workerPools[$0].principal == principal
                },
                "14: worker \(worker) of principal \(principal) serves another principal's pool")
            check(
                records.workers[worker].leases.allLeases.allSatisfy { $0.partFile == nil },
                "14: worker \(worker) of principal \(principal) has a file")
        }
        for flight in records.flights.indices {
            let owner = records.workerPools[records.pool(of: flight)].principal
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
        for fault in records.rateShares.checkInvariants() { check(false, fault) }
        guard let due = records.rateShares.nextDivisionAt else { return }
        check(
            records.outbox.timers.unordered.contains { $0.timerEvent == .rateDivision(due) },
            "12: the division of rates has no timer")
    }

    private func auditOrigins(
        _ running: [Handle<OriginEntry>: Int], _ lower: [Handle<OriginEntry>: Int], _ check: Check
    ) {
        let isCoordinated = Cluster.isCoordinated(WorkerPool.webPoolHandle, in: records)
        for fault in records.originGovernor.checkInvariants(isCoordinated: isCoordinated) { check(false, fault) }
        let flightsByScope = Dictionary(grouping: records.flights.indices) { records.flights[$0].originScope }
        for scope in records.originGovernor.scopes.indices {
            let count = records.originGovernor.scopes[scope].flightCount
            check(count == flightsByScope[scope, default: []].count, "12: scope \(scope) counts \(count) flights")
        }
        for number in records.originGovernor.origins.indices {
            let origin = records.originGovernor.origins[number]
            var expected = origin
            expected.setTerms(Origins.effectiveTerms(for: origin, by: records.limits.originRules, records.clusterState))
            check(
                origin.transferLimitByRules == expected.transferLimitByRules
                    && origin.spacingMilliseconds == expected.spacingMilliseconds
                    && origin.allowsHTTP2 == expected.allowsHTTP2
                    && origin.maximumBytesPerSecond == expected.maximumBytesPerSecond,
                "9: origin \(origin.origin) has other terms than the rules")
            check(
                origin.runningTransferCount == running[number, default: 0],
                "9: origin \(origin.origin) counts \(origin.runningTransferCount)")
            check(
                origin.belowHighTransferCount == lower[number, default: 0],
                "7: origin \(origin.origin) counts \(origin.belowHighTransferCount) of lower classes")
            guard let pause = origin.spacingTimerSerial else { continue }
            let timer = CoreTimer(dueAt: origin.pauseEnd, timerEvent: .originSpacingEnd(origin: number, pause: pause))
            check(
                records.outbox.timers.unordered.contains {
                    $0.dueAt == timer.dueAt && $0.timerEvent == timer.timerEvent
                },
                "9: origin \(origin.origin) is paused without a timer")
        }
    }
}

/// Checks of the quotas: `QuotaBook` counts the same use as the tables contain. `audit` calls it.
extension BrokerCore {
    /// Returns a sentence for each violated invariant of the quotas. Linear in all tables.
    func auditQuotas() -> [String] {
        var uses: [Handle<Principal>: QuotaBook.Use] = [:]
        for handler in records.handlers.indices {
            uses[records.handlers[handler].principal, default: .init()].openRequests +=
                records.handlers[handler].requestCounts.pending
        }
        for worker in records.workers.indices {
            for lease in records.workers[worker].leases.allLeases {
                uses[lease.principal, default: .init()].transfers += 1
                uses[lease.principal, default: .init()].spoolBytes += lease.countedPartFileBytes
            }
        }
        for charge in records.clusterState.map({ Array($0.value.quotaCharges.values) }) ?? [] {
            uses[charge.principal, default: .init()].transfers += 1
        }
        for client in records.clients.handles {
            let principal = records.clients[client].principal
            uses[principal, default: .init()].spoolBytes += records.clients[client].deliveries.byteWeight.bodyBytes
            uses[principal, default: .init()].memoryBytes += records.clients[client].deliveries.byteWeight.bytesInMemory
            uses[principal, default: .init()].terminals += records.clients[client].deliveries.dueTerminalCount
            uses[principal, default: .init()].subscriptions += records.handlers.subscriptionCount(of: client)
        }
        for head in records.requests.requestHeads.countedHeads {
            uses[head.principal, default: .init()].headBytes += head.byteCount
        }
        for body in records.requests.requestBodies.allBodies {
            uses[body.principal, default: .init()].bodyBytes += body.byteCount
        }
        for part in records.keptParts.keptPartsByFlight.values {
            uses[part.principal, default: .init()].waitingParts += 1
            uses[part.principal, default: .init()].spoolBytes += part.keptBodyBytes
        }
        for (principal, bytes) in records.cookieJars.bytesByPrincipal {
            uses[principal, default: .init()].cookieBytes += bytes
        }
        for interest in records.requests.indices {
            if records.requests[interest].phase == .awaitingSubscriber {
                let weight = records.byteWeightOfHeldOutcome(of: interest)
                uses[records.principal(of: interest), default: .init()].spoolBytes += weight.bodyBytes
                uses[records.principal(of: interest), default: .init()].memoryBytes += weight.bytesInMemory
            }
            if let record = records.durables.records[interest] {
                uses[records.principal(of: interest), default: .init()].durableBytes +=
                    record.requestBytes + record.resultBytes
            }
        }
        return records.quotaUse.checkInvariants(expected: uses)
    }
}
