internal import EarshotCore
internal import EarshotWire
internal import HeapModule

/// Users' workers: service of schemes, waiting requests, and forced disconnection: invariant 14.
extension ReferenceModel {
    /// Name of the pool of own workers for a principal's requests: that of the principal, or else that of the
    /// administrator.
    func pool(for scheme: Substring, of principal: PrincipalName?) -> Substring {
        let own = Self.pool(scheme, principal)
        return schemes[own]?.isUnserved == false ? own : scheme
    }

    private static func pool(_ scheme: Substring, _ principal: PrincipalName?) -> Substring {
        principal.map { "\($0) \(scheme)" } ?? scheme
    }

    /// Returns whether requests of a principal for a scheme are accepted, possibly to wait for a worker.
    func takes(_ scheme: Substring, of principal: PrincipalName?) -> Bool {
        if JobContent.webSchemes.contains(scheme) { return true }
        if schemes[pool(for: scheme, of: principal)]?.isUnserved == false { return true }
        guard let end = ownWorkersAwaitedUntil, now < end else { return false }
        let absence = schemes[scheme, default: SchemeRecord()].isAwaited()
        moments.insert(Moment(at: end, subject: .schemeLost(scheme, absence: absence)))
        return true
    }

    /// Returns the total slots of a scheme's workers, the free ones, and those used by classes below `high`.
    func slots(for scheme: Substring) -> (total: Int, free: Int, lower: Int) {
        let workers = pool.values.filter { $0.takesWork && $0.serves(scheme) }
        return workers.reduce((0, 0, 0)) { ($0.0 + $1.slots, $0.1 + $1.freeSlots, $0.2 + $1.leasesBelowHigh) }
    }

    // MARK: Events

    func workerReady(_ ready: Ready, _ worker: PoolRecord) {
        let reported = Set(ready.schemes.map { Substring($0) })
        let isOfWeb = reported.isSuperset(of: JobContent.webSchemes)
        let own = reported.subtracting(JobContent.webSchemes)
        worker.schemes = isOfWeb ? JobContent.webSchemes : Set(own.map { Self.pool($0, ready.principal) })
        worker.isReady = true
        worker.isLeaving = isDraining
        worker.slots = ready.slots
        worker.pid = ready.pid
        worker.acceptsDrain = ready.acceptsDrain
        if isDraining, !worker.isOwn || ready.acceptsDrain { expectedDrains.insert(worker.id) }
        stopAwaiting(worker.process)
        guard worker.isOwn else { return }
        if let principal = ready.principal { for scheme in own { claim(scheme, of: principal) } }
        for scheme in worker.schemes { schemes[scheme, default: SchemeRecord()].workerCame() }
        let served = schemes.values.count { !$0.isUnserved }
        expect(served < limits.pools, 11, "\(served) schemes are served, with the web in \(limits.pools) pools")
    }

    /// Moves a principal's flights that wait for the first worker of any principal to the principal's own pool.
    private func claim(_ scheme: Substring, of principal: PrincipalName) {
        guard let record = schemes[scheme], !record.wasServed else { return }
        for flight in openFlights.values where flight.content.job.pool == scheme && flight.phase == .waiting {
            var owners: Set<PrincipalName?> = []
            flight.forEachRequest { owners.insert(Self.owner(of: $0.name.handler).principal) }
            guard owners == [principal] else { continue }
            leaveOrigin(flight)
            flight.content.job.pool = Self.pool(scheme, principal)
            enterOrigin(flight.content.job)
        }
    }

    /// Handles the loss of a worker: another one for its schemes is awaited for a limited time.
    func leaveSchemes(_ worker: PoolRecord) {
        guard worker.isOwn else { return }
        for scheme in worker.schemes {
            guard let absence = schemes[scheme]?.workerLeft() else { continue }
            let end = now.advanced(byMilliseconds: limits.poolAbsenceMilliseconds)
            moments.insert(Moment(at: end, subject: .schemeLost(scheme, absence: absence)))
        }
    }

    /// Handles a protocol violation or a blocked worker: a child is killed, a user's worker is disconnected.
    func disconnectForViolation(_ worker: PoolRecord) {
        guard worker.isOwn else { return }
        expectedClosings.insert(worker.id)
        blame = 14
        workerLost(worker.id)
    }

    /// Handles a PING without reply.
    func silenceEnded(_ id: WorkerID, pingedAt: Tick) {
        guard let worker = pool[id], worker.pingedAt == pingedAt else { return }
        disconnectForViolation(worker)
    }

    // MARK: Actions

    func pinged(_ id: WorkerID) {
        guard let worker = pool[id], worker.isOwn else { return }
        worker.pingedAt = now
        let end = now.advanced(byMilliseconds: limits.silenceMilliseconds)
        moments.insert(Moment(at: end, subject: .silence(id, pingedAt: now)))
    }

    func workerDrained(_ id: WorkerID) {
        expect(expectedDrains.remove(id) != nil, 14, "worker \(id.rawValue) is told of a drain that is none of its")
    }

    func killed(_ id: WorkerID) {
        let isOwn = expectedClosings.contains(id) || pool[id]?.isOwn == true
        expect(!isOwn, 14, "worker \(id.rawValue), a user's own, is killed")
    }

    func closed(_ id: WorkerID) {
        expect(expectedClosings.remove(id) != nil, 14, "worker \(id.rawValue) is put out and did nothing wrong")
    }

    // MARK: Deserted schemes

    /// Ends a request because no worker serves its scheme any more, together with all requests of its flight.
    func schemeLost(_ name: RequestName) {
        guard let flight = listed[name]?.flight, isStranded(flight) else { return }
        strand(flight)
    }

    /// Checks after a pass that no request waits for a deserted scheme. Exceptions are requests of clients with a full
    /// window, and a remainder beyond the limit per pass. The core chooses which requests fill a window and which
    /// remain.
    func strandAll(_ isOpen: (RequestName) -> Bool, isRemoving: Bool) {
        let stranded = openFlights.values.filter(isStranded)
        for flight in stranded where flight.requests.values.contains(where: { !isOpen($0.name) }) { strand(flight) }
        guard !isDraining, self.isOpen else { return }
        // They are in the queue now. If a worker comes before they fail, they run like others.
        for flight in stranded { flight.isSuspect = false }
        for flight in stranded where flight.phase != .over && servedClass(of: flight) != nil {
            let isLeft = refusals[flight.content.job.scheme, default: 0] >= limits.refusalsPerPass
            if isLeft { leavesRefusals = true }
            expect(
                isLeft || isRemoving, 14, "\(flight.content.job) waits for a scheme that nobody serves",
                kind: "waits for a scheme that nobody serves")
        }
    }

    /// Maximum number of terminals that wait for a client now: those known, and those of requests for deserted schemes,
    /// of which the core may have ended any in this pass.
    func mostWaiting(for client: SessionRecord) -> Int {
        guard client.waiting <= min(limits.dueDeliveries, limits.dueOutcomes) else { return client.waiting }
        var stranded = 0
        for flight in openFlights.values where isStranded(flight) {
            flight.forEachRequest { if listeners(of: $0.name.handler).contains(client.id) { stranded += 1 } }
        }
        return client.waiting + stranded
    }

    private func isStranded(_ flight: FlightRecord) -> Bool {
        guard schemes[flight.content.job.scheme]?.isUnserved == true else { return false }
        return flight.phase == .waiting || flight.phase == .pausing
    }

    private func strand(_ flight: FlightRecord) {
        blame = 14
        refusals[flight.content.job.scheme, default: 0] += 1
        end(flight, Ending(code: "unsupported-scheme", attempts: Int(flight.attempts)))
    }
}

/// Model's state of a scheme of a principal served by users' workers: invariant 14.
struct SchemeRecord {
    /// Number of workers that serve it.
    private(set) var workers = 0
    /// Number of times at which it lost its last worker.
    private(set) var absenceCount = 0
    /// Whether no worker came back in time.
    private(set) var isUnserved = false
    /// Whether a worker ever served it.
    private(set) var wasServed = false

    mutating func workerCame() {
        workers += 1
        wasServed = true
        isUnserved = false
    }

    /// - Returns: Number of the absence that begins; nil if another worker serves it.
    mutating func workerLeft() -> Int? {
        workers -= 1
        return workers == 0 ? isAwaited() : nil
    }

    /// - Returns: Number of the absence that begins.
    mutating func isAwaited() -> Int {
        isUnserved = false
        absenceCount += 1
        return absenceCount
    }

    /// Handles the end of an absence's waiting time.
    mutating func absenceEnded(_ number: Int) {
        if workers == 0, absenceCount == number { isUnserved = true }
    }
}
