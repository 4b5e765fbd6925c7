internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import LibCrypto

/// One job of the puller: the body that arrives from another node, and its verification.
///
/// ```
/// running ──ended──→ hashing ──→ over          (a body in a file)
/// running ──ended──→ over                      (a body in a message, or a failure)
/// running ──stop──→ over                       (cancelled, timed out, too large, no room)
/// ```
///
/// The network calls the methods of `PullReceiver`, which only record facts. `PullWorker` acts on them at the end of the
/// pass.
final class PullRun: PullReceiver {
    let job: Job
    let request: PullRequest
    let started: LoopTime
    /// Folder of the body's file; nil without a spool.
    let spool: SpoolFolder?
    /// End of the request; nil while it runs.
    private(set) var ending: PullEnding?
    /// Reason to end the job before its request; nil without one.
    private(set) var refusal: Refusal?
    /// Decoded bytes of the body so far.
    private(set) var receivedBytes = 0
    /// Time of the last bytes, or of the start.
    private(set) var lastNews: LoopTime
    /// Whether a timer for the next PROGRESS is set.
    var isProgressPlanned = false
    /// Timer of the job's time limits.
    var timer: TimerID?

    private let loop: EventLoop
    private let inlineLimit: Int
    private let note: (AttemptID) -> Void
    private var maximum: Int
    private var head: PulledHead?
    private var file: SpoolFile?
    /// Nil while a thread owns it.
    private var hash: SHA256? = SHA256()
    private var hashedBytes = 0
    private var hashing: PartHasher.Task?
    /// Number of received bytes at the last check of the free space.
    private var checkedBytes = 0
    private var progressSent: LoopTime?
    /// Whether bytes arrived since the last PROGRESS.
    private var hasNews = false

    /// - Parameter note: called for each event of the network.
    init(
        _ job: Job, at node: NodeAddress, inlineBytes: Int, spool: SpoolFolder?, loop: EventLoop,
        note: @escaping (AttemptID) -> Void
    ) {
        self.job = job
        request = PullRequest(job, at: node)
        self.spool = spool
        self.loop = loop
        self.note = note
        inlineLimit = inlineBytes
        maximum = job.maxBytes ?? .max
        started = loop.now
        lastNews = loop.now
    }

    // MARK: Events of the network

    func makeFile(for head: PulledHead) -> Int32? {
        defer { note(job.attempt) }
        guard isWanted(head), let spool else {
            refuse(Refusal(.spoolFailed, "The spool cannot be opened."))
            return nil
        }
        do throws(SystemError) {
            _ = try spool.room(for: head.length)
            let file = try SpoolFile(SpoolName.part(of: job.attempt, pid: getpid()), in: spool)
            let descriptor = fcntl(file.descriptor, F_DUPFD_CLOEXEC, 0)
            guard descriptor >= 0 else { throw SystemError("dup spool file", number: errno) }
            self.file = file
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
        lastNews = loop.now
        hasNews = true
        note(job.attempt)
    }

    func ended(_ ending: PullEnding) {
        lastNews = loop.now
        self.ending = ending
        note(job.attempt)
    }

    // MARK: The job

    /// Ends the job before its request. The first reason counts.
    func refuse(_ refusal: Refusal) {
        if self.refusal == nil { self.refusal = refusal }
    }

    /// Raises the maximum body size; nil removes it.
    func raise(to maxBytes: Int?) { maximum = max(maximum, maxBytes ?? .max) }

    /// Checks the length that the other node announced.
    private func isWanted(_ head: PulledHead) -> Bool {
        if head.length > maximum { refuse(Refusal(.tooLarge)) }
        return refusal == nil
    }

    /// Checks the free space again after some growth, because other programs use it too.
    func checkRoom() {
        guard let head, let spool, ending == nil, receivedBytes - checkedBytes >= Limits.roomBytes else { return }
        checkedBytes = receivedBytes
        do throws(SystemError) { _ = try spool.room(for: head.length - receivedBytes) } catch {
            refuse(Refusal(spool: error))
        }
    }

    /// Starts a thread on unhashed bytes, if there are enough or the body is complete, and none is running.
    ///
    /// - Returns: whether the job must wait for a thread.
    func hash(on hasher: PartHasher) throws(SystemError) -> Bool {
        guard let file, refusal == nil else { return false }
        var isComplete = false
        if case .file? = ending { isComplete = true }
        let least = isComplete ? 1 : Limits.hashStepBytes
        if hashing == nil, receivedBytes - hashedBytes >= least, let hash = hash.take() {
            hashing = try hasher.hash(
                file.descriptor, hashedBytes..<receivedBytes, continuing: hash, for: job.attempt)
        }
        return isComplete && hashing != nil
    }

    /// Takes the result of a hash thread.
    func hashed(_ task: PartHasher.Task) {
        guard task === hashing else { return }
        hashing = nil
        guard let hash = task.takeHash() else {
            return refuse(Refusal(.internalError, "The body's file cannot be read."))
        }
        self.hash = consume hash
        hashedBytes = task.range.upperBound
    }

    /// Drops the body, and stops the thread that reads it.
    func drop() {
        hashing?.cancel()
        file = nil
    }

    /// Returns the completion of a request that has ended. The receiver owns the file of its body, if there is one, and must
    /// delete it.
    func complete() throws(Refusal) -> (completion: Completion, body: [UInt8]?) {
        if let refusal { throw refusal }
        switch ending {
        case .message(let head, let bytes): return try complete(head, bytes)
        case .file(let head): return try complete(head)
        case .unreachable(let reason):
            throw Refusal(.connectFailed, "No connection to the node that has the body could be made: \(reason).")
        case .lost(let reason):
            throw Refusal(.reset, "The connection to the node that has the body broke: \(reason).")
        case .refused(let reason): throw Refusal(.notCached, "The other node does not give the body: \(reason).")
        case .unwritable(let number): throw Refusal(spool: SystemError("write spool file", number: number))
        case nil: preconditionFailure("\(job.attempt) is not over")
        }
    }

    private func complete(_ head: PulledHead, _ bytes: [UInt8]) throws(Refusal) -> (Completion, [UInt8]?) {
        guard isWanted(head) else { throw refusal ?? Refusal(.tooLarge) }
        receivedBytes = bytes.count
        var hash = SHA256()
        hash.update(bytes.span)
        var completion = completion(head, length: bytes.count, hash.finalize())
        try check(head, completion)
        guard bytes.count > inlineLimit else {
            return (completion, bytes.isEmpty ? nil : bytes)
        }
        do throws(SystemError) {
            guard let spool else { throw SystemError("no spool", number: ENOENT) }
            let file = try SpoolFile(SpoolName.part(of: job.attempt, pid: getpid()), in: spool)
            try file.write(bytes.span)
            try file.keep()
            completion.file = file.name
            return (completion, nil)
        } catch {
            throw Refusal(spool: error)
        }
    }

    private func complete(_ head: PulledHead) throws(Refusal) -> (Completion, [UInt8]?) {
        guard let file, let hash = hash.take() else { throw Refusal(.internalError) }
        var completion = completion(head, length: receivedBytes, hash.finalize())
        try check(head, completion)
        do throws(SystemError) { try file.keep() } catch { throw Refusal(spool: error) }
        completion.file = file.name
        return (completion, nil)
    }

    private func completion(_ head: PulledHead, length: Int, _ digest: Digest) -> Completion {
        var completion = Completion(attempt: job.attempt, status: head.status)
        completion.elapsedMilliseconds = Int(loop.now.since(started) / .milliseconds(1))
        completion.httpFields = head.httpFields
        completion.length = length
        // A response without a body has no digest.
        completion.sha256 = head.sha256 == nil && length == 0 ? nil : digest.hex
        return completion
    }

    /// Compares length and digest with those that the other node announced.
    private func check(_ head: PulledHead, _ completion: Completion) throws(Refusal) {
        guard completion.length == head.length else { throw Refusal(.truncated) }
        guard let announced = head.sha256, announced != completion.sha256 else { return }
        throw Refusal(.digestMismatch, "The body differs from the digest that the other node announced.")
    }

    // MARK: Progress

    /// Time of the next PROGRESS; nil if none is needed.
    var progressDue: LoopTime? {
        guard let pause = job.progressMilliseconds, hasNews, refusal == nil, ending == nil else { return nil }
        return (progressSent ?? started).advanced(by: .milliseconds(pause))
    }

    func takeProgress() -> WorkerMessage {
        hasNews = false
        progressSent = loop.now
        let part = file.map { BodyPart(file: $0.name) }
        return .progress(job.attempt, received: receivedBytes, total: head?.length, part: part)
    }
}
