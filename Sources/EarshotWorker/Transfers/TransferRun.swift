internal import Curl
internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// One transfer: its phase, and the notes that it leaves for the pass.
///
/// ```
/// hashing → resolving → transferring → sealing → over
/// ```
///
/// Only a job with a lent part starts in `hashing`, and only a large body needs `sealing`. Each phase can end the job.
/// `IncomingResponse` owns the response and `JobClock` the deadlines. libcurl calls the run as its sink; these calls
/// pass bytes on and record facts, nothing else.
final class TransferRun: TimedRun, TransferSink {
    /// The event that the job waits for.
    enum Phase {
        /// The hash of the part of earlier attempts.
        case hashing(PartHasher.Task)
        /// The addresses of the host.
        case resolving
        /// The end of the transfer.
        case transferring(TransferPool.Running)
        /// The hash of the rest of the body.
        case sealing
    }

    let job: Job
    let plan: TransferPlan
    let terms: Terms
    /// See `policies(of:_:)`.
    private let policies: [AddressPolicy]
    var state: RunState
    var phase = Phase.resolving
    var repeatCount = 0
    private(set) var response: IncomingResponse
    private var clock: JobClock
    /// Reason for the end of the job, which waits for the answer to its lookup; nil for none.
    private(set) var pendingRefusal: Refusal?
    /// Number of bytes that the broker knows of.
    private var reportedBytes = 0
    /// Whether an early PROGRESS is already noted.
    private var isGrowthNoted = false
    /// Whether bytes for a hash thread are already noted.
    private var isHashWorkNoted = false
    /// Whether libcurl holds back bytes until earlier ones are decoded.
    private var isPaused = false
    /// Limit of the rate; nil without one.
    private var pace: Pace?
    /// Whether libcurl holds back bytes because of the rate.
    private var isPaced = false
    /// The pass in which the last bytes of the body arrived, and the number of bytes before that pass.
    private var lastBytes: (pass: LoopTime, before: Int)?
    private let loop: EventLoop
    private let transfers: Transfers

    init(
        _ job: Job, _ plan: TransferPlan, _ terms: Terms, _ policies: [AddressPolicy], _ transfers: Transfers
    ) {
        let loop = transfers.jobs.loop
        state = RunState(now: loop.now)
        let part = job.resume == nil ? nil : terms.spool.flatMap { OfferedPart(job, in: $0) }
        response = IncomingResponse(.make(job, plan, terms), continuing: part, maxBytes: job.maxBytes)
        clock = JobClock(job, now: loop.now)
        pace = job.rate.map { Pace(rate: $0, now: loop.now) }
        self.policies = policies
        // Assigned last, so that the arguments are moved and not copied.
        self.job = job
        self.plan = plan
        self.terms = terms
        self.loop = loop
        self.transfers = transfers
    }

    var jobs: RunTable<TransferRun> { transfers.jobs }
    var isOver: Bool { state.isOver }

    /// Discards a response that is neither a continuation nor whole. The next request asks for the whole body.
    func startOver() {
        response.startOver()
        reportedBytes = 0
        clock.startOver(now: loop.now)
        phase = .resolving
    }

    /// The request for libcurl, for the rest of the lent part if there is one.
    var request: TransferRequest {
        offeredPart.flatMap { plan.request(toResume: $0.partialBody) } ?? plan.request
    }

    // MARK: The response

    /// The part of earlier attempts, until a response decides about it; nil without one.
    var offeredPart: OfferedPart? { response.offeredPart }
    var receivedBytes: Int { response.body.count }
    /// Whether bytes remain to be decoded.
    var hasWork: Bool { response.body.hasWork }
    var isHashed: Bool { response.body.isHashed }
    var isSealing: Bool { if case .sealing = phase { true } else { false } }

    var bytesOfPass: Int {
        guard let lastBytes, lastBytes.pass == loop.now else { return 0 }
        return receivedBytes - lastBytes.before
    }

    func admits(address: String) -> Bool {
        guard !policies.isEmpty else { return true }
        guard let address = IPAddress(address) else { return false }
        let host = String(plan.url.host)
        return policies.allSatisfy { $0.verdict(host: host, address: address).isAllowed }
    }

    /// Policies that restrict the addresses of a job: that of the terms and its own. One that cannot be parsed allows none.
    static func policies(of job: Job, _ terms: Terms) -> [AddressPolicy] {
        guard !job.addressPolicy.isEmpty else { return terms.policies }
        let own = (try? AddressPolicy(job.addressPolicy)) ?? .nothing
        return terms.policies + (own.isRestricting ? [own] : [])
    }

    func received(headerLine: Span<UInt8>) -> Bool {
        clock.receivedHeaderLine(now: loop.now)
        switch response.append(headerLine: headerLine) {
        case .accepted: return true
        case .redirect:
            transfers.redirected.append(self)
            return true
        case .refused: return false
        }
    }

    func received(body bytes: Span<UInt8>) -> Reception {
        guard response.takesEncoded else {
            guard isAdmitted(bytes.count) else { return .postponed }
            noteTime()
            let before = receivedBytes
            guard response.append(body: bytes) else { return .refused }
            if receivedBytes > before { noteArrival() }
            return .taken
        }
        guard !hasWork else {
            isPaused = true
            return .postponed
        }
        guard isAdmitted(bytes.count) else { return .postponed }
        response.append(encoded: bytes)
        guard transfers.decodable.isEmpty else {
            transfers.decodable.append(self)
            return .taken
        }
        return decode() ? .taken : .refused
    }

    // MARK: Rate

    /// Whether the rate admits a piece of the body now. Otherwise notes the run, because libcurl holds the piece back.
    private func isAdmitted(_ bytes: Int) -> Bool {
        if pace?.admits(bytes, now: loop.now) ?? true { return true }
        isPaced = true
        transfers.paced.append(self)
        return false
    }

    /// Changes the rate limit; nil removes it.
    func limit(toRate rate: Int?) {
        guard let rate else {
            pace = nil
            if isPaced { transfers.paced.append(self) }
            return
        }
        if pace == nil { pace = Pace(rate: rate, now: loop.now) } else { pace?.set(rate: rate, now: loop.now) }
        if isPaced { transfers.paced.append(self) }
    }

    /// Time at which a transfer that waits for its rate may continue; nil if it may now, or does not wait.
    var paceEnd: LoopTime? { isPaced ? pace?.obstacle(now: loop.now) : nil }

    /// Returns whether libcurl holds back bytes because of the rate, and resets the flag.
    func takePace() -> Bool {
        guard isPaced else { return false }
        isPaced = false
        clock.receivedBody(now: loop.now)
        return true
    }

    /// Returns whether libcurl holds back bytes that it may deliver now, and resets the flag.
    func takePause() -> Bool {
        defer { isPaused = false }
        return isPaused
    }

    /// Decodes within the budget of its turn and of the pass, and notes the run for another turn if bytes remain.
    ///
    /// - Returns: false if the body is abandoned.
    func decode() -> Bool {
        noteTime()
        if transfers.decoded.isEmpty { transfers.decoded = [UInt8](repeating: 0, count: Limits.decodedPieceBytes) }
        let room = min(Limits.decodedBytesPerTurn, transfers.decodingBudget)
        let before = receivedBytes
        guard let left = response.decode(atMost: room, into: &transfers.decoded) else { return false }
        transfers.decodingBudget -= room - left
        if receivedBytes > before { noteArrival() }
        if hasWork { transfers.decodable.append(self) }
        return true
    }

    /// Records the arrival time of bytes of the body.
    private func noteTime() {
        if lastBytes?.pass != loop.now { lastBytes = (loop.now, receivedBytes) }
        clock.receivedBody(now: loop.now)
    }

    /// Notes newly stored bytes of the body.
    private func noteArrival() {
        noteProgress()
        if job.progressMilliseconds != nil, !isGrowthNoted, receivedBytes - reportedBytes >= Limits.unreportedBytes {
            isGrowthNoted = true
            transfers.grownRuns.append(self)
        }
        if !isHashWorkNoted, response.body.hasHashWork {
            isHashWorkNoted = true
            transfers.hashable.append(self)
        }
    }

    func hash(on hasher: PartHasher) throws(SystemError) {
        isHashWorkNoted = false
        try response.hash(
            on: hasher, isLast: isSealing, reports: !isSealing && job.progressMilliseconds != nil, now: loop.now)
    }

    func hashed(_ task: PartHasher.Task) -> Bool {
        switch phase {
        case .hashing:
            // A part that could not be read is dropped.
            response.partHashed(task)
            phase = .resolving
            clock.begin(now: loop.now)
            transfers.begin(self)
        case .resolving: break
        case .transferring, .sealing:
            guard response.hashed(task, now: loop.now) else { return false }
            if response.body.checkpoint != nil { noteProgress() }
        }
        return true
    }

    /// Omits the body of a followed redirect from the completion.
    ///
    /// - Returns: Whether the completion has no body now.
    func omitRedirectBody() -> Bool { response.omitRedirectBody() }

    /// Marks the transfer as successful.
    func end() throws(Refusal) { try response.end() }

    func raise(to maximum: Int?) { response.raise(to: maximum) }

    func stop(_ reason: Refusal) -> Bool {
        guard case .resolving = phase, jobs.link.isUp, !transfers.names.mayWithdraw(plan.host, for: job.attempt) else {
            return true
        }
        pendingRefusal = pendingRefusal ?? reason
        return false
    }

    /// Ends the work of the phase, and deletes the bytes of this attempt. An unused part of earlier attempts is left to the
    /// broker.
    func release() {
        switch phase {
        case .hashing(let task): task.cancel()
        case .resolving: transfers.names.withdraw(plan.host, for: job.attempt)
        case .transferring(let running): transfers.pool.cancel(running)
        case .sealing: break
        }
        response.discard()
    }

    func leavePart() -> BodyPart? { response.leavePart() }

    // MARK: Deadlines

    var deadline: LoopTime { clock.deadline(stage, now: loop.now) }

    func overdueRefusal(_ now: LoopTime) -> Refusal? {
        var running: TransferPool.Running?
        if case .transferring(let transfer) = phase { running = transfer }
        // On a copy: while no access to the property encloses a call, the compiler omits its exclusivity checks.
        var clock = clock
        defer { self.clock = clock }
        return clock.overdueRefusal(stage, now: now, silentMilliseconds: running?.silentMilliseconds)
    }

    /// Returns the time left of the connect timeout.
    func connectTimeLeft(_ now: LoopTime) -> Duration { clock.connectTimeLeft(now: now) }

    private var stage: JobClock.Stage {
        switch phase {
        case .hashing, .sealing: .ownWork
        case .resolving: .resolving
        // The silence is the worker's own.
        case .transferring where isPaced: .ownWork
        case .transferring: response.head.isComplete ? .body : .header
        }
    }

    // MARK: Progress and end

    func takeProgress() -> WorkerMessage {
        isGrowthNoted = false
        reportedBytes = receivedBytes
        return response.progress(streams: job.streams)
    }

    func progressTaken() { response.progressTaken() }

    func complete() throws(Refusal) -> (completion: Completion, body: [UInt8]?) { try response.complete() }
}
