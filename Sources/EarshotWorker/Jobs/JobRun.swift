internal import Curl
internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// One running job: its phase, and the notes that it leaves for the worker.
///
/// ```
/// hashing → resolving → transferring → sealing → over
/// ```
///
/// Only a job with a lent part starts in `hashing`, and only a large body needs `sealing`. Each phase can end the job.
/// `IncomingResponse` owns the response and `JobClock` the deadlines. libcurl calls the run as its sink; these calls
/// pass bytes on and record facts, nothing else.
final class JobRun: TransferSink {
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
    private let terms: Worker.Terms
    /// See `policies(of:_:)`.
    private let policies: [AddressPolicy]
    var phase = Phase.resolving
    /// Whether the worker has removed the run. Its notes are then ignored.
    var isOver = false
    /// Number of times that the request was sent again.
    var repeats = 0
    /// The timer that calls `overdue`.
    var timer: TimerID?
    private var response: IncomingResponse
    private var clock: JobClock
    /// Time of the last PROGRESS; nil before the first.
    private var progressSent: LoopTime?
    /// Whether a PROGRESS is already noted.
    private var isProgressNoted = false
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
    private let notes: JobNotes

    init(
        _ job: Job, _ plan: TransferPlan, _ terms: Worker.Terms, _ policies: [AddressPolicy], loop: EventLoop,
        notes: JobNotes
    ) {
        let part = job.resume == nil ? nil : terms.spool.flatMap { LentPart(job, in: $0) }
        response = IncomingResponse(.make(job, plan, terms), continuing: part, maxBytes: job.maxBytes)
        clock = JobClock(job, now: loop.now)
        pace = job.rate.map { Pace(rate: $0, now: loop.now) }
        self.policies = policies
        // Assigned last, so that the arguments are moved and not copied.
        self.job = job
        self.plan = plan
        self.terms = terms
        self.loop = loop
        self.notes = notes
    }

    /// Starts the connect timeout. A lent part gets its hash, or is dropped if it could not be read.
    func begin() {
        if case .hashing(let task) = phase { response.partHashed(task) }
        phase = .resolving
        clock.begin(now: loop.now)
    }

    /// Discards a response that is neither a continuation nor whole. The next request asks for the whole body.
    func startOver() {
        response.startOver()
        reportedBytes = 0
        clock.startOver(now: loop.now)
        phase = .resolving
    }

    /// The request for libcurl, for the rest of the lent part if there is one.
    var request: TransferRequest {
        offeredPart.flatMap { plan.request(toResume: $0.kept) } ?? plan.request
    }

    /// The folder of the body's file; nil without a spool.
    var spool: SpoolFolder? { terms.spool }

    // MARK: The response

    /// The part of earlier attempts, until a response decides about it; nil without one.
    var offeredPart: LentPart? { response.offeredPart }
    var refusal: Refusal? { response.refusal }
    var isCut: Bool { response.isCut }
    var isReceived: Bool { response.isReceived }
    var wantsWhole: Bool { response.wantsWhole }
    var endsWithConnection: Bool { response.endsWithConnection }
    /// Decoded bytes of the body so far; 0 once the body is handed over.
    var receivedBytes: Int { response.body.count }
    /// Whether bytes remain to be decoded.
    var hasWork: Bool { response.body.hasWork }
    /// Whether all bytes of the body are hashed.
    var isHashed: Bool { response.body.isHashed }

    /// Bytes of the body that arrived in this pass: an upper bound of those that arrived after a CANCEL read in it.
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
    static func policies(of job: Job, _ terms: Worker.Terms) -> [AddressPolicy] {
        guard !job.addressPolicy.isEmpty else { return terms.policies }
        let own = (try? AddressPolicy(job.addressPolicy)) ?? .nothing
        return terms.policies + (own.isRestricting ? [own] : [])
    }

    func received(headerLine: Span<UInt8>) -> Bool {
        clock.receivedHeaderLine(now: loop.now)
        switch response.append(headerLine: headerLine) {
        case .accepted: return true
        case .redirect:
            notes.redirected.append(self)
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
            if receivedBytes > before { noteNews() }
            return .taken
        }
        guard !hasWork else {
            isPaused = true
            return .postponed
        }
        guard isAdmitted(bytes.count) else { return .postponed }
        response.append(encoded: bytes)
        guard notes.decodable.isEmpty else {
            notes.decodable.append(self)
            return .taken
        }
        return decode() ? .taken : .refused
    }

    // MARK: Rate

    /// Whether the rate admits a piece of the body now. Otherwise notes the run, because libcurl holds the piece back.
    private func isAdmitted(_ bytes: Int) -> Bool {
        if pace?.admits(bytes, now: loop.now) ?? true { return true }
        isPaced = true
        notes.paced.append(self)
        return false
    }

    /// Changes the rate limit; nil removes it.
    func limit(toRate rate: Int?) {
        guard let rate else {
            pace = nil
            if isPaced { notes.paced.append(self) }
            return
        }
        if pace == nil { pace = Pace(rate: rate, now: loop.now) } else { pace?.set(rate: rate, now: loop.now) }
        if isPaced { notes.paced.append(self) }
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
        if notes.decoded.isEmpty { notes.decoded = [UInt8](repeating: 0, count: Limits.decodedPieceBytes) }
        let room = min(Limits.decodedBytesPerTurn, notes.decodingBudget)
        let before = receivedBytes
        guard let left = response.decode(atMost: room, into: &notes.decoded) else { return false }
        notes.decodingBudget -= room - left
        if receivedBytes > before { noteNews() }
        if hasWork { notes.decodable.append(self) }
        return true
    }

    /// Records the arrival time of bytes of the body.
    private func noteTime() {
        if lastBytes?.pass != loop.now { lastBytes = (loop.now, receivedBytes) }
        clock.receivedBody(now: loop.now)
    }

    /// Notes newly stored bytes of the body.
    private func noteNews() {
        if job.progressMilliseconds != nil {
            noteProgress()
            if !isGrowthNoted, receivedBytes - reportedBytes >= Limits.unreportedBytes {
                isGrowthNoted = true
                notes.grown.append(self)
            }
        }
        if !isHashWorkNoted, response.body.hasHashWork {
            isHashWorkNoted = true
            notes.hashable.append(self)
        }
    }

    /// Starts a thread on the next range of the hash of a large body. In `sealing` the range includes all remaining
    /// bytes.
    func hash(on hasher: PartHasher) throws(SystemError) {
        isHashWorkNoted = false
        var isLast = false
        if case .sealing = phase { isLast = true }
        try response.hash(
            on: hasher, isLast: isLast, reports: !isLast && job.progressMilliseconds != nil, now: loop.now)
    }

    /// Takes the result of a hash thread.
    ///
    /// - Returns: false if the thread could not read the file.
    func hashed(_ task: PartHasher.Task) -> Bool {
        guard response.hashed(task, now: loop.now) else { return false }
        if response.body.checkpoint != nil { noteProgress() }
        return true
    }

    /// Omits the body of a followed redirect from the completion.
    ///
    /// - Returns: Whether the completion has no body now.
    func cut() -> Bool { response.cut() }

    /// Marks the transfer as successful.
    func end() throws(Refusal) { try response.end() }

    /// Raises the maximum body size; nil removes it.
    func raise(to maximum: Int?) { response.raise(to: maximum) }

    /// Deletes the bytes of this attempt. An unused part of earlier attempts is left to the broker.
    func discard() { response.discard() }

    /// Leaves the bytes received so far to the broker, if a later attempt may continue them.
    func leave() -> BodyPart? { response.leave() }

    // MARK: Deadlines

    /// Time of the next call of `overdue`.
    var deadline: LoopTime { clock.deadline(stage, now: loop.now) }

    /// Returns the failure of a job that has passed a deadline; nil before it.
    func overdue(_ now: LoopTime) -> Refusal? {
        var running: TransferPool.Running?
        if case .transferring(let transfer) = phase { running = transfer }
        // On a copy: while no access to the property encloses a call, the compiler omits its exclusivity checks.
        var clock = clock
        defer { self.clock = clock }
        return clock.overdue(stage, now: now, silentMilliseconds: running?.silentMilliseconds)
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

    /// Time of the next PROGRESS. A job that ends before the first sends none.
    var progressDue: LoopTime {
        (progressSent ?? clock.started).advanced(milliseconds: job.progressMilliseconds ?? 0)
    }

    /// Returns the PROGRESS for the bytes received so far. Later bytes are noted for another.
    ///
    /// - Parameter isEarly: Whether the body has grown by so much that the PROGRESS does not wait for its time.
    func takeProgress(isEarly: Bool = false) -> WorkerMessage {
        // A timer for the regular one remains.
        if !isEarly { isProgressNoted = false }
        isGrowthNoted = false
        reportedBytes = receivedBytes
        progressSent = loop.now
        return response.progress(streams: job.streams)
    }

    /// Records that the broker has received the last PROGRESS.
    func progressTaken() { response.progressTaken() }

    /// Notes the run for a PROGRESS, also again if the connection did not take the last one.
    func noteProgress() {
        guard !isProgressNoted else { return }
        isProgressNoted = true
        notes.progressed.append(self)
    }

    /// Returns the complete response. The receiver owns the file of its body, if there is one, and must delete it.
    func complete() throws(Refusal) -> (completion: Completion, body: [UInt8]?) {
        var (completion, body) = try response.complete(elapsedMilliseconds: clock.elapsedMilliseconds(now: loop.now))
        completion.repeats = min(repeats, WireLimits.repeats)
        return (completion, body)
    }
}
