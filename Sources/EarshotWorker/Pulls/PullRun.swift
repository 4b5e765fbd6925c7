internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// One job of the puller: the body that arrives from another node, and its verification.
///
/// ```
/// running ──request ended──→ hashing ──→ over     (the hash of a body in a file)
/// running ──refusal──→ over                       (the request failed, or the body is too large or has no room)
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
    private var hasRequestEnded = false
    private var head: PulledHead?
    private var body: IncomingBody
    private var clock: JobClock
    /// Number of received bytes at the last check of the free space.
    private var bytesAtLastSpaceCheck = 0
    private let pulls: Pulls

    init(_ job: Job, at node: NodeAddress, terms: Terms, pulls: Pulls) {
        self.job = job
        self.terms = terms
        self.pulls = pulls
        request = PullRequest(job, at: node)
        let now = pulls.jobs.loop.now
        state = RunState(now: now)
        clock = JobClock(job, now: now)
        body = IncomingBody(of: job.attempt, terms, maximumBodyBytes: job.maximumBodyBytes ?? .max)
    }

    var jobs: RunTable<PullRun> { pulls.jobs }

    // MARK: Events of the network

    func makeBodyFile(for head: PulledHead) -> Int32? {
        defer { pulls.noteEvent(job.attempt) }
        guard isWanted(head) else { return nil }
        do throws(SystemError) {
            _ = try terms.spool?.writableBytes(for: head.bodyBytes)
            let descriptor = try body.openFile()
            self.head = head
            return descriptor
        } catch {
            recordRefusal(Refusal(spoolError: error))
            return nil
        }
    }

    func bodyGrew(to bytes: Int) {
        guard bytes > receivedBytes else { return }
        receivedBytes = bytes
        body.recordFileGrowth(to: bytes)
        clock.receivedBody(now: jobs.loop.now)
        checkFreeSpace()
        scheduleProgress()
        pulls.noteEvent(job.attempt)
    }

    func requestEnded(_ ending: PullEnding) {
        clock.receivedBody(now: jobs.loop.now)
        hasRequestEnded = true
        pulls.noteEvent(job.attempt)
        switch ending {
        case .bodyInMessage(let head, let bytes):
            self.head = head
            if isWanted(head) { store(bytes) }
        case .bodyInFile(let head): self.head = head
        case .nodeUnreachable(let reason):
            recordRefusal(
                Refusal(.connectFailed, "No connection to the node that has the body could be made: \(reason)."))
        case .connectionLost(let reason):
            recordRefusal(Refusal(.connectionReset, "The connection to the node that has the body broke: \(reason)."))
        case .requestRefused(let reason):
            recordRefusal(Refusal(.notCached, "The other node does not give the body: \(reason)."))
        case .fileUnwritable(let number):
            recordRefusal(Refusal(spoolError: SystemError("write spool file", number: number)))
        }
    }

    /// Records the first reason to end the job.
    private func recordRefusal(_ reason: Refusal) { refusal = refusal ?? reason }

    /// Checks the length that the other node announced.
    private func isWanted(_ head: PulledHead) -> Bool {
        if head.bodyBytes > body.maximumBodyBytes { recordRefusal(Refusal(.tooLarge)) }
        return refusal == nil
    }

    private func store(_ bytes: [UInt8]) {
        do throws(IncomingBody.Fault) {
            try body.append(bytes.span)
            receivedBytes = bytes.count
        } catch {
            recordRefusal(Refusal(bodyFault: error))
        }
    }

    /// Checks the free space again after some growth, because other programs use it too.
    private func checkFreeSpace() {
        guard let head, receivedBytes - bytesAtLastSpaceCheck >= Limits.spaceCheckIntervalBytes else { return }
        bytesAtLastSpaceCheck = receivedBytes
        do throws(SystemError) { _ = try terms.spool?.writableBytes(for: head.bodyBytes - receivedBytes) } catch {
            recordRefusal(Refusal(spoolError: error))
        }
    }

    // MARK: The job

    var isAwaitingBodyHash: Bool { hasRequestEnded && refusal == nil }
    var isBodyHashed: Bool { body.isHashed }

    func raiseMaximumBodyBytes(to maximum: Int?) { body.raiseMaximumBodyBytes(to: maximum) }

    func startHashing(on hasher: PartHasher) throws(SystemError) {
        try body.startHashing(on: hasher, isLast: isAwaitingBodyHash)
    }

    func receiveHash(from task: PartHasher.Task) -> Bool { body.receiveHash(from: task, now: jobs.loop.now) }

    /// A complete body may wait for its hash.
    var deadline: LoopTime { clock.nextDeadline(hasRequestEnded ? .hashingFile : .body, now: jobs.loop.now) }

    func overdueRefusal(now: LoopTime) -> Refusal? {
        clock.overdueRefusal(hasRequestEnded ? .hashingFile : .body, now: now, silentMilliseconds: nil)
    }

    func makeProgressMessage() -> WorkerMessage {
        let part = body.fileName.map { BodyPart(fileName: $0) }
        return .progress(job.attempt, received: receivedBytes, total: head?.bodyBytes, part: part)
    }

    /// Compares length and digest with those that the other node announced.
    func makeCompletion() throws(Refusal) -> (completion: Completion, body: [UInt8]?) {
        guard let head else { throw Refusal(.internalError) }
        var completion = Completion(attempt: job.attempt, status: head.status)
        completion.httpFields = head.httpFields
        guard receivedBytes == head.bodyBytes else { throw Refusal(.truncated) }
        let bytes = try body.finish(into: &completion)
        // A response without a body has no digest.
        if head.bodySHA256 == nil, completion.bodyByteCount == 0 { completion.sha256 = nil }
        guard head.bodySHA256 == nil || head.bodySHA256 == completion.sha256 else {
            if let file = completion.fileName { terms.spool?.delete(file) }
            throw Refusal(.digestMismatch, "The body differs from the digest that the other node announced.")
        }
        return (completion, bytes)
    }

    func release() {
        if !hasRequestEnded { pulls.network.cancel(request) }
        body.discard()
    }
}
