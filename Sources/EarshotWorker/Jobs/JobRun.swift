internal import Curl
internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// One job while it runs: its phase, and the notes that it leaves for the worker.
///
/// ```
/// hashing → resolving → transferring → sealing → over
/// ```
///
/// Only a job with a part of an earlier attempt begins with `hashing`, and only a large body needs `sealing`. Each phase
/// can end the job. The response belongs to `IncomingResponse`, the deadlines to `JobClock`. As a sink the run is called
/// inside libcurl: it passes bytes on and notes facts.
final class JobRun: TransferSink {
    /// What the job waits for.
    enum Phase {
        /// The hash of the part that earlier attempts brought.
        case hashing(PartHasher.Task)
        /// The addresses of its host.
        case resolving
        /// Its bytes.
        case transferring(TransferPool.Running)
        /// The hash of the end of its body.
        case sealing
    }

    let job: Job
    let plan: TransferPlan
    private let terms: Worker.Terms
    var phase = Phase.resolving
    /// Whether the worker has removed it: its notes mean nothing.
    var isOver = false
    /// The timer that asks for `overdue`.
    var timer: TimerID?
    private var response: IncomingResponse
    private var clock: JobClock
    /// Time of the last PROGRESS; nil before the first.
    private var progressSent: LoopTime?
    /// Whether it is noted that a PROGRESS is due.
    private var isProgressNoted = false
    /// Whether it is noted that a thread has bytes to hash.
    private var isHashWorkNoted = false
    /// Whether libcurl keeps bytes that came before earlier ones were decoded.
    private var isPaused = false
    /// The pass in which the last bytes of body came, and the number of bytes before it.
    private var lastBytes: (pass: LoopTime, before: Int)?
    private let loop: EventLoop
    private let notes: JobNotes

    init(_ job: Job, _ plan: TransferPlan, _ terms: Worker.Terms, loop: EventLoop, notes: JobNotes) {
        let part = job.resume == nil ? nil : terms.spool.flatMap { LentPart(job, in: $0) }
        response = IncomingResponse(.make(job, plan, terms), continuing: part, maxBytes: job.maxBytes)
        clock = JobClock(job, now: loop.now)
        // Last, so that the arguments are moved and not copied.
        self.job = job
        self.plan = plan
        self.terms = terms
        self.loop = loop
        self.notes = notes
    }

    /// Starts the times to connect and in total. The part of earlier attempts has its hash, or is dropped.
    func begin() {
        if case .hashing(let task) = phase { response.partHashed(task) }
        phase = .resolving
        clock.begin(now: loop.now)
    }

    /// Forgets a response that fits nothing. The next request asks for the whole.
    func startOver() {
        response.startOver()
        clock.startOver()
        phase = .resolving
    }

    /// The request for libcurl.
    var request: TransferRequest {
        offeredPart.flatMap { plan.request(toResume: $0.kept) } ?? plan.request
    }

    /// The folder of the body's file; nil without a spool.
    var spool: SpoolFolder? { terms.spool }

    // MARK: The response

    /// The part of earlier attempts, until a response decides about it.
    var offeredPart: LentPart? { response.offeredPart }
    var refusal: Refusal? { response.refusal }
    var isCut: Bool { response.isCut }
    var isReceived: Bool { response.isReceived }
    var wantsWhole: Bool { response.wantsWhole }
    var endsWithConnection: Bool { response.endsWithConnection }
    /// Decoded bytes of the body so far; 0 once the body is given away.
    var receivedBytes: Int { response.body.count }
    /// Whether bytes are left to decode.
    var hasWork: Bool { response.body.hasWork }
    /// Whether all of the body has gone through SHA-256.
    var isHashed: Bool { response.body.isHashed }

    /// Bytes of body that came in the present pass: at most so many since a message read in it became readable.
    var bytesOfPass: Int {
        guard let lastBytes, lastBytes.pass == loop.now else { return 0 }
        return receivedBytes - lastBytes.before
    }

    func admits(address: String) -> Bool {
        guard terms.addresses.isRestricting else { return true }
        guard let address = IPAddress(address) else { return false }
        return terms.addresses.verdict(host: String(plan.url.host), address: address).isAllowed
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
        guard response.body.isEncoded, response.head.isComplete else {
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
        response.append(encoded: bytes)
        guard notes.decodable.isEmpty else {
            notes.decodable.append(self)
            return .taken
        }
        return decode() ? .taken : .refused
    }

    /// Returns whether libcurl keeps bytes that it can deliver now.
    func takePause() -> Bool {
        defer { isPaused = false }
        return isPaused
    }

    /// Decodes as many bytes as its turn and the pass have room for; notes that it needs another turn for the rest.
    ///
    /// - Returns: false if the body is given up.
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

    /// Records the time of bytes of the body.
    private func noteTime() {
        if lastBytes?.pass != loop.now { lastBytes = (loop.now, receivedBytes) }
        clock.receivedBody(now: loop.now)
    }

    /// Notes that bytes of the body are stored.
    private func noteNews() {
        if job.progressMilliseconds != nil, !isProgressNoted {
            isProgressNoted = true
            notes.progressed.append(self)
        }
        if !isHashWorkNoted, response.body.hasHashWork {
            isHashWorkNoted = true
            notes.hashable.append(self)
        }
    }

    /// Has a thread continue the hash of a large body; in `sealing` all of its rest.
    func hash(on hasher: PartHasher) throws(SystemError) {
        isHashWorkNoted = false
        var isLast = false
        if case .sealing = phase { isLast = true }
        try response.hash(on: hasher, isLast: isLast)
    }

    /// Takes a thread's result.
    ///
    /// - Returns: false if the thread could not read the file.
    func hashed(_ task: PartHasher.Task) -> Bool { response.hashed(task) }

    /// Leaves the body of a followed redirect out of the answer.
    ///
    /// - Returns: whether the answer has no body now.
    func cut() -> Bool { response.cut() }

    /// Notes that the transfer has ended well.
    func end() throws(Refusal) { try response.end() }

    /// Raises the maximum body size; nil removes it.
    func raise(to maximum: Int?) { response.raise(to: maximum) }

    /// Deletes the bytes of this attempt. An unused part of earlier attempts stays for the broker.
    func discard() { response.discard() }

    /// Leaves the bytes so far to the broker, if a later attempt may continue them.
    func leave() -> BodyPart? { response.leave() }

    // MARK: Deadlines

    /// Time at which to ask for `overdue`.
    var deadline: LoopTime { clock.deadline(stage, now: loop.now) }

    /// Returns the failure of a job that has taken too long; nil if it has not.
    func overdue(_ now: LoopTime) -> Refusal? {
        var running: TransferPool.Running?
        if case .transferring(let transfer) = phase { running = transfer }
        return clock.overdue(stage, now: now, silentMilliseconds: running?.silentMilliseconds)
    }

    /// Time left to connect and in total.
    func timeLeft(_ now: LoopTime) -> (connect: Duration, total: Duration?) { clock.timeLeft(now: now) }

    private var stage: JobClock.Stage {
        switch phase {
        case .hashing, .sealing: .ownWork
        case .resolving: .resolving
        case .transferring: response.head.isComplete ? .body : .header
        }
    }

    // MARK: Progress and end

    /// Time of the next PROGRESS. A job that ends before the first sends none.
    var progressDue: LoopTime {
        (progressSent ?? clock.started).advanced(milliseconds: job.progressMilliseconds ?? 0)
    }

    /// The PROGRESS of the bytes so far; the next bytes are worth another.
    func takeProgress() -> WorkerMessage {
        isProgressNoted = false
        progressSent = loop.now
        return response.progress(streams: job.streams)
    }

    /// The broker has the last PROGRESS.
    func progressTaken() { response.progressTaken() }

    /// The report from which another broker continues this job.
    func held(_ now: LoopTime) -> HeldAttempt {
        var held = HeldAttempt(attempt: job.attempt, url: job.url)
        // A part needs the fields of a response that this job may not have seen.
        if job.resume == nil { held.flight = job.flight }
        held.elapsedMilliseconds = min(clock.elapsedMilliseconds(now: now), WireLimits.seconds * 1_000)
        response.report(in: &held)
        return held
    }

    /// The body's file, for another broker; nil while there is none.
    func part() -> BodyPart? { response.part() }

    /// Returns the whole response. The file of its body, if it has one, is the receiver's to delete.
    func complete() throws(Refusal) -> (completion: Completion, body: [UInt8]?) {
        try response.complete(elapsedMilliseconds: clock.elapsedMilliseconds(now: loop.now))
    }
}
