internal import EarshotWire

/// Workers, their leases and slots, and their liveness.
///
/// `WorkerSession` and `WorkerLease` document the phases of the records; only the fleet changes them. The fleet knows
/// pools, origins and flights by handle alone. Its functions return the timers to set, and the workers or flights to
/// act on.
package struct WorkerFleet {
    /// Bounds of the fleet.
    struct HeartbeatLimits: Equatable {
        /// Silence of a worker with transfers after which it gets a PING.
        var silenceBeforePingMilliseconds: Int
        /// Time to answer the PING.
        var pingTimeoutMilliseconds: Int
    }

    /// Leases and other data of a removed worker.
    struct RemovedWorker {
        /// All leases in a reproducible order.
        let leases: [(key: AttemptID, value: WorkerLease)]
        /// The isolated attempt of a suspect, if any.
        let isolatedAttempt: AttemptID?
        /// Whether the worker ran exactly one transfer.
        let hadSingleTransfer: Bool
        /// Pools that the worker served.
        let servedPools: [Handle<WorkerPool>]
    }

    /// Result of a heartbeat timer.
    enum HeartbeatResult: Equatable {
        /// The worker has no transfers: no further timer is set.
        case noTransfers
        /// The worker sent a message recently, or still has time to answer.
        case checkAgain(at: MonotonicTime)
        /// The worker gets a PING.
        case sendPing(checkAt: MonotonicTime)
        /// The worker did not answer in time.
        case unresponsive(checkAt: MonotonicTime)
    }

    /// Result of an isolation timer.
    enum IsolationTimerResult: Equatable {
        /// The timer is stale.
        case staleTimer
        /// The worker has until this time to show that it is alive. It gets a PING if `sendsPing` is true; otherwise
        /// one is on its way.
        case awaitAnswer(until: MonotonicTime, sendsPing: Bool)
        /// The worker sent a message after the PING: the suspect is cleared.
        case suspectCleared(flight: Handle<Flight>?)
        /// The worker did not answer in time.
        case workerUnresponsive
    }

    var heartbeatLimits: HeartbeatLimits
    private var workers = Slab<WorkerSession>()
    private var handlesByID: [WorkerID: Handle<WorkerSession>] = [:]
    /// Number of workers on other machines.
    private var remoteWorkerCount = 0
    /// Processes of an earlier broker's workers that are neither READY nor dead. They may still run its transfers.
    private(set) var awaitedEarlierWorkerProcesses: Set<Int32> = []

    init(heartbeatLimits: HeartbeatLimits) { self.heartbeatLimits = heartbeatLimits }

    // MARK: Queries

    // The compiler retains all tables for a call of a nonmutating function. So the functions that run for each attempt
    // are inlined.

    package subscript(worker: Handle<WorkerSession>) -> WorkerSession {
        _read { yield workers[worker] }
    }

    var count: Int { workers.count }

    /// Handles of all workers. O(workers).
    package var indices: [Handle<WorkerSession>] { workers.indices }

    func contains(_ worker: Handle<WorkerSession>) -> Bool { workers.contains(worker) }

    /// Records for the pages of a QUERY.
    package var sessionRecords: Slab<WorkerSession> { workers }

    @inline(__always)
    func handle(of id: WorkerID) -> Handle<WorkerSession>? { handlesByID[id] }

    /// Returns the lease of an attempt at a worker.
    @inline(__always)
    func lease(_ attempt: AttemptID, by id: WorkerID) -> WorkerLease? {
        guard let worker = handlesByID[id] else { return nil }
        return workers[worker].leases[attempt]
    }

    /// Returns the resumable files of a worker's attempts.
    func resumableFiles(of id: WorkerID) -> [(attempt: AttemptID, file: String)] {
        guard let worker = handlesByID[id] else { return [] }
        return workers[worker].leasesInReproducibleOrder.compactMap { attempt, lease in
            guard let part = lease.partFile, part.isResumable else { return nil }
            return (attempt, part.file)
        }
    }

    /// Returns the name of the resumable file of a worker's attempt; nil if there is none.
    func resumableFile(of attempt: AttemptID, by id: WorkerID) -> String? {
        guard let worker = handlesByID[id] else { return nil }
        return workers[worker].leases.resumableFile(of: attempt)
    }

    /// Returns the flight that a worker's attempt serves.
    @inline(__always)
    func flight(of attempt: AttemptID, by id: WorkerID) -> Handle<Flight>? {
        guard let worker = handlesByID[id] else { return nil }
        return workers[worker].leases.flight(of: attempt)
    }

    @inline(__always)
    func holdsLease(of attempt: AttemptID, by id: WorkerID) -> Bool {
        guard let worker = handlesByID[id] else { return false }
        return workers[worker].leases.contains(attempt)
    }

    /// Whether a worker is on another machine.
    @inline(__always)
    func isRemote(_ id: WorkerID) -> Bool {
        // A bus without such workers pays one comparison for each message.
        guard remoteWorkerCount > 0, let worker = handlesByID[id] else { return false }
        return workers[worker].isRemote
    }

    /// Whether any worker runs this attempt. O(workers).
    func hasLeaseAtAnyWorker(_ attempt: AttemptID) -> Bool {
        workers.indices.contains { workers[$0].leases.contains(attempt) }
    }

    /// Number of attempts that run or are being cancelled. O(workers).
    var leaseCount: Int { workers.indices.reduce(0) { sum, worker in sum + workers[worker].leases.count } }

    /// Principals that have workers. O(workers).
    var principalsWithWorkers: Set<Handle<Principal>> { Set(workers.indices.map { workers[$0].principal }) }

    /// Number of workers on other machines: of one principal, and in all. O(workers).
    func remoteWorkerCounts(of principal: Handle<Principal>) -> (own: Int, all: Int) {
        let remote = workers.indices.filter { workers[$0].isRemote }
        return (remote.count { workers[$0].principal == principal }, remote.count)
    }

    /// Slots of a pool's ready workers. O(workers).
    @inline(__always)
    package func slotCount(of pool: Handle<WorkerPool>) -> PoolSlotCounts {
        var count = PoolSlotCounts()
        for place in 0..<workers.bound {
            guard let worker = workers.handle(atIndex: place), servesPool(worker, pool), workers[worker].phase == .ready
            else {
                continue
            }
            count.addWorkerSlots(
                total: usableSlots(of: worker), free: freeSlots(of: worker),
                belowHigh: workers[worker].belowHighLeaseCount)
        }
        return count
    }

    /// Returns the preferred worker of a pool. Returns the one with the most free slots instead if it has more than
    /// `freeSlotLead` free slots more, or if the preferred one has none. O(workers).
    @inline(__always)
    func nextWorker(
        of pool: Handle<WorkerPool>, preferring preferred: WorkerID?, freeSlotLead: Int
    ) -> Handle<WorkerSession>? {
        var best: Handle<WorkerSession>?
        var most = 0
        for place in 0..<workers.bound {
            guard let worker = workers.handle(atIndex: place), servesPool(worker, pool) else { continue }
            let free = freeSlots(of: worker)
            let isPreferred = workers[worker].id == preferred
            let slots = isPreferred ? free + freeSlotLead : free
            guard free > 0, slots > most || slots == most && isPreferred else { continue }
            best = worker
            most = slots
        }
        return best
    }

    // These read one field at a time, because the compiler copies a whole session for its computed properties.

    private func usableSlots(of worker: Handle<WorkerSession>) -> Int {
        min(workers[worker].offeredSlots, workers[worker].slotLimit ?? workers[worker].offeredSlots)
    }

    @inline(__always)
    func freeSlots(of worker: Handle<WorkerSession>) -> Int {
        workers[worker].isReservedForSuspects || workers[worker].phase != .ready ? 0 : slotsWithoutTransfer(of: worker)
    }

    /// Slots without a transfer, which may be reserved for suspects.
    @inline(__always)
    func slotsWithoutTransfer(of worker: Handle<WorkerSession>) -> Int {
        max(0, usableSlots(of: worker) - workers[worker].leases.count)
    }

    @inline(__always)
    private func servesPool(_ worker: Handle<WorkerSession>, _ pool: Handle<WorkerPool>) -> Bool {
        workers.contains(worker) && workers[worker].pools.contains(pool)
    }

    // MARK: Workers

    /// Adds a worker; no effect if it is known.
    ///
    /// - Parameters:
    ///   - process: the process at the other end; nil if unknown.
    ///   - isGateway: whether that is a gateway.
    mutating func addConnectedWorker(
        _ id: WorkerID, process: Int32? = nil, isGateway: Bool = false, now: MonotonicTime
    ) {
        guard handlesByID[id] == nil else { return }
        handlesByID[id] = workers.insert(WorkerSession(id: id, process: process, isGateway: isGateway, now: now))
    }

    /// Handles the READY of a worker.
    ///
    /// - Parameters:
    ///   - pools: the pools that it serves.
    ///   - principal: principal that it belongs to.
    ///   - acceptsDrain: whether a user's own worker accepts DRAIN.
    ///   - isDraining: whether it gets no jobs.
    mutating func workerJoined(
        _ worker: Handle<WorkerSession>, pools: [Handle<WorkerPool>], of principal: Handle<Principal>, slots: Int,
        pid: Int, acceptsDrain: Bool, speaksHTTP2: Bool, isDraining: Bool
    ) {
        workers[worker].enter(isDraining ? .draining : .ready)
        workers[worker].pools = pools
        workers[worker].principal = principal
        if workers[worker].isRemote { remoteWorkerCount += 1 }
        workers[worker].setOfferedSlots(slots)
        workers[worker].workerProcessID = pid
        workers[worker].acceptsDrain = acceptsDrain
        workers[worker].speaksHTTP2 = speaksHTTP2
    }

    /// Records a sign of life.
    mutating func messageReceived(from worker: Handle<WorkerSession>, now: MonotonicTime) {
        workers[worker].lastMessageAt = now
        workers[worker].unansweredPingAt = nil
    }

    /// Handles a change of the slots that a worker offers.
    mutating func slotsOffered(_ slots: Int, by worker: Handle<WorkerSession>) {
        workers[worker].setOfferedSlots(slots)
    }

    /// Records the sandbox of a worker.
    mutating func setSandbox(_ parts: SandboxParts, of worker: Handle<WorkerSession>) {
        workers[worker].effectiveSandboxParts = parts
    }

    /// Handles the slots that LIMITS assigned to a worker; nil if the worker decides.
    mutating func limitsAnnounced(slots: Int?, to worker: Handle<WorkerSession>) { workers[worker].setSlotLimit(slots) }

    /// Stops assigning jobs to a worker.
    mutating func drain(_ worker: Handle<WorkerSession>) {
        if workers[worker].phase != .draining { workers[worker].enter(.draining) }
    }

    /// Stops assigning jobs to all workers but those of one pool.
    ///
    /// - Returns: the workers that were ready.
    mutating func drainAll(except pool: Handle<WorkerPool>? = nil) -> [Handle<WorkerSession>] {
        let ready = workers.indices.filter { worker in
            workers[worker].phase == .ready && !(pool.map { workers[worker].pools.contains($0) } ?? false)
        }
        for worker in ready { workers[worker].enter(.draining) }
        return ready
    }

    /// Removes a worker; nil if it is unknown.
    mutating func remove(_ id: WorkerID) -> RemovedWorker? {
        guard let worker = handlesByID.removeValue(forKey: id) else { return nil }
        let session = workers.removeReturning(worker)
        if session.isRemote { remoteWorkerCount -= 1 }
        return RemovedWorker(
            leases: session.leasesInReproducibleOrder, isolatedAttempt: session.suspectIsolation?.attempt,
            hadSingleTransfer: session.leases.count == 1, servedPools: session.pools)
    }

    // MARK: Workers of an earlier broker

    /// Delays all starts until each of these processes is READY or has ended.
    mutating func awaitEarlierProcesses(_ processes: Set<Int32>) { awaitedEarlierWorkerProcesses = processes }

    /// Stops waiting for a process, which is READY or has ended.
    ///
    /// - Returns: whether it was the last one.
    mutating func stopAwaitingProcess(_ process: Int32) -> Bool {
        awaitedEarlierWorkerProcesses.remove(process) != nil && awaitedEarlierWorkerProcesses.isEmpty
    }

    /// Whether starts are delayed.
    package var isAwaitingEarlierProcesses: Bool { !awaitedEarlierWorkerProcesses.isEmpty }

    // MARK: Leases

    /// Adds the lease of an attempt to a worker with a free slot.
    @inline(__always)
    mutating func addLease(of attempt: AttemptID, _ lease: WorkerLease, at worker: Handle<WorkerSession>) {
        workers[worker].leases.insert(lease, of: attempt)
        if !lease.isHighPriority { workers[worker].belowHighLeaseCount += 1 }
    }

    /// Starts the cancellation of an attempt.
    ///
    /// - Parameter abandoned: request whose later flight may resume the part.
    mutating func cancelAttempt(
        _ attempt: AttemptID, abandoned: CancelledAttemptFlight? = nil, at worker: Handle<WorkerSession>
    ) {
        enterLeaseUse(.cancelling, abandoned: abandoned, attempt, at: worker)
        workers[worker].cancellingLeaseCount += 1
    }

    private mutating func enterLeaseUse(
        _ use: WorkerLease.LeaseUse, abandoned: CancelledAttemptFlight? = nil, _ attempt: AttemptID,
        at worker: Handle<WorkerSession>
    ) {
        guard var lease = workers[worker].leases[attempt] else { preconditionFailure("\(attempt) has no lease") }
        lease.enter(use, cancelledFlight: abandoned)
        workers[worker].leases[attempt] = lease
    }

    /// Ends a lease, and the isolation of its attempt.
    ///
    /// - Returns: nil if the worker has no lease for the attempt.
    @inline(__always)
    mutating func endLease(of attempt: AttemptID, at worker: Handle<WorkerSession>) -> WorkerLease? {
        guard let lease = workers[worker].leases.remove(attempt) else { return nil }
        workers[worker].updateMaximumLeases()
        if workers[worker].suspectIsolation?.attempt == attempt { workers[worker].suspectIsolation = nil }
        if !lease.isHighPriority { workers[worker].belowHighLeaseCount -= 1 }
        if lease.isCancelling { workers[worker].cancellingLeaseCount -= 1 }
        return lease
    }

    /// Records how many bytes a worker has received.
    mutating func recordProgress(of attempt: AttemptID, received: Int, total: Int?, at worker: Handle<WorkerSession>) {
        workers[worker].leases[attempt]?.receivedBytes = received
        workers[worker].leases[attempt]?.wholeBodyBytes = total
    }

    /// Raises the size limit of a lease.
    ///
    /// - Parameter maximumBodyBytes: nil for no limit.
    /// - Returns: whether the new limit is higher.
    mutating func raiseSizeLimit(of attempt: AttemptID, to maximumBodyBytes: Int?, at worker: Handle<WorkerSession>)
        -> Bool
    {
        guard let present = workers[worker].leases[attempt]?.currentMaximumBytes,
            maximumBodyBytes.map({ $0 > present }) ?? true
        else {
            return false
        }
        workers[worker].leases[attempt]?.currentMaximumBytes = maximumBodyBytes
        return true
    }

    /// Records the file into which an attempt writes its body.
    mutating func recordPartFile(_ part: GrowingPart, of attempt: AttemptID, at worker: Handle<WorkerSession>) {
        workers[worker].leases[attempt]?.partFile = part
    }

    /// Records that the shell has the description of that file.
    ///
    /// - Parameter checkpoint: bytes of the checkpoint in it; nil for no new one.
    mutating func partDescriptionStored(_ attempt: AttemptID, checkpoint: Int?, at worker: Handle<WorkerSession>) {
        let isKnown = workers[worker].leases[attempt]?.partFile?.fileAudience != .knownToNoSession
        workers[worker].leases[attempt]?.partFile?.isDescriptionStored = true
        workers[worker].leases[attempt]?.partFile?.isDescriptionStoredAsKnown = isKnown
        if let checkpoint { workers[worker].leases[attempt]?.partFile?.lastCheckpointBytes = checkpoint }
    }

    /// Records that the worker uses the part of its JOB.
    mutating func partUseConfirmed(_ attempt: AttemptID, at worker: Handle<WorkerSession>) {
        workers[worker].leases[attempt]?.partFile?.areAllBytesVerified = true
    }

    /// Records the part, of `bytes` bytes, that the JOB of an attempt names.
    mutating func recordResumedPart(
        _ part: GrowingPart, bytes: Int, of attempt: AttemptID, at worker: Handle<WorkerSession>
    ) {
        workers[worker].leases[attempt]?.partFile = part
        workers[worker].leases[attempt]?.resumedBytes = bytes
        workers[worker].leases[attempt]?.countedPartFileBytes = bytes
    }

    /// Records how many bytes of that file count towards the spool.
    mutating func recordPartFileSize(of attempt: AttemptID, to bytes: Int, at worker: Handle<WorkerSession>) {
        workers[worker].leases[attempt]?.countedPartFileBytes = bytes
    }

    /// Records that the shell renamed that file, which has `bytes` bytes.
    ///
    /// - Returns: whether the worker has this lease.
    mutating func recordKeptPart(of attempt: AttemptID, bytes: Int, by id: WorkerID) -> Bool {
        guard let worker = handlesByID[id], workers[worker].leases.contains(attempt) else { return false }
        workers[worker].leases[attempt]?.renamedFileBytes = bytes
        return true
    }

    // MARK: Liveness

    /// Starts the heartbeat of a worker with transfers.
    ///
    /// - Returns: the due time of the heartbeat timer; nil if it runs already.
    mutating func startHeartbeat(of worker: Handle<WorkerSession>, now: MonotonicTime) -> MonotonicTime? {
        guard !workers[worker].isHeartbeatTimerRunning else { return nil }
        workers[worker].isHeartbeatTimerRunning = true
        workers[worker].lastMessageAt = now
        return now.advanced(byMilliseconds: heartbeatLimits.silenceBeforePingMilliseconds)
    }

    /// Handles the heartbeat timer of a worker. A worker without transfers gets no PING, so that an idle bus does not
    /// wake up.
    mutating func heartbeatTimerFired(of worker: Handle<WorkerSession>, now: MonotonicTime) -> HeartbeatResult {
        guard !workers[worker].hasNoTransfers else {
            workers[worker].isHeartbeatTimerRunning = false
            return .noTransfers
        }
        if let requestedAt = workers[worker].unansweredPingAt {
            let end = requestedAt.advanced(byMilliseconds: heartbeatLimits.pingTimeoutMilliseconds)
            return end <= now
                ? .unresponsive(checkAt: now.advanced(byMilliseconds: heartbeatLimits.pingTimeoutMilliseconds))
                : .checkAgain(at: end)
        }
        let next = workers[worker].lastMessageAt.advanced(byMilliseconds: heartbeatLimits.silenceBeforePingMilliseconds)
        guard next <= now else { return .checkAgain(at: next) }
        workers[worker].unansweredPingAt = now
        // Until then it has most likely answered, and may be silent again.
        let pause = min(heartbeatLimits.silenceBeforePingMilliseconds, heartbeatLimits.pingTimeoutMilliseconds)
        return .sendPing(checkAt: now.advanced(byMilliseconds: pause))
    }

    // MARK: Isolation

    /// Isolates an attempt until `endLease`.
    mutating func isolateAttempt(_ attempt: AttemptID, until end: MonotonicTime, at worker: Handle<WorkerSession>) {
        workers[worker].suspectIsolation = WorkerSession.Isolation(attempt: attempt, endsAt: end)
    }

    /// Reserves a worker for suspects, or ends the reservation.
    mutating func setQuarantine(of worker: Handle<WorkerSession>, _ isQuarantine: Bool) {
        workers[worker].isReservedForSuspects = isQuarantine
    }

    /// Returns the worker for the next suspect of a pool: its quarantine or an empty worker. Returns nil if there is
    /// neither, or while the quarantine isolates a suspect, because the other workers serve the queue. O(workers).
    func workerForSuspect(
        of pool: Handle<WorkerPool>, quarantine: Handle<WorkerSession>?
    ) -> (worker: Handle<WorkerSession>, isEmpty: Bool)? {
        var place: (Handle<WorkerSession>, Bool)?
        if let worker = quarantine {
            guard workers[worker].suspectIsolation == nil else { return nil }
            if workers[worker].phase == .ready, slotsWithoutTransfer(of: worker) > 0 {
                place = (worker, workers[worker].hasNoTransfers)
                if workers[worker].hasNoTransfers { return place }
            }
        }
        let empty = workers.indices.first { worker in
            workers[worker].pools.contains(pool) && freeSlots(of: worker) > 0 && workers[worker].hasNoTransfers
        }
        return empty.map { ($0, true) } ?? place
    }

    /// Handles the isolation timer of a worker. The worker gets a PING, and its answer clears the suspect.
    mutating func isolationTimerFired(at worker: Handle<WorkerSession>, now: MonotonicTime) -> IsolationTimerResult {
        guard let isolation = workers[worker].suspectIsolation, isolation.endsAt <= now else { return .staleTimer }
        guard let requestedAt = isolation.pingedAt else {
            let pings = workers[worker].unansweredPingAt == nil
            if pings { workers[worker].unansweredPingAt = now }
            workers[worker].suspectIsolation?.pingedAt = now
            return .awaitAnswer(
                until: now.advanced(byMilliseconds: heartbeatLimits.pingTimeoutMilliseconds), sendsPing: pings)
        }
        guard requestedAt.advanced(byMilliseconds: heartbeatLimits.pingTimeoutMilliseconds) <= now else {
            return .staleTimer
        }
        // Any message after the PING counts as a sign of life, even one that was already on its way.
        guard workers[worker].lastMessageAt > requestedAt else { return .workerUnresponsive }
        return .suspectCleared(flight: endIsolation(at: worker))
    }

    /// Handles a PONG.
    ///
    /// - Returns: the flight of the suspect that it clears; nil if the worker isolates none or its isolation still
    ///   runs.
    mutating func pongReceived(from worker: Handle<WorkerSession>) -> Handle<Flight>? {
        workers[worker].suspectIsolation?.pingedAt == nil ? nil : endIsolation(at: worker)
    }

    private mutating func endIsolation(at worker: Handle<WorkerSession>) -> Handle<Flight>? {
        guard let isolation = workers[worker].suspectIsolation else { return nil }
        workers[worker].suspectIsolation = nil
        return workers[worker].leases.flight(of: isolation.attempt)
    }
}

extension WorkerFleet.HeartbeatLimits {
    init(_ limits: CoreLimits) {
        silenceBeforePingMilliseconds = limits.silenceBeforePingMilliseconds
        pingTimeoutMilliseconds = limits.pingTimeoutMilliseconds
    }
}
