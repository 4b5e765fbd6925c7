internal import EarshotWire

/// Workers, their leases and slots, and their liveness.
///
/// `WorkerSession` and `WorkerLease` document the phases of the records; only the fleet changes them. The fleet knows
/// pools, origins and flights by handle alone. Its functions return the timers to set, and the workers or flights to
/// act on.
package struct WorkerFleet {
    /// Bounds of the fleet.
    struct Limits: Equatable {
        /// Silence of a worker with transfers after which it gets a PING.
        var heartbeatMilliseconds: Int
        /// Time to answer the PING.
        var silenceMilliseconds: Int
    }

    /// Leases and other data of a removed worker.
    struct Departure {
        /// All leases in a reproducible order.
        let leases: [(key: AttemptID, value: WorkerLease)]
        /// The isolated attempt of a suspect, if any.
        let isolated: AttemptID?
        /// Whether the worker ran exactly one transfer.
        let wasAlone: Bool
        /// Pools that the worker served.
        let pools: [Handle<WorkerPool>]
    }

    /// Result of a heartbeat timer.
    enum Heartbeat: Equatable {
        /// The worker has no transfers: no further timer is set.
        case idle
        /// The worker sent a message recently, or still has time to answer.
        case waiting(until: Tick)
        /// The worker gets a PING.
        case pinging(until: Tick)
        /// The worker did not answer in time.
        case silent(until: Tick)
    }

    /// Result of an isolation timer.
    enum IsolationEnd: Equatable {
        /// The timer is stale.
        case stale
        /// The worker has until then to show that it is alive. It gets a PING if `pings` is true, otherwise one is on
        /// its way.
        case awaiting(until: Tick, pings: Bool)
        /// The worker sent a message after the PING: the suspect is cleared.
        case cleared(flight: Handle<Flight>?)
        /// The worker did not answer in time.
        case silent
    }

    var limits: Limits
    private var workers = Slab<WorkerSession>()
    private var handlesByID: [WorkerID: Handle<WorkerSession>] = [:]
    /// Number of workers on other machines.
    private var remoteCount = 0
    /// Processes of an earlier broker's workers that are neither READY nor dead. They may still run its transfers.
    private(set) var awaitedProcesses: Set<Int32> = []

    init(limits: Limits) { self.limits = limits }

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
    package var records: Slab<WorkerSession> { workers }

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
        return workers[worker].leasesInOrder.compactMap { attempt, lease in
            guard let part = lease.part, part.isResumable else { return nil }
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
    func holds(_ attempt: AttemptID, _ id: WorkerID) -> Bool {
        guard let worker = handlesByID[id] else { return false }
        return workers[worker].leases.contains(attempt)
    }

    /// Whether a worker is on another machine.
    @inline(__always)
    func isRemote(_ id: WorkerID) -> Bool {
        // A bus without such workers pays one comparison for each message.
        guard remoteCount > 0, let worker = handlesByID[id] else { return false }
        return workers[worker].isRemote
    }

    /// Whether any worker runs this attempt. O(workers).
    func isHeld(_ attempt: AttemptID) -> Bool { workers.indices.contains { workers[$0].leases.contains(attempt) } }

    /// Number of attempts that run or are being cancelled. O(workers).
    var runningAttempts: Int { workers.indices.reduce(0) { sum, worker in sum + workers[worker].leases.count } }

    /// Principals that have workers. O(workers).
    var principals: Set<Handle<Principal>> { Set(workers.indices.map { workers[$0].principal }) }

    /// Number of workers on other machines: of one principal, and in all. O(workers).
    func remoteWorkers(of principal: Handle<Principal>) -> (own: Int, all: Int) {
        let remote = workers.indices.filter { workers[$0].isRemote }
        return (remote.count { workers[$0].principal == principal }, remote.count)
    }

    /// Slots of a pool's ready workers. O(workers).
    @inline(__always)
    package func slotCount(of pool: Handle<WorkerPool>) -> SlotCount {
        var count = SlotCount()
        for place in 0..<workers.bound {
            guard let worker = workers.handle(at: place), serves(worker, pool), workers[worker].phase == .ready else {
                continue
            }
            count.add(slots: slots(of: worker), free: freeSlots(of: worker), belowHigh: workers[worker].leasesBelowHigh)
        }
        return count
    }

    /// Returns the preferred worker of a pool, or the one with the most free slots if that has more than `lead` slots
    /// more than the preferred one, or the preferred one has none. O(workers).
    @inline(__always)
    func nextWorker(of pool: Handle<WorkerPool>, preferring preferred: WorkerID?, lead: Int) -> Handle<WorkerSession>? {
        var best: Handle<WorkerSession>?
        var most = 0
        for place in 0..<workers.bound {
            guard let worker = workers.handle(at: place), serves(worker, pool) else { continue }
            let free = freeSlots(of: worker)
            let isPreferred = workers[worker].id == preferred
            let slots = isPreferred ? free + lead : free
            guard free > 0, slots > most || slots == most && isPreferred else { continue }
            best = worker
            most = slots
        }
        return best
    }

    // These read one field at a time, because the compiler copies a whole session for its computed properties.

    private func slots(of worker: Handle<WorkerSession>) -> Int {
        min(workers[worker].offeredSlots, workers[worker].slotLimit ?? workers[worker].offeredSlots)
    }

    @inline(__always)
    func freeSlots(of worker: Handle<WorkerSession>) -> Int {
        workers[worker].isQuarantine || workers[worker].phase != .ready ? 0 : unusedSlots(of: worker)
    }

    /// Slots without a transfer, which may be reserved for suspects.
    @inline(__always)
    func unusedSlots(of worker: Handle<WorkerSession>) -> Int {
        max(0, slots(of: worker) - workers[worker].leases.count)
    }

    @inline(__always)
    private func serves(_ worker: Handle<WorkerSession>, _ pool: Handle<WorkerPool>) -> Bool {
        workers.contains(worker) && workers[worker].pools.contains(pool)
    }

    // MARK: Workers

    /// Adds a worker; no effect if it is known.
    ///
    /// - Parameters:
    ///   - process: the process at the other end; nil if unknown.
    ///   - isGateway: whether that is a gateway.
    mutating func connected(_ id: WorkerID, process: Int32? = nil, isGateway: Bool = false, now: Tick) {
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
        pid: Int, acceptsDrain: Bool,
        speaksHTTP2: Bool, isDraining: Bool
    ) {
        workers[worker].enter(isDraining ? .draining : .ready)
        workers[worker].pools = pools
        workers[worker].principal = principal
        if workers[worker].isRemote { remoteCount += 1 }
        workers[worker].offers(slots)
        workers[worker].pid = pid
        workers[worker].acceptsDrain = acceptsDrain
        workers[worker].speaksHTTP2 = speaksHTTP2
    }

    /// Records a sign of life.
    mutating func received(from worker: Handle<WorkerSession>, now: Tick) {
        workers[worker].lastReceived = now
        workers[worker].pingedAt = nil
    }

    /// Handles a change of the slots that a worker offers.
    mutating func slotsOffered(_ slots: Int, by worker: Handle<WorkerSession>) { workers[worker].offers(slots) }

    /// Records the sandbox of a worker.
    mutating func sandboxed(_ parts: SandboxParts, _ worker: Handle<WorkerSession>) { workers[worker].sandbox = parts }

    /// Handles the slots that LIMITS assigned to a worker; nil if the worker decides.
    mutating func announced(slots: Int?, to worker: Handle<WorkerSession>) { workers[worker].setSlotLimit(slots) }

    /// Stops assigning jobs to a worker.
    mutating func drain(_ worker: Handle<WorkerSession>) {
        if workers[worker].phase != .draining { workers[worker].enter(.draining) }
    }

    /// Stops assigning jobs to all workers but those of one pool.
    ///
    /// - Returns: the workers that were ready.
    mutating func drain(except pool: Handle<WorkerPool>? = nil) -> [Handle<WorkerSession>] {
        let ready = workers.indices.filter { worker in
            workers[worker].phase == .ready && !(pool.map { workers[worker].pools.contains($0) } ?? false)
        }
        for worker in ready { workers[worker].enter(.draining) }
        return ready
    }

    /// Removes a worker; nil if it is unknown.
    mutating func remove(_ id: WorkerID) -> Departure? {
        guard let worker = handlesByID.removeValue(forKey: id) else { return nil }
        let session = workers.take(worker)
        if session.isRemote { remoteCount -= 1 }
        return Departure(
            leases: session.leasesInOrder, isolated: session.isolation?.attempt,
            wasAlone: session.leases.count == 1, pools: session.pools)
    }

    // MARK: Workers of an earlier broker

    /// Delays all starts until each of these processes is READY or has ended.
    mutating func awaitProcesses(_ processes: Set<Int32>) { awaitedProcesses = processes }

    /// Stops waiting for a process, which is READY or has ended.
    ///
    /// - Returns: whether it was the last one.
    mutating func stopAwaiting(_ process: Int32) -> Bool {
        awaitedProcesses.remove(process) != nil && awaitedProcesses.isEmpty
    }

    /// Whether starts are delayed.
    package var isAwaiting: Bool { !awaitedProcesses.isEmpty }

    // MARK: Leases

    /// Adds the lease of an attempt to a worker with a free slot.
    @inline(__always)
    mutating func start(_ attempt: AttemptID, _ lease: WorkerLease, at worker: Handle<WorkerSession>) {
        workers[worker].leases.insert(lease, of: attempt)
        if !lease.isHigh { workers[worker].leasesBelowHigh += 1 }
    }

    /// Starts the cancellation of an attempt.
    ///
    /// - Parameter abandoned: request whose later flight may resume the part.
    mutating func cancel(_ attempt: AttemptID, abandoned: AbandonedFlight? = nil, at worker: Handle<WorkerSession>) {
        enter(.cancelling, abandoned: abandoned, attempt, at: worker)
        workers[worker].cancelling += 1
    }

    private mutating func enter(
        _ use: WorkerLease.Use, abandoned: AbandonedFlight? = nil, _ attempt: AttemptID,
        at worker: Handle<WorkerSession>
    ) {
        guard var lease = workers[worker].leases[attempt] else { preconditionFailure("\(attempt) has no lease") }
        lease.enter(use, abandoned: abandoned)
        workers[worker].leases[attempt] = lease
    }

    /// Ends a lease, and the isolation of its attempt.
    ///
    /// - Returns: nil if the worker has no lease for the attempt.
    @inline(__always)
    mutating func end(_ attempt: AttemptID, at worker: Handle<WorkerSession>) -> WorkerLease? {
        guard let lease = workers[worker].leases.remove(attempt) else { return nil }
        workers[worker].lowerCeiling()
        if workers[worker].isolation?.attempt == attempt { workers[worker].isolation = nil }
        if !lease.isHigh { workers[worker].leasesBelowHigh -= 1 }
        if lease.isCancelling { workers[worker].cancelling -= 1 }
        return lease
    }

    /// Records how many bytes a worker has received.
    mutating func progressed(_ attempt: AttemptID, received: Int, total: Int?, at worker: Handle<WorkerSession>) {
        workers[worker].leases[attempt]?.receivedBytes = received
        workers[worker].leases[attempt]?.totalBytes = total
    }

    /// Raises the size limit of a lease.
    ///
    /// - Parameter maxBytes: nil for no limit.
    /// - Returns: whether the new limit is higher.
    mutating func raise(_ attempt: AttemptID, to maxBytes: Int?, at worker: Handle<WorkerSession>) -> Bool {
        guard let present = workers[worker].leases[attempt]?.maxBytes, maxBytes.map({ $0 > present }) ?? true else {
            return false
        }
        workers[worker].leases[attempt]?.maxBytes = maxBytes
        return true
    }

    /// Records the file into which an attempt writes its body.
    mutating func partReported(_ part: GrowingPart, of attempt: AttemptID, at worker: Handle<WorkerSession>) {
        workers[worker].leases[attempt]?.part = part
    }

    /// Records that the shell has the description of that file.
    ///
    /// - Parameter checkpoint: bytes of the checkpoint in it; nil for no new one.
    mutating func partRecorded(_ attempt: AttemptID, checkpoint: Int?, at worker: Handle<WorkerSession>) {
        let isKnown = workers[worker].leases[attempt]?.part?.audience != .noSession
        workers[worker].leases[attempt]?.part?.isRecorded = true
        workers[worker].leases[attempt]?.part?.isRecordedAsKnown = isKnown
        if let checkpoint { workers[worker].leases[attempt]?.part?.checkpointBytes = checkpoint }
    }

    /// Records that the worker uses the part of its JOB.
    mutating func partVerified(_ attempt: AttemptID, at worker: Handle<WorkerSession>) {
        workers[worker].leases[attempt]?.part?.isVerified = true
    }

    /// Records the part, of `bytes` bytes, that the JOB of an attempt names.
    mutating func partFound(
        _ part: GrowingPart, bytes: Int, of attempt: AttemptID, at worker: Handle<WorkerSession>
    ) {
        workers[worker].leases[attempt]?.part = part
        workers[worker].leases[attempt]?.resumedBytes = bytes
        workers[worker].leases[attempt]?.growingBytes = bytes
    }

    /// Records how many bytes of that file count towards the spool.
    mutating func partGrew(_ attempt: AttemptID, to bytes: Int, at worker: Handle<WorkerSession>) {
        workers[worker].leases[attempt]?.growingBytes = bytes
    }

    /// Records that the shell renamed that file, which has `bytes` bytes.
    ///
    /// - Returns: whether the worker has this lease.
    mutating func partKept(of attempt: AttemptID, bytes: Int, by id: WorkerID) -> Bool {
        guard let worker = handlesByID[id], workers[worker].leases.contains(attempt) else { return false }
        workers[worker].leases[attempt]?.keptBytes = bytes
        return true
    }

    // MARK: Liveness

    /// Starts the heartbeat of a worker with transfers.
    ///
    /// - Returns: the due time of the heartbeat timer; nil if it runs already.
    mutating func watch(_ worker: Handle<WorkerSession>, now: Tick) -> Tick? {
        guard !workers[worker].isWatched else { return nil }
        workers[worker].isWatched = true
        workers[worker].lastReceived = now
        return now.advanced(byMilliseconds: limits.heartbeatMilliseconds)
    }

    /// Handles the heartbeat timer of a worker. A worker without transfers gets no PING, so that an idle bus does not
    /// wake up.
    mutating func heartbeat(of worker: Handle<WorkerSession>, now: Tick) -> Heartbeat {
        guard !workers[worker].isEmpty else {
            workers[worker].isWatched = false
            return .idle
        }
        if let requestedAt = workers[worker].pingedAt {
            let end = requestedAt.advanced(byMilliseconds: limits.silenceMilliseconds)
            return end <= now
                ? .silent(until: now.advanced(byMilliseconds: limits.silenceMilliseconds)) : .waiting(until: end)
        }
        let next = workers[worker].lastReceived.advanced(byMilliseconds: limits.heartbeatMilliseconds)
        guard next <= now else { return .waiting(until: next) }
        workers[worker].pingedAt = now
        // Until then it has most likely answered, and may be silent again.
        let pause = min(limits.heartbeatMilliseconds, limits.silenceMilliseconds)
        return .pinging(until: now.advanced(byMilliseconds: pause))
    }

    // MARK: Isolation

    /// Isolates an attempt until `end`.
    mutating func isolate(_ attempt: AttemptID, until end: Tick, at worker: Handle<WorkerSession>) {
        workers[worker].isolation = WorkerSession.Isolation(attempt: attempt, end: end)
    }

    /// Reserves a worker for suspects, or ends the reservation.
    mutating func setQuarantine(_ worker: Handle<WorkerSession>, _ isQuarantine: Bool) {
        workers[worker].isQuarantine = isQuarantine
    }

    /// Returns the worker for the next suspect of a pool: its quarantine or an empty worker. Returns nil if there is
    /// neither, or while the quarantine isolates a suspect, because the other workers serve the queue. O(workers).
    func workerForSuspect(
        of pool: Handle<WorkerPool>, quarantine: Handle<WorkerSession>?
    ) -> (worker: Handle<WorkerSession>, isEmpty: Bool)? {
        var place: (Handle<WorkerSession>, Bool)?
        if let worker = quarantine {
            guard workers[worker].isolation == nil else { return nil }
            if workers[worker].phase == .ready, unusedSlots(of: worker) > 0 {
                place = (worker, workers[worker].isEmpty)
                if workers[worker].isEmpty { return place }
            }
        }
        let empty = workers.indices.first { worker in
            workers[worker].pools.contains(pool) && freeSlots(of: worker) > 0 && workers[worker].isEmpty
        }
        return empty.map { ($0, true) } ?? place
    }

    /// Handles the isolation timer of a worker. The worker gets a PING, and its answer clears the suspect.
    mutating func isolationEnded(at worker: Handle<WorkerSession>, now: Tick) -> IsolationEnd {
        guard let isolation = workers[worker].isolation, isolation.end <= now else { return .stale }
        guard let requestedAt = isolation.pingedAt else {
            let pings = workers[worker].pingedAt == nil
            if pings { workers[worker].pingedAt = now }
            workers[worker].isolation?.pingedAt = now
            return .awaiting(until: now.advanced(byMilliseconds: limits.silenceMilliseconds), pings: pings)
        }
        guard requestedAt.advanced(byMilliseconds: limits.silenceMilliseconds) <= now else { return .stale }
        // Any message after the PING counts as a sign of life, even one that was already on its way.
        guard workers[worker].lastReceived > requestedAt else { return .silent }
        return .cleared(flight: endIsolation(at: worker))
    }

    /// Handles a PONG.
    ///
    /// - Returns: the flight of the suspect that it clears; nil if the worker isolates none or its isolation still
    ///   runs.
    mutating func ponged(_ worker: Handle<WorkerSession>) -> Handle<Flight>? {
        workers[worker].isolation?.pingedAt == nil ? nil : endIsolation(at: worker)
    }

    private mutating func endIsolation(at worker: Handle<WorkerSession>) -> Handle<Flight>? {
        guard let isolation = workers[worker].isolation else { return nil }
        workers[worker].isolation = nil
        return workers[worker].leases.flight(of: isolation.attempt)
    }
}

extension WorkerFleet.Limits {
    init(_ limits: CoreLimits) {
        heartbeatMilliseconds = limits.heartbeatMilliseconds
        silenceMilliseconds = limits.silenceMilliseconds
    }
}
