internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// One job of the puller: the body that arrives from another node, and its verification.
///
/// ```
/// running ──ended──→ sealing ──→ over          (the hash of a body in a file)
/// running ──refusal──→ over                    (the request failed, or the body is too large or has no room)
/// ```
///
/// The network calls the methods of `PullReceiver`, which store bytes and record facts. `Pulls` acts on them at the end
/// of the pass.
final class PullRun: TimedRun, PullReceiver {
    let job: Job
    let terms: Terms
    let request: PullRequest
    var state: RunState
    /// Reason to end the job; nil without one.
    private(set) var refusal: Refusal?
    private(set) var receivedBytes = 0
    /// Whether the request has ended.
    private var isEnded = false
    private var head: PulledHead?
    private var body: IncomingBody
    private var clock: JobClock
    /// Number of received bytes at the last check of the free space.
    private var checkedBytes = 0
    private let pulls: Pulls

    init(_ job: Job, at node: NodeAddress, _ terms: Terms, _ pulls: Pulls) {
        self.job = job
        self.terms = terms
        self.pulls = pulls
        request = PullRequest(job, at: node)
        let now = pulls.jobs.loop.now
        state = RunState(now: now)
        clock = JobClock(job, now: now)
        body = IncomingBody(of: job.attempt, terms, maxBytes: job.maxBytes ?? .max)
    }

    var jobs: RunTable<PullRun> { pulls.jobs }

    // MARK: Events of the network

    func makeFile(for head: PulledHead) -> Int32? {
        defer { pulls.noteEvent(job.attempt) }
        guard isWanted(head) else { return nil }
        do throws(SystemError) {
            _ = try terms.spool?.room(for: head.length)
            let descriptor = try body.openFile()
            self.head = head
            return descriptor
        } catch {
            refuse(Refusal(spool: error))
            return nil
        }
    }

    func received(_ bytes: Int) {
        guard bytes > receivedBytes else { return }
        receivedBytes = bytes
        body.bodyGrew(to: bytes)
        clock.receivedBody(now: jobs.loop.now)
        checkRoom()
        noteProgress()
        pulls.noteEvent(job.attempt)
    }

    func ended(_ ending: PullEnding) {
        clock.receivedBody(now: jobs.loop.now)
        isEnded = true
        pulls.noteEvent(job.attempt)
        switch ending {
        case .message(let head, let bytes):
            self.head = head
            if isWanted(head) { store(bytes) }
        case .file(let head): self.head = head
        case .unreachable(let reason):
            refuse(Refusal(.connectFailed, "No connection to the node that has the body could be made: \(reason)."))
        case .lost(let reason):
            refuse(Refusal(.reset, "The connection to the node that has the body broke: \(reason)."))
        case .refused(let reason): refuse(Refusal(.notCached, "The other node does not give the body: \(reason)."))
        case .unwritable(let number): refuse(Refusal(spool: SystemError("write spool file", number: number)))
        }
    }

    /// Records the first reason to end the job.
    private func refuse(_ reason: Refusal) { refusal = refusal ?? reason }

    /// Checks the length that the other node announced.
    private func isWanted(_ head: PulledHead) -> Bool {
        if head.length > body.maxBytes { refuse(Refusal(.tooLarge)) }
        return refusal == nil
    }

    private func store(_ bytes: [UInt8]) {
        do throws(IncomingBody.Fault) {
            try body.append(bytes.span)
            receivedBytes = bytes.count
        } catch {
            refuse(Refusal(body: error))
        }
    }

    /// Checks the free space again after some growth, because other programs use it too.
    private func checkRoom() {
        guard let head, receivedBytes - checkedBytes >= Limits.roomBytes else { return }
        checkedBytes = receivedBytes
        do throws(SystemError) { _ = try terms.spool?.room(for: head.length - receivedBytes) } catch {
            refuse(Refusal(spool: error))
        }
    }

    // MARK: The job

    var isSealing: Bool { isEnded && refusal == nil }
    var isHashed: Bool { body.isHashed }

    func raise(to maximum: Int?) { body.raise(to: maximum) }

    func hash(on hasher: PartHasher) throws(SystemError) {
        try body.hash(on: hasher, isLast: isSealing)
    }

    func hashed(_ task: PartHasher.Task) -> Bool { body.hashed(task, now: jobs.loop.now) }

    /// A complete body may wait for its hash.
    var deadline: LoopTime { clock.deadline(isEnded ? .ownWork : .body, now: jobs.loop.now) }

    func overdueRefusal(_ now: LoopTime) -> Refusal? {
        clock.overdueRefusal(isEnded ? .ownWork : .body, now: now, silentMilliseconds: nil)
    }

    func takeProgress() -> WorkerMessage {
        let part = body.fileName.map { BodyPart(file: $0) }
        return .progress(job.attempt, received: receivedBytes, total: head?.length, part: part)
    }

    /// Compares length and digest with those that the other node announced.
    func complete() throws(Refusal) -> (completion: Completion, body: [UInt8]?) {
        guard let head else { throw Refusal(.internalError) }
        var completion = Completion(attempt: job.attempt, status: head.status)
        completion.httpFields = head.httpFields
        guard receivedBytes == head.length else { throw Refusal(.truncated) }
        let bytes = try body.finish(into: &completion)
        // A response without a body has no digest.
        if head.sha256 == nil, completion.length == 0 { completion.sha256 = nil }
        guard head.sha256 == nil || head.sha256 == completion.sha256 else {
            if let file = completion.file { terms.spool?.delete(file) }
            throw Refusal(.digestMismatch, "The body differs from the digest that the other node announced.")
        }
        return (completion, bytes)
    }

    func release() {
        if !isEnded { pulls.network.cancel(request) }
        body.discard()
    }
}
