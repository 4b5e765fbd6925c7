internal import Curl
internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// One transfer: its phase, and the work that it schedules for the pass.
///
/// ```
/// hashingPart  → resolving → transferring → hashingBody → over
/// transferring → resolving                     (restartWithoutPart: the response does not match the offered part)
/// ```
///
/// Only a job with an offered part starts in `hashingPart`, and only a large body needs `hashingBody`. Each phase can
/// end the job. `IncomingResponse` owns the response and `JobClock` the deadlines. libcurl calls the run as its sink;
/// these calls pass bytes on and record facts, nothing else.
final class TransferRun: TimedRun, TransferSink {
    /// The event that the job waits for.
    enum Phase {
        /// The hash of the part of earlier attempts.
        case hashingPart(PartHasher.Task)
        /// The addresses of the host.
        case resolving
        /// The end of the transfer.
        case transferring(TransferPool.RunningTransfer)
        /// The hash of the rest of the body.
        case hashingBody
    }

    let job: Job
    let plan: TransferPlan
    let terms: Terms
    /// See `addressPolicies(of:_:)`.
    private let addressPolicies: [AddressPolicy]
    var state: RunState
    var phase = Phase.resolving
    var requestRepeatCount = 0
    private(set) var response: IncomingResponse
    private var clock: JobClock
    /// Reason for the end of the job, which waits for the answer to its lookup; nil for none.
    private(set) var pendingRefusal: Refusal?
    /// Number of bytes that the broker knows of.
    private var reportedBytes = 0
    /// Whether an early PROGRESS is already scheduled.
    private var hasScheduledEarlyProgress = false
    /// Whether the run is already scheduled for a hash thread.
    private var isScheduledForHashing = false
    /// Whether libcurl holds back bytes until earlier ones are decoded.
    private var isPausedForDecoding = false
    /// Limit of the rate; nil without one.
    private var rateLimiter: Pace?
    /// Whether libcurl holds back bytes because of the rate.
    private var isPausedByRate = false
    /// The pass in which the last bytes of the body arrived, and the number of bytes before that pass.
    private var lastBodyPass: (pass: LoopTime, before: Int)?
    private let loop: EventLoop
    private let transfers: Transfers

    init(job: Job, plan: TransferPlan, terms: Terms, policies: [AddressPolicy], transfers: Transfers) {
        let loop = transfers.jobs.loop
        state = RunState(now: loop.now)
        let part = job.resume == nil ? nil : terms.spool.flatMap { OfferedPart(job, in: $0) }
        response = IncomingResponse(
            .make(job: job, plan: plan, terms: terms), continuing: part, maximumBodyBytes: job.maximumBodyBytes)
        clock = JobClock(job, now: loop.now)
        rateLimiter = job.maximumBytesPerSecond.map { Pace(bytesPerSecond: $0, now: loop.now) }
        self.addressPolicies = policies
        // Assigned last, so that the arguments are moved and not copied.
        self.job = job
        self.plan = plan
        self.terms = terms
        self.loop = loop
        self.transfers = transfers
    }

    var jobs: RunTable<TransferRun> { transfers.jobs }
    var isOver: Bool { state.isOver }

    /// Discards a response that is neither a continuation nor whole. The next request is for the whole body.
    func restartWithoutPart() {
        response.resetResponse()
        reportedBytes = 0
        clock.restartConnectTimeout(now: loop.now)
        phase = .resolving
    }

    /// The request for libcurl, for the rest of the offered part if there is one.
    var request: TransferRequest {
        offeredPart.flatMap { plan.requestResuming($0.partialBody) } ?? plan.request
    }

    // MARK: The response

    /// The part of earlier attempts, until a response decides about it; nil without one.
    var offeredPart: OfferedPart? { response.offeredPart }
    var receivedBytes: Int { response.body.count }
    /// Whether bytes remain to be decoded.
    var hasUndecodedBytes: Bool { response.body.hasUndecodedBytes }
    var isBodyHashed: Bool { response.body.isHashed }
    var isAwaitingBodyHash: Bool { if case .hashingBody = phase { true } else { false } }

    var bodyBytesInCurrentPass: Int {
        guard let lastBodyPass, lastBodyPass.pass == loop.now else { return 0 }
        return receivedBytes - lastBodyPass.before
    }

    func admits(address: String) -> Bool {
        guard !addressPolicies.isEmpty else { return true }
        guard let address = IPAddress(address) else { return false }
        let host = String(plan.url.host)
        return addressPolicies.allSatisfy { $0.verdict(host: host, address: address).isAllowed }
    }

    /// Returns the policies that restrict the addresses of a job: that of the terms and its own. One that cannot be
    /// parsed allows none.
    static func addressPolicies(of job: Job, _ terms: Terms) -> [AddressPolicy] {
        guard !job.addressPolicy.isEmpty else { return terms.addressPolicies }
        let own = (try? AddressPolicy(job.addressPolicy)) ?? .denyAll
        return terms.addressPolicies + (own.isRestricting ? [own] : [])
    }

    func received(headerLine: Span<UInt8>) -> Bool {
        clock.receivedHeaderLine(now: loop.now)
        switch response.append(headerLine: headerLine) {
        case .accepted: return true
        case .followedRedirect:
            transfers.runsWithRedirect.append(self)
            return true
        case .refused: return false
        }
    }

    func received(body bytes: Span<UInt8>) -> Reception {
        guard response.acceptsEncodedBytes else {
            guard admitsBodyPiece(bytes.count) else { return .paused }
            recordBodyArrivalTime()
            let before = receivedBytes
            guard response.append(body: bytes) else { return .refused }
            if receivedBytes > before { scheduleBodyWork() }
            return .accepted
        }
        guard !hasUndecodedBytes else {
            isPausedForDecoding = true
            return .paused
        }
        guard admitsBodyPiece(bytes.count) else { return .paused }
        response.append(encoded: bytes)
        guard transfers.runsToDecode.isEmpty else {
            transfers.runsToDecode.append(self)
            return .accepted
        }
        return decodeWithinBudget() ? .accepted : .refused
    }

    // MARK: Rate

    /// Returns whether the rate admits a piece of the body now. Otherwise schedules the run, because libcurl holds the
    /// piece back.
    private func admitsBodyPiece(_ bytes: Int) -> Bool {
        if rateLimiter?.consumeCredit(bytes: bytes, now: loop.now) ?? true { return true }
        isPausedByRate = true
        transfers.runsWaitingForRate.append(self)
        return false
    }

    /// Changes the rate limit; nil removes it.
    func setRateLimit(bytesPerSecond rate: Int?) {
        guard let rate else {
            rateLimiter = nil
            if isPausedByRate { transfers.runsWaitingForRate.append(self) }
            return
        }
        if rateLimiter == nil {
            rateLimiter = Pace(bytesPerSecond: rate, now: loop.now)
        } else {
            rateLimiter?.setRate(bytesPerSecond: rate, now: loop.now)
        }
        if isPausedByRate { transfers.runsWaitingForRate.append(self) }
    }

    /// Time at which a transfer that waits for its rate may continue; nil if it may now, or does not wait.
    var rateAdmissionTime: LoopTime? { isPausedByRate ? rateLimiter?.admissionTime(now: loop.now) : nil }

    /// Returns whether libcurl holds back bytes because of the rate, and resets the flag.
    func takeRatePause() -> Bool {
        guard isPausedByRate else { return false }
        isPausedByRate = false
        clock.receivedBody(now: loop.now)
        return true
    }

    /// Returns whether libcurl holds back bytes that it may deliver now, and resets the flag.
    func takeDecodingPause() -> Bool {
        defer { isPausedForDecoding = false }
        return isPausedForDecoding
    }

    /// Decodes within the budget of its turn and of the pass, and schedules another turn if bytes remain.
    ///
    /// - Returns: false if the body is abandoned.
    func decodeWithinBudget() -> Bool {
        recordBodyArrivalTime()
        if transfers.decodingBuffer.isEmpty {
            transfers.decodingBuffer = [UInt8](repeating: 0, count: Limits.decodingBufferBytes)
        }
        let room = min(Limits.decodedBytesPerTurn, transfers.remainingDecodingBytes)
        let before = receivedBytes
        guard let left = response.decode(atMost: room, into: &transfers.decodingBuffer) else { return false }
        transfers.remainingDecodingBytes -= room - left
        if receivedBytes > before { scheduleBodyWork() }
        if hasUndecodedBytes { transfers.runsToDecode.append(self) }
        return true
    }

    /// Records the arrival time of bytes of the body.
    private func recordBodyArrivalTime() {
        if lastBodyPass?.pass != loop.now { lastBodyPass = (loop.now, receivedBytes) }
        clock.receivedBody(now: loop.now)
    }

    /// Schedules a PROGRESS and a hash thread for newly stored bytes of the body.
    private func scheduleBodyWork() {
        scheduleProgress()
        if job.progressIntervalMilliseconds != nil, !hasScheduledEarlyProgress,
            receivedBytes - reportedBytes >= Limits.unreportedGrowthBytes
        {
            hasScheduledEarlyProgress = true
            transfers.runsWithEarlyProgress.append(self)
        }
        if !isScheduledForHashing, response.body.hasEnoughBytesToHash {
            isScheduledForHashing = true
            transfers.runsToHash.append(self)
        }
    }

    func startHashing(on hasher: PartHasher) throws(SystemError) {
        isScheduledForHashing = false
        try response.startHashing(
            on: hasher, isLast: isAwaitingBodyHash,
            reportsCheckpoint: !isAwaitingBodyHash && job.progressIntervalMilliseconds != nil, now: loop.now)
    }

    func receiveHash(from task: PartHasher.Task) -> Bool {
        switch phase {
        case .hashingPart:
            // A part that could not be read is dropped.
            response.receivePartHash(task)
            phase = .resolving
            clock.startConnectTimeout(now: loop.now)
            transfers.beginLookup(self)
        case .resolving: break
        case .transferring, .hashingBody:
            guard response.receiveHash(from: task, now: loop.now) else { return false }
            if response.body.unreportedCheckpoint != nil { scheduleProgress() }
        }
        return true
    }

    /// Omits the body of a followed redirect from the completion.
    ///
    /// - Returns: Whether the completion has no body now.
    func omitRedirectBody() -> Bool { response.omitRedirectBody() }

    /// Marks the transfer as successful.
    func finishTransfer() throws(Refusal) { try response.finishTransfer() }

    func raiseMaximumBodyBytes(to maximum: Int?) { response.raiseMaximumBodyBytes(to: maximum) }

    func stop(because reason: Refusal) -> Bool {
        guard case .resolving = phase, jobs.link.isAccepted,
            !transfers.nameLookups.mayWithdrawLookup(plan.connectHost, for: job.attempt)
        else {
            return true
        }
        pendingRefusal = pendingRefusal ?? reason
        return false
    }

    /// Ends the work of the phase, and deletes the bytes of this attempt. An unused part of earlier attempts is left to
    /// the broker.
    func release() {
        switch phase {
        case .hashingPart(let task): task.cancel()
        case .resolving: transfers.nameLookups.withdrawLookup(plan.connectHost, for: job.attempt)
        case .transferring(let running): transfers.pool.cancel(running)
        case .hashingBody: break
        }
        response.discard()
    }

    func handOverPartialBody() -> BodyPart? { response.handOverPartialBody() }

    // MARK: Deadlines

    var deadline: LoopTime { clock.nextDeadline(clockStage, now: loop.now) }

    func overdueRefusal(now: LoopTime) -> Refusal? {
        var running: TransferPool.RunningTransfer?
        if case .transferring(let transfer) = phase { running = transfer }
        // On a copy: while no access to the property encloses a call, the compiler omits its exclusivity checks.
        var clock = clock
        defer { self.clock = clock }
        return clock.overdueRefusal(clockStage, now: now, silentMilliseconds: running?.millisecondsSinceLastInput)
    }

    /// Returns the time left of the connect timeout.
    func remainingConnectTime(now: LoopTime) -> Duration { clock.remainingConnectTime(now: now) }

    private var clockStage: JobClock.Stage {
        switch phase {
        case .hashingPart, .hashingBody: .hashingFile
        case .resolving: .resolving
        // The silence is the worker's own.
        case .transferring where isPausedByRate: .hashingFile
        case .transferring: response.head.isComplete ? .body : .receivingHeader
        }
    }

    // MARK: Progress and end

    func makeProgressMessage() -> WorkerMessage {
        hasScheduledEarlyProgress = false
        reportedBytes = receivedBytes
        return response.makeProgressMessage(streams: job.streams)
    }

    func recordSentProgress() { response.recordSentProgress() }

    func makeCompletion() throws(Refusal) -> (completion: Completion, body: [UInt8]?) { try response.makeCompletion() }
}
