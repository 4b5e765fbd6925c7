internal import EarshotCore
internal import EarshotWire
internal import HeapModule

/// Users' workers: service of schemes, waiting requests, and forced disconnection: invariant 14.
extension ReferenceModel {
    /// Name of the pool of own workers for a principal's requests: that of the principal, or else that of the
    /// administrator.
    func poolName(for scheme: Substring, of principal: PrincipalName?) -> Substring {
        let own = Self.poolName(scheme, principal)
        return schemes[own]?.isUnserved == false ? own : scheme
    }

    private static func poolName(_ scheme: Substring, _ principal: PrincipalName?) -> Substring {
        principal.map { "\($0) \(scheme)" } ?? scheme
    }

    /// Returns whether requests of a principal for a scheme are accepted, possibly to wait for a worker.
    func acceptsScheme(_ scheme: Substring, of principal: PrincipalName?) -> Bool {
        if JobContent.webSchemes.contains(scheme) { return true }
        if schemes[poolName(for: scheme, of: principal)]?.isUnserved == false { return true }
        guard let end = userWorkersAwaitedUntil, now < end else { return false }
        let absence = schemes[scheme, default: SchemeRecord()].beginAwaitedAbsence()
        timers.insert(ModelTimer(dueAt: end, subject: .schemeLost(scheme, absence: absence)))
        return true
    }

    /// Returns the total slots of a scheme's workers, the free ones, and those used by classes below `high`.
    func slotCounts(for scheme: Substring) -> (total: Int, free: Int, lower: Int) {
        let workers = pool.values.filter { $0.takesWork && $0.serves(scheme) }
        return workers.reduce((0, 0, 0)) { ($0.0 + $1.slots, $0.1 + $1.freeSlots, $0.2 + $1.leasesBelowHigh) }
    }

    // MARK: Events

    func workerReady(_ ready: Ready, _ worker: PoolRecord) {
        let reported = Set(ready.schemes.map { Substring($0) })
        let isOfWeb = reported.isSuperset(of: JobContent.webSchemes)
        let own = reported.subtracting(JobContent.webSchemes)
        worker.schemes = isOfWeb ? JobContent.webSchemes : Set(own.map { Self.poolName($0, ready.principal) })
        worker.isReady = true
        worker.isLeaving = isDraining
        worker.slots = ready.slots
        worker.pid = ready.pid
        worker.acceptsDrain = ready.acceptsDrain
        if isDraining, !worker.isUserWorker || ready.acceptsDrain { expectedDrains.insert(worker.id) }
        stopAwaitingProcess(worker.process)
        guard worker.isUserWorker else { return }
        if let principal = ready.principal { for scheme in own { claimWaitingFlights(scheme, of: principal) } }
        for scheme in worker.schemes { schemes[scheme, default: SchemeRecord()].workerArrived() }
        let served = schemes.values.count { !$0.isUnserved }
        expect(
            served < limits.maximumWorkerPools, 11,
            "\(served) schemes are served, with the web in \(limits.maximumWorkerPools) pools")
    }

    /// Moves a principal's flights that wait for the first worker of any principal to the principal's own pool.
    private func claimWaitingFlights(_ scheme: Substring, of principal: PrincipalName) {
        guard let record = schemes[scheme], !record.wasServed else { return }
        for flight in openFlights.values where flight.content.job.pool == scheme && flight.phase == .waiting {
            var owners: Set<PrincipalName?> = []
            flight.forEachRequest { owners.insert(Self.principalAndHandler(of: $0.name.handler).principal) }
            guard owners == [principal] else { continue }
            leaveOrigin(flight)
            flight.content.job.pool = Self.poolName(scheme, principal)
            enterOrigin(flight.content.job)
        }
    }

    /// Handles the loss of a worker: another one for its schemes is awaited for a limited time.
    func workerLeftSchemes(_ worker: PoolRecord) {
        guard worker.isUserWorker else { return }
        for scheme in worker.schemes {
            guard let absence = schemes[scheme]?.workerLeft() else { continue }
            let end = now.advanced(byMilliseconds: limits.emptyPoolGraceMilliseconds)
            timers.insert(ModelTimer(dueAt: end, subject: .schemeLost(scheme, absence: absence)))
        }
    }

    /// Handles a protocol violation or a blocked worker: a child is killed, a user's worker is disconnected.
    func disconnectForViolation(_ worker: PoolRecord) {
        guard worker.isUserWorker else { return }
        expectedClosings.insert(worker.id)
        ledgerInvariant = 14
        workerLost(worker.id)
    }

    /// Handles a PING without reply.
    func pingTimedOut(_ id: WorkerID, pingedAt: MonotonicTime) {
        guard let worker = pool[id], worker.pingedAt == pingedAt else { return }
        disconnectForViolation(worker)
    }

    // MARK: Actions

    func pingSent(_ id: WorkerID) {
        guard let worker = pool[id], worker.isUserWorker else { return }
        worker.pingedAt = now
        let end = now.advanced(byMilliseconds: limits.pingTimeoutMilliseconds)
        timers.insert(ModelTimer(dueAt: end, subject: .pingTimeout(id, pingedAt: now)))
    }

    func workerDrained(_ id: WorkerID) {
        expect(expectedDrains.remove(id) != nil, 14, "worker \(id.rawValue) is told of a drain that is none of its")
    }

    func checkWorkerKill(_ id: WorkerID) {
        let isOwn = expectedClosings.contains(id) || pool[id]?.isUserWorker == true
        expect(!isOwn, 14, "worker \(id.rawValue), a user's own, is killed")
    }

    func checkWorkerClosing(_ id: WorkerID) {
        expect(expectedClosings.remove(id) != nil, 14, "worker \(id.rawValue) is put out and did nothing wrong")
    }

    // MARK: Deserted schemes

    /// Ends a request because no worker serves its scheme any more, together with all requests of its flight.
    func endUnservedRequest(_ name: RequestName) {
        guard let flight = requestsByName[name]?.flight, hasUnservedScheme(flight) else { return }
        endUnservedFlight(flight)
    }

    /// Checks after a pass that no request waits for a deserted scheme. Exceptions are requests of clients with a full
    /// window, and a remainder beyond the limit per pass. The core chooses which requests fill a window and which
    /// remain.
    func checkUnservedRequests(_ isOpen: (RequestName) -> Bool, isRemoving: Bool) {
        let stranded = openFlights.values.filter(hasUnservedScheme)
        for flight in stranded where flight.requests.values.contains(where: { !isOpen($0.name) }) {
            endUnservedFlight(flight)
        }
        guard !isDraining, self.mayStartTransfers else { return }
        // They are in the queue now. If a worker comes before they fail, they run like others.
        for flight in stranded { flight.requiresIsolation = false }
        for flight in stranded where flight.phase != .over && highestServedClass(of: flight) != nil {
            let isLeft =
                unservedEndedFlights[flight.content.job.scheme, default: 0] >= limits.maximumCoolDownRefusalsPerPass
            if isLeft { leavesUnservedFlights = true }
            expect(
                isLeft || isRemoving, 14, "\(flight.content.job) waits for a scheme that nobody serves",
                kind: "waits for a scheme that nobody serves")
        }
    }

    /// Maximum number of terminals that wait for a client now: those known, and those of requests for deserted schemes,
    /// of which the core may have ended any in this pass.
    func maximumWaitingTerminals(for client: SessionRecord) -> Int {
        guard
            client.waitingTerminalCount <= min(limits.maximumDueTerminalsPerClient, limits.maximumDueOutcomesPerClient)
        else { return client.waitingTerminalCount }
        var stranded = 0
        for flight in openFlights.values where hasUnservedScheme(flight) {
            flight.forEachRequest { if subscribers(of: $0.name.handler).contains(client.id) { stranded += 1 } }
        }
        return client.waitingTerminalCount + stranded
    }

    private func hasUnservedScheme(_ flight: FlightRecord) -> Bool {
        guard schemes[flight.content.job.scheme]?.isUnserved == true else { return false }
        return flight.phase == .waiting || flight.phase == .pausing
    }

    private func endUnservedFlight(_ flight: FlightRecord) {
        ledgerInvariant = 14
        unservedEndedFlights[flight.content.job.scheme, default: 0] += 1
        endFlight(flight, Ending(code: "unsupported-scheme", attempts: Int(flight.attempts)))
    }
}

/// Model's state of a scheme of a principal served by users' workers: invariant 14.
struct SchemeRecord {
    /// Number of workers that serve it.
    private(set) var workerCount = 0
    /// Number of times at which it lost its last worker.
    private(set) var absenceCount = 0
    /// Whether no worker came back in time.
    private(set) var isUnserved = false
    /// Whether a worker ever served it.
    private(set) var wasServed = false

    mutating func workerArrived() {
        workerCount += 1
        wasServed = true
        isUnserved = false
    }

    /// - Returns: Number of the absence that begins; nil if another worker serves it.
    mutating func workerLeft() -> Int? {
        workerCount -= 1
        return workerCount == 0 ? beginAwaitedAbsence() : nil
    }

    /// - Returns: Number of the absence that begins.
    mutating func beginAwaitedAbsence() -> Int {
        isUnserved = false
        absenceCount += 1
        return absenceCount
    }

    /// Handles the end of an absence's waiting time.
    mutating func absenceEnded(_ number: Int) {
        if workerCount == 0, absenceCount == number { isUnserved = true }
    }
}
