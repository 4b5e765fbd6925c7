internal import Crypto
internal import Curl
internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Glibc

/// One job while it runs: what came of it so far, and by when more must come.
///
/// `resolving -> transferring`, and out of the worker's table from either. As a sink it is called inside libcurl: it
/// writes bytes away and notes facts, no more.
final class JobRun: TransferSink {
    /// What the job waits for.
    enum Phase {
        /// The addresses of its host.
        case resolving
        /// Its bytes.
        case transferring(TransferPool.Running)
    }

    let job: Job
    let plan: TransferPlan
    let started: LoopTime
    /// Where its body's file is; nil without a spool.
    let spool: SpoolFolder?
    var phase = Phase.resolving
    /// The timer that asks for `overdue`.
    var timer: TimerID?
    /// When the last PROGRESS went out; nil before the first.
    var progressSent: LoopTime?
    /// Whether bytes came that no PROGRESS told of yet, and it is known that one is due.
    private(set) var isProgressNoted = false
    /// Why the sink refused the bytes.
    private(set) var refusal: Refusal?
    private(set) var head = ResponseHead()
    /// The body's length as announced, if it comes as announced: without a content encoding.
    private(set) var announcedBytes: Int?
    private var body: BodyStore?
    private var maxBytes: Int
    private let addresses: AddressPolicy
    private var lastByte: LoopTime
    private let loop: EventLoop
    private let progressed: (JobRun) -> Void

    /// - Parameter progressed: called from inside libcurl when bytes came that a PROGRESS should tell of.
    init(
        _ job: Job, _ plan: TransferPlan, _ terms: Worker.Terms, loop: EventLoop,
        progressed: @escaping (JobRun) -> Void
    ) {
        self.job = job
        self.plan = plan
        let spool = terms.spool
        self.spool = spool
        addresses = terms.addresses
        body = BodyStore(inlineLimit: terms.inlineBytes, maximum: job.maxBytes) { () throws(SystemError) in
            guard let spool else { throw SystemError("no spool", number: ENOENT) }
            return try SpoolFile(SpoolFile.name(job.attempt, pid: getpid()), in: spool)
        }
        self.loop = loop
        self.progressed = progressed
        maxBytes = job.maxBytes ?? .max
        started = loop.now
        lastByte = loop.now
    }

    // MARK: What arrives

    /// Decoded bytes of the body so far; 0 once they are given away.
    var receivedBytes: Int { body?.count ?? 0 }

    func admits(address: String) -> Bool {
        guard addresses.isRestricting else { return true }
        guard let address = IPAddress(address) else { return false }
        return addresses.verdict(host: plan.host, address: address).isAllowed
    }

    func received(headerLine: Span<UInt8>) -> Bool {
        lastByte = loop.now
        do throws(ResponseHead.Fault) {
            let wasComplete = head.isComplete
            try head.append(headerLine)
            return wasComplete || !head.isComplete || accepted()
        } catch {
            refusal = Refusal(head: error)
            return false
        }
    }

    func received(body bytes: Span<UInt8>) -> Bool {
        lastByte = loop.now
        guard head.isComplete else {
            refusal = Refusal(head: .malformed)
            return false
        }
        do throws(BodyStore.Fault) {
            try body?.append(bytes)
        } catch {
            refusal = Refusal(body: error)
            return false
        }
        if job.progressMilliseconds != nil, !isProgressNoted {
            isProgressNoted = true
            progressed(self)
        }
        return true
    }

    /// Judges a head that is all there: a body that is announced as too large need not be waited for.
    private func accepted() -> Bool {
        let fields = HeaderFields(lines: head.fields)
        guard hasBody, !fields.contains("content-encoding"),
            let length = fields.first("content-length").flatMap(Int.init), length >= 0
        else { return true }
        announcedBytes = length
        guard length > maxBytes else { return true }
        refusal = Refusal(.tooLarge)
        return false
    }

    /// Whether the answer has a body, be it an empty one: RFC 9112, section 6.3.
    private var hasBody: Bool { !plan.isHead && head.status != 204 && head.status != 304 }

    // MARK: Time

    /// When to ask for `overdue`.
    var deadline: LoopTime {
        let silence = lastByte.advanced(by: .milliseconds(job.timeoutMilliseconds))
        switch phase {
        case .resolving: return [silence, connectDeadline, totalDeadline].compactMap(\.self).min() ?? silence
        // libcurl watches over the other two.
        case .transferring: return silence
        }
    }

    /// Why the job has taken too long; nil if it has not.
    func overdue(_ now: LoopTime) -> Refusal? {
        guard deadline <= now else { return nil }
        guard case .resolving = phase, connectDeadline == deadline else { return Refusal(.timeout) }
        return Refusal(.connectTimeout)
    }

    /// What is left for connecting and for all; at least a moment, since nothing means for ever to libcurl.
    func timeLeft(_ now: LoopTime) -> (connect: Duration, total: Duration?) {
        let least = Duration.milliseconds(1)
        return (max(connectDeadline.since(now), least), totalDeadline.map { max($0.since(now), least) })
    }

    private var connectDeadline: LoopTime { started.advanced(by: .milliseconds(job.connectMilliseconds)) }

    private var totalDeadline: LoopTime? { job.totalMilliseconds.map { started.advanced(by: .milliseconds($0)) } }

    // MARK: Progress and end

    /// Lets the body be larger than the JOB said.
    func raise(to maximum: Int?) {
        maxBytes = max(maxBytes, maximum ?? .max)
        body?.raise(to: maximum)
    }

    /// Deletes what came so far.
    func discard() {
        _ = body.take()
    }

    /// When the next PROGRESS may go out; a job that ends before the first is due sends none.
    var progressDue: LoopTime {
        (progressSent ?? started).advanced(by: .milliseconds(job.progressMilliseconds ?? 0))
    }

    /// The PROGRESS that tells how far it is; the next bytes are worth another.
    func takeProgress() -> WorkerMessage {
        isProgressNoted = false
        progressSent = loop.now
        return .progress(job.attempt, received: receivedBytes, total: announcedBytes)
    }

    /// The whole response; its file, if it has one, is the receiver's to delete.
    func complete() throws(Refusal) -> (completion: Completion, body: [UInt8]?) {
        guard head.isComplete, head.status <= 999 else { throw Refusal(head: .malformed) }
        var completion = Completion(attempt: job.attempt, status: head.status)
        completion.httpFields = head.fields
        completion.elapsedMilliseconds = Int(loop.now.since(started) / .milliseconds(1))
        guard hasBody, let store = body.take() else { return (completion, nil) }
        do throws(BodyStore.Fault) {
            let body = try store.finish()
            completion.length = body.length
            completion.sha256 = body.digest.hex
            completion.file = body.file
            return (completion, body.length > 0 ? body.inline : nil)
        } catch {
            throw Refusal(body: error)
        }
    }
}
