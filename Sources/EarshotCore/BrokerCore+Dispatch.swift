internal import EarshotHTTP
internal import EarshotWire

/// Assignment: the choice of the next interest and of its worker.
extension BrokerCore {
    /// Assigns flights to workers with free slots. The shell calls it once per pass, after the events.
    ///
    /// - Parameter hasUnread: whether a client has sent more than the pass has read. Called only for clients that may
    ///   rejoin a flight which they have left.
    public mutating func dispatch(now: MonotonicTime, hasUnread: (ClientID) -> Bool = { _ in false }) {
        records.latestEventTime = now
        // Last, since assigning an attempt renames the part that it resumes.
        defer { if records.bodyPulls.hasAnswerableReads { Delivery.answerPendingReads(in: &records) } }
        continueRemovals(now: now)
        continueDurableLoad(now: now)
        resolveDeferredCancellations(hasUnread: hasUnread, now: now)
        continueEndingRequests(now: now)
        continueDeliveringStoredResults()
        // A draining broker starts nothing, so it must not request another pass.
        hasWorkForNextPass = false
        guard !records.isDraining, !records.workers.isAwaitingEarlierProcesses else {
            if records.isDraining { handOverFlights(now: now) }
            return
        }
        // All suspects first: the end of a quarantine frees slots in each pool that its worker serves.
        for place in 0..<records.workerPools.indexBound {
            guard let pool = records.workerPools.handle(atIndex: place) else { continue }
            guard !records.workerPools[pool].suspectFlights.isEmpty || records.workerPools[pool].quarantineWorker != nil
            else { continue }
            startNextSuspect(of: pool, now: now)
        }
        for place in 0..<records.workerPools.indexBound {
            guard let pool = records.workerPools.handle(atIndex: place) else { continue }
            startReturnedFlights(in: pool, now: now)
            guard records.queue.count(in: pool) > 0 else { continue }
            if records.workerPools[pool].isClosed {
                failQueuedRequests(in: pool, now: now)
            } else if Cluster.isCoordinated(pool, in: records) {
                claimQueuedFlights(now: now)
            } else {
                startQueuedFlights(in: pool, now: now)
            }
        }
        startRevalidations(now: now)
    }

    /// Starts queued interests while the pool has free slots. Doomed requests and requests to refusing origins, which
    /// need no slot, are bounded per pass.
    mutating func startQueuedFlights(in pool: Handle<WorkerPool>, now: MonotonicTime) {
        var refusals = 0
        while true {
            let slots = records.workers.slotCount(of: pool)
            guard slots.freeSlots > 0,
                let flight = nextFlightToStart(
                    in: pool, isForHigh: slots.onlyHighMayStart, isClaiming: false, &refusals, now: now)
            else { return }
            startFlight(flight, now: now)
        }
    }

    /// Returns the flight of the next interest; nil if there is none for now. Removes doomed requests and fails those
    /// to refusing origins on the way. At their maximum per pass, leaves the rest to the next pass.
    ///
    /// - Parameters:
    ///   - isClaiming: whether the engine of the cluster applies the limits of origins.
    ///   - refusals: number of failed flights and of removed requests in this pass; incremented.
    @inline(__always)
    mutating func nextFlightToStart(
        in pool: Handle<WorkerPool>, isForHigh: Bool, isClaiming: Bool, _ refusals: inout Int, now: MonotonicTime
    ) -> Handle<Flight>? {
        while let interest = nextInterest(in: pool, isForHigh: isForHigh, isClaiming: isClaiming) {
            if records.isAwaitingRemoval(interest) {
                removeRequest(interest)
            } else {
                let flight = records.lastRedirectedFlight(ofOpen: interest)
                removeDoomedRequests(from: flight)
                guard let until = records.originGovernor.coolDownRefusalEnd(in: records.flights[flight].originScope)
                else { return flight }
                failForCoolDown(flight, until: until, now: now)
            }
            refusals += 1
            guard refusals == records.limits.maximumCoolDownRefusalsPerPass else { continue }
            hasWorkForNextPass = true
            return nil
        }
        return nil
    }

    /// Starts flights that lost their worker or have a claim, before the queue. Those without a slot at their origin
    /// wait in the queue, without the claim. One whose cancellation is deferred starts only if a request rejoins it;
    /// that request is then in the queue.
    private mutating func startReturnedFlights(in pool: Handle<WorkerPool>, now: MonotonicTime) {
        while !records.workerPools[pool].flightsWithLostWorker.isEmpty,
            records.workers.slotCount(of: pool).freeSlots > 0
        {
            let name = records.workerPools.popFlightWithLostWorker(of: pool)
            guard let flight = liveFlight(name), records.flights[flight].phase == .queued,
                !records.flights[flight].isSuspectedOfWorkerDeath
            else {
                continue
            }
            guard records.flights.isResultNeeded(flight),
                records.originGovernor.admitsTransfer(records.flights[flight].originScope, .high)
            else {
                if Cluster.returnClaim(of: flight, in: &records) { freeFlight(flight) }
                continue
            }
            if !Cluster.mustClaim(flight, now: now, in: &records) { startFlight(flight, now: now) }
        }
    }

    /// Fails a flight whose origin requested a pause above the limit.
    mutating func failForCoolDown(_ flight: Handle<Flight>, until: MonotonicTime, now: MonotonicTime) {
        let failure = Origins.coolDownFailure(of: flight, until: until, now: now, in: &records)
        performStep(.endFlight(with: records.outcomes.insertWithOneReference(failure)), of: flight, now: now)
    }

    /// Returns the next interest in the order of the queue that its client, principal and origin admit; nil if there is
    /// none.
    private mutating func nextInterest(
        in pool: Handle<WorkerPool>, isForHigh: Bool, isClaiming: Bool
    ) -> Handle<Interest>? {
        // Copies for the closure, which runs while the queue is mutated. Their storage is shared.
        let clients = records.clients.snapshot
        let governor = records.originGovernor.snapshot
        let quotas = records.quotaUse.snapshot
        return records.queue.nextStartable(in: pool, onlyHighPriority: isForHigh) {
            principal, client, scope, priority in
            if let client, clients[client].deliveries.isClosed { return .fullClientWindow }
            if let quotas, quotas.isTransferQuotaFull(principal) { return .transferQuotaReached }
            return switch governor.startBlocker(in: scope, to: priority, isClaiming: isClaiming) {
            case .coolDown: .scopeCoolingDown
            case .originLimitOrSpacing: .originWithoutRoom
            case nil: .none
            }
        }
    }

    /// Assigns a queued flight to a worker.
    ///
    /// - Parameter chosen: the worker; nil for the choice of `Workers.nextWorker`. A worker must have a free slot.
    mutating func startFlight(_ flight: Handle<Flight>, at chosen: Handle<WorkerSession>? = nil, now: MonotonicTime) {
        if records.clusterState != nil { Cluster.attemptStarted(flight, now: now, in: &records) }
        let origin = records.origin(of: flight)
        guard let worker = chosen ?? Workers.nextWorker(for: origin, in: &records) else {
            preconditionFailure("no worker has a slot")
        }
        let priority = records.highestPriority(of: flight)
        let isHigh = priority == .high
        // A flight of several principals is charged to one of them.
        var principal = PrincipalTable.administrator
        records.forEachInterest(of: flight) { records, interest in
            records.queue.remove(interest)
            principal = records.principal(of: interest)
        }
        Origins.transferStarted(
            of: flight, at: origin, by: records.workers[worker].id, isHigh: isHigh, now: now, in: &records)
        records.flights.enterPhase(.running(worker: worker), flight)
        records.flights[flight].assignedAttemptCount += 1
        let maximumBodyBytes = records.largestAllowedBodyBytes(of: flight)
        let attempt = records.currentAttempt(of: flight)
        let assigned =
            records.isReadingBodyFromNode(flight)
            ? nil
            : Parts.assignPart(of: flight, as: attempt, to: worker, maximumBodyBytes: maximumBodyBytes, in: &records)
        var lease = WorkerLease(
            origin: origin, isHigh: isHigh, use: .servingFlight(flight), startedAt: now,
            maximumBodyBytes: maximumBodyBytes)
        lease.partFile = assigned?.part
        lease.resumedBytes = assigned?.resume.availableBytes ?? 0
        lease.countedPartFileBytes = lease.resumedBytes
        lease.principal = principal
        Principals.transferStarted(lease, in: &records)
        Workers.addLease(attempt, lease, at: worker, now: now, in: &records)
        var job = Job(attempt: attempt, url: records.flights[flight].url.description)
        job.maximumBodyBytes = maximumBodyBytes
        job.resume = assigned?.resume
        if records.workers[worker].isUserProvided { job.priority = priority }
        completeJob(&job, for: flight, at: worker, origin, now: now)
        sendJob(job, of: flight, to: worker, chargedTo: principal)
    }

    /// Completes the JOB of an attempt. The caller has set its size limit and the part to resume, if there are any.
    private mutating func completeJob(
        _ job: inout Job, for flight: Handle<Flight>, at worker: Handle<WorkerSession>,
        _ origin: Handle<OriginEntry>, now: MonotonicTime
    ) {
        let record = records.flights[flight]
        job.method = record.method.description
        job.timeoutMilliseconds = Int(record.timeoutMilliseconds)
        job.connectTimeoutMilliseconds = records.limits.connectTimeoutMilliseconds
        job.progressIntervalMilliseconds = records.limits.progressIntervalMilliseconds
        var hasLimit =
            records.limits.maximumBytesPerSecond > 0 || records.originGovernor.origins[origin].maximumBytesPerSecond > 0
        records.forEachInterest(of: flight) { records, interest in
            guard let rareOptions = records.requests[interest].rareOptions else { return }
            if records.requests[rareOptions].maximumBytesPerSecond != nil { hasLimit = true }
            records.requests[rareOptions].coolDownWaitStartedAt = nil
            guard records.requests[rareOptions].isStreaming else { return }
            job.streams = true
            job.progressIntervalMilliseconds = records.limits.streamingIntervalMilliseconds
        }
        job.redirectMode = record.redirect
        job.route = record.route
        if !records.workers[worker].isUserProvided {
            job.allowsHTTP2 = records.originGovernor.origins[origin].allowsHTTP2 && !record.avoidsHTTP2
            if hasLimit {
                job.maximumBytesPerSecond = Rates.attemptStarted(
                    job.attempt, of: flight, at: origin, now: now, in: &records)
            }
        }
        if let pull = records.clusterState?.value.pulls[flight] {
            job.url = pull.bodyAddress.url
            job.method = HTTPMethod.get.description
            job.redirectMode = .manual
        } else {
            Flights.planConditionalRequest(
                of: flight, isResuming: job.resume.map { $0.availableBytes > 0 } ?? false, in: &records)
            job.httpFields = records.jobHeaderFields(of: flight).bytes
            if record.isAwaitedByOtherNodes {
                job.addressPolicy = records.clusterState?.value.hostedAddressPolicies[flight] ?? ""
            }
        }
    }

    /// Sends the JOB of an attempt, with the body of its request, or with the keys of a stored part that it may resume.
    private mutating func sendJob(
        _ job: consuming Job, of flight: Handle<Flight>, to worker: Handle<WorkerSession>,
        chargedTo principal: Handle<Principal>
    ) {
        let id = records.workers[worker].id
        if records.shellFeatures.isLoggingAttempts { Workers.logAssignment(of: job, for: flight, to: id, in: &records) }
        if let body = records.flights[flight].body {
            records.outbox.appendAction(.worker(.sendJob(id, job, body)))
        } else if records.keptParts.mayHaveStoredParts, job.resume == nil, !records.isReadingBodyFromNode(flight),
            !records.workers[worker].isRemote, !records.workers[worker].isUserProvided,
            !(records.cachePlans[flight] ?? CachePlan()).plannedRequest(from: records.flights[flight].request)
                .selectsResponse,
            let keys = Parts.partKeys(of: flight, chargedTo: principal, in: &records)
        {
            records.outbox.appendAction(.worker(.resumeJob(id, job, keys)))
        } else {
            records.outbox.appendAction(.worker(.send(id, .job(job))))
        }
    }
}
