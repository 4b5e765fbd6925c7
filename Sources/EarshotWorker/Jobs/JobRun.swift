internal import Curl
internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import LibCrypto

/// One job while it runs: what came of it so far, and by when more must come.
///
/// `hashing -> resolving -> transferring -> sealing`, without the first unless it goes on with an earlier attempt's
/// bytes, without the last unless its body is large, and out of the worker's table from each. As a sink it is called
/// inside libcurl: it writes bytes away and notes facts, no more.
final class JobRun: TransferSink {
    /// What the job waits for.
    enum Phase {
        /// What is there of its body goes through SHA-256.
        case hashing(PartHasher.Task)
        /// The addresses of its host.
        case resolving
        /// Its bytes.
        case transferring(TransferPool.Running)
        /// The end of its body goes through SHA-256.
        case sealing
    }

    let job: Job
    let plan: TransferPlan
    let started: LoopTime
    private let terms: Worker.Terms
    var phase = Phase.resolving
    /// Whether the worker has let go of it: what was noted of it means nothing.
    var isOver = false
    /// The timer that asks for `overdue`.
    var timer: TimerID?
    /// When the last PROGRESS went out; nil before the first.
    var progressSent: LoopTime?
    /// Whether bytes came that no PROGRESS told of yet, and it is known that one is due.
    private(set) var isProgressNoted = false
    /// What a thread does of the hash while the body arrives; nil while none does.
    private var hashing: PartHasher.Task?
    /// Whether it is known that a thread has something to do.
    private var isHashWorkNoted = false
    /// Why the sink refused the bytes.
    private(set) var refusal: Refusal?
    private(set) var head = ResponseHead()
    /// The body's length as announced, if it comes as announced: without a content encoding.
    private(set) var announcedBytes: Int?
    private var body: BodyStore?
    /// Undoes the content coding; nil for a body that is stored as it comes.
    private var decoder: BodyDecoder?
    /// Whether libcurl keeps bytes that came before the decoder was done with earlier ones.
    private var isPaused = false
    /// Whether the transfer ended well, with bytes left to decode.
    private(set) var isReceived = false
    /// The use of the answer's body beside its head.
    private var use = BodyUse.result
    /// Whether the body is left out of the answer: it was too large for its use, or is not needed.
    private(set) var isCut = false
    /// What the broker gave to go on with; nil without, and once it is of no use.
    private(set) var lent: LentPart?
    /// Whether the body goes on where `lent` ended.
    private var isResumed = false
    /// The offset in the body at which this answer ends; nil if that is the body's own end.
    private var endOfRange: Int?
    /// Whether what comes is none of the body: the answer said that all of it is there.
    private var isWhole = false
    /// Whether a later attempt may go on with what this one writes; nil until that is asked of a head that was
    /// accepted.
    private var keepability: Bool?
    /// Whether the broker knows the fields of the response whose body it is.
    private var areFieldsTold = false
    /// Whether the answer fits nothing: the whole has to be asked for.
    private(set) var wantsWhole = false
    private var maxBytes: Int
    /// When its time began to count.
    private(set) var begun: LoopTime
    var lastByte: LoopTime
    /// When the header of the response began; nil before.
    var headBegan: LoopTime?
    /// When the pass began in which the last bytes of body came, and how many there were before it.
    private var lastBytes: (pass: LoopTime, before: Int)?
    let loop: EventLoop
    private let notes: JobNotes

    init(_ job: Job, _ plan: TransferPlan, _ terms: Worker.Terms, loop: EventLoop, notes: JobNotes) {
        self.job = job
        self.plan = plan
        self.terms = terms
        if job.resume != nil { lent = terms.spool.flatMap { LentPart(job, in: $0) } }
        self.loop = loop
        self.notes = notes
        maxBytes = job.maxBytes ?? .max
        started = loop.now
        begun = loop.now
        lastByte = loop.now
        body = makeBody()
    }

    /// Begins to count its time; what is there of its body has been hashed, or is of no use.
    func begin() {
        if let lent, case .hashing(let task) = phase {
            if let hash = task.takeHash() { lent.hashed(hash) } else { self.lent = nil }
        }
        phase = .resolving
        begun = loop.now
        lastByte = loop.now
    }

    /// Forgets an answer that fits nothing; the whole is asked for next.
    func startOver() {
        wantsWhole = false
        refusal = nil
        head = ResponseHead()
        headBegan = nil
        announcedBytes = nil
        decoder = nil
        use = .result
        stopHashing()
        body = makeBody()
        phase = .resolving
    }

    private func makeBody() -> BodyStore {
        BodyStore(inlineLimit: terms.inlineBytes, wished: job.inlineBytes, maximum: maxBytes) {
            [terms, attempt = job.attempt, isAnew = job.resume != nil] () throws(SystemError) in
            guard let spool = terms.spool else { throw SystemError("no spool", number: ENOENT) }
            return try SpoolFile(SpoolFile.name(attempt, pid: getpid(), isAnew: isAnew), in: spool)
        }
    }

    /// What is asked of libcurl, and of whom.
    var request: TransferRequest {
        lent.flatMap { plan.request(toResume: $0.kept) } ?? plan.request
    }

    /// Where its body's file is; nil without a spool.
    var spool: SpoolFolder? { terms.spool }

    // MARK: What arrives

    /// Decoded bytes of the body so far; 0 once they are given away.
    var receivedBytes: Int { body?.count ?? 0 }

    /// What came of the body in the present pass: so much at most since a message read in it was there to be read.
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
        lastByte = loop.now
        if headBegan == nil { headBegan = loop.now }
        do throws(ResponseHead.Fault) {
            return try !head.append(headerLine) || accepted()
        } catch {
            refusal = Refusal(head: error)
            return false
        }
    }

    func received(body bytes: Span<UInt8>) -> Reception {
        guard head.isComplete else {
            refusal = Refusal(head: .malformed)
            return .refused
        }
        guard decoder != nil else {
            noteBytes()
            guard !isWhole else { return .taken }
            guard bytes.count <= endOfRange.map({ $0 - receivedBytes }) ?? .max else {
                // Then nothing that it said of these bytes is to be believed.
                keepability = false
                refusal = Refusal(.truncated, "The answer is longer than its Content-Range.")
                return .refused
            }
            return store(bytes) ? .taken : .refused
        }
        guard !hasWork else {
            isPaused = true
            return .postponed
        }
        decoder?.add(bytes)
        guard notes.decodable.isEmpty else {
            notes.decodable.append(self)
            return .taken
        }
        return decode() ? .taken : .refused
    }

    /// Notes when bytes of the body come.
    private func noteBytes() {
        if lastBytes?.pass != loop.now { lastBytes = (loop.now, receivedBytes) }
        lastByte = loop.now
    }

    /// Whether libcurl keeps bytes that it can bring now.
    func takePause() -> Bool {
        defer { isPaused = false }
        return isPaused
    }

    /// Whether there are bytes left to decode.
    var hasWork: Bool { decoder?.hasWork ?? false }

    /// Decodes as many bytes as its turn and the pass have room for; notes that it needs another turn for the rest.
    ///
    /// - Returns: false if the body is given up.
    func decode() -> Bool {
        noteBytes()
        var room = min(Limits.decodedBytesPerTurn, notes.decodingBudget)
        let given = room
        // Out of the notes for as long as it is written to.
        var decoded: [UInt8] = []
        swap(&decoded, &notes.decoded)
        defer { swap(&decoded, &notes.decoded) }
        if decoded.isEmpty { decoded = [UInt8](repeating: 0, count: Limits.decodedPieceBytes) }
        do throws(BodyDecoder.Fault) {
            while room > 0, hasWork, let (produced, work) = try decoder?.step(into: &decoded) {
                room -= max(work, Limits.leastStepBytes)
                guard produced == 0 || store(decoded.span.extracting(0..<produced)) else { return false }
            }
        } catch {
            refusal = Refusal(decoding: error)
            return false
        }
        notes.decodingBudget -= given - room
        if hasWork { notes.decodable.append(self) }
        return true
    }

    /// Stores decoded bytes.
    ///
    /// - Returns: false if the body is given up.
    private func store(_ bytes: Span<UInt8>) -> Bool {
        do throws(BodyStore.Fault) {
            try body?.append(bytes)
        } catch {
            if error == .tooLarge, use != .result, bytes.count <= maxBytes - receivedBytes {
                // Not too large for the request.
                isCut = decoder?.isOverRatio != true
                refusal = isCut ? nil : Refusal(.tooCompressed)
            } else {
                refusal = Refusal(body: error)
            }
            return false
        }
        if job.progressMilliseconds != nil, !isProgressNoted {
            isProgressNoted = true
            notes.progressed.append(self)
        }
        if !isHashWorkNoted, body?.hasHashWork == true {
            isHashWorkNoted = true
            notes.hashable.append(self)
        }
        return true
    }

    /// Judges a head that is all there: a body that is announced as too large need not be waited for.
    private func accepted() -> Bool {
        keepability = nil
        let length = hasBody ? ContentLength(HeaderFields(lines: head.framingFields)) : .absent
        guard length != .invalid else {
            refusal = Refusal(.protocolError, "Nobody can tell from its Content-Length where the answer ends.")
            return false
        }
        guard plan.fields.allow(status: head.status) || lent != nil && head.status == 206 else {
            refusal = Refusal(.protocolError, "The server sent a \(head.status) that was not asked for.")
            return false
        }
        // libcurl would decode it in one call, without a bound on its size.
        if head.mayHave("transfer-encoding"), HeaderFields(lines: head.framingFields).hasUnaskedTransferCoding {
            refusal = Refusal(.encodingError, "The answer has a transfer coding that the worker did not ask for.")
            return false
        }
        if let lent {
            switch place(HeaderFields(lines: head.fields), behind: lent) {
            case .own: break
            case .placed: return true
            case .misplaced: return false
            }
        }
        use = BodyUse(of: head, redirect: job.redirect)
        if use != .result { body?.lower(to: terms.pageBytes) }
        if use == .redirect { notes.redirected.append(self) }
        if hasBody, !plan.namesCodings { decoder = BodyDecoder(for: head, maxRatio: terms.maxRatio) }
        guard case .bytes(let length) = length, decoder == nil else { return true }
        announcedBytes = length
        body?.expect(length)
        guard length > maxBytes || length > terms.pageBytes && use != .result else { return true }
        if length > maxBytes { refusal = Refusal(.tooLarge) } else { isCut = true }
        return false
    }

    /// Judges the answer to a request for what is missing.
    private func place(_ fields: HeaderFields, behind lent: LentPart) -> BodyPlacement {
        let outcome = ResumeRule().outcome(
            status: head.status, response: fields, kept: lent.kept, now: Int64(time(nil)))
        switch outcome {
        case .append(_, let end, let total):
            endOfRange = Int(end)
            announcedBytes = total.map { Int($0) }
            return resume(lent)
        case .alreadyWhole:
            isWhole = true
            announcedBytes = Int(lent.kept.keptBytes)
            return resume(lent)
        case .unrelated: return .own
        case .startOver:
            self.lent = nil
            return .own
        case .mismatch:
            self.lent = nil
            wantsWhole = true
            return .misplaced
        }
    }

    private func resume(_ lent: LentPart) -> BodyPlacement {
        body = lent.store(maximum: maxBytes)
        precondition(body != nil, "\(job.attempt) asked for the rest of what was not hashed")
        self.lent = nil
        isResumed = true
        keepability = true
        areFieldsTold = true
        guard let announcedBytes, announcedBytes > maxBytes else { return .placed }
        refusal = Refusal(.tooLarge)
        return .misplaced
    }

    /// Whether a later attempt may go on with what this one writes. Judged when it matters: most bodies are whole
    /// before.
    private var isKeepable: Bool {
        if let keepability { return keepability }
        guard head.isComplete else { return false }
        let fields = HeaderFields(lines: head.fields)
        let beginning = ResumeRule().beginning(
            1, status: head.status, response: fields, of: plan.asked, now: Int64(time(nil)))
        keepability = beginning != nil
        return beginning != nil
    }

    /// Whether the answer has a body, be it an empty one: RFC 9112, section 6.3.
    private var hasBody: Bool { !plan.isHead && head.status != 204 && head.status != 304 }

    /// Whether nothing but the end of its connection ends the body.
    var endsWithConnection: Bool { hasBody && !isWhole && endOfRange == nil && !head.isFramed }

    // MARK: The hash of a large body

    /// Whether all of its body has gone through SHA-256.
    var isHashed: Bool { body?.isHashed ?? true }

    /// Has a thread go on with the hash, unless one does: when enough came, or, to seal the body, with all there is.
    func hashOn(_ hasher: PartHasher) throws(SystemError) {
        isHashWorkNoted = false
        var isSealing = false
        if case .sealing = phase { isSealing = true }
        guard hashing == nil, let isHashed = body?.isHashed, let hasWork = body?.hasHashWork,
            isSealing ? !isHashed : hasWork
        else { return }
        hashing = try body?.hashRest(on: hasher, for: job.attempt)
    }

    /// A thread has done its part of the hash.
    ///
    /// - Returns: false if it could not read the file. What is not this body's is passed over.
    func hashed(_ task: PartHasher.Task) -> Bool {
        guard task === hashing else { return true }
        hashing = nil
        guard let hash = task.takeHash() else { return false }
        body?.hashed(hash, upTo: task.range.upperBound)
        return true
    }

    /// What a thread does of the hash is of no use any more.
    func stopHashing() {
        hashing?.cancel()
        hashing = nil
    }

    // MARK: Progress and end

    /// Leaves the body out of the answer, if its head is enough.
    ///
    /// - Returns: whether it is.
    func cut() -> Bool {
        if head.isComplete, use == .redirect { isCut = true }
        return isCut
    }

    /// Notes that the transfer has ended well.
    ///
    /// - Throws: `truncated` if a content coding has not come to its end.
    func end() throws(Refusal) {
        isReceived = true
        guard !hasWork else { return }
        guard decoder?.isAtEnd ?? true else {
            throw Refusal(.truncated, "The body ended before its content coding did.")
        }
    }

    /// Lets the body be larger than the JOB said.
    func raise(to maximum: Int?) {
        maxBytes = max(maxBytes, maximum ?? .max)
        body?.raise(to: use == .result ? maximum : min(maxBytes, terms.pageBytes))
    }

    /// Deletes what came so far. What was lent and is as good as before stays for the broker.
    func discard() {
        _ = body.take()
        lent?.file.leave()
        lent = nil
    }

    /// Leaves what came so far to the broker, if a later attempt may go on with it.
    ///
    /// - Returns: what the broker has to know of it; nil if there is nothing.
    func leave() -> BodyPart? {
        guard receivedBytes > 0, isKeepable, let store = body.take(), let file = store.fileName, store.leave() else {
            return nil
        }
        return BodyPart(file: file, httpFields: areFieldsTold ? [] : head.fields)
    }

    /// When the next PROGRESS may go out; a job that ends before the first is due sends none.
    var progressDue: LoopTime {
        (progressSent ?? started).advanced(milliseconds: job.progressMilliseconds ?? 0)
    }

    /// The PROGRESS that tells how far it is; the next bytes are worth another.
    func takeProgress() -> WorkerMessage {
        isProgressNoted = false
        progressSent = loop.now
        // If that fails the body stays where it is, as long as it may.
        if job.streams { try? body?.moveToFile() }
        let part = body?.fileName.map { file in
            BodyPart(file: file, httpFields: isKeepable && !areFieldsTold ? head.fields : [])
        }
        return .progress(job.attempt, received: receivedBytes, total: announcedBytes, part: part)
    }

    /// The broker has the last PROGRESS.
    func progressTaken() {
        if body?.fileName != nil { areFieldsTold = true }
    }

    /// What a broker has to know to go on with it.
    func held(_ now: LoopTime) -> HeldAttempt {
        var held = HeldAttempt(attempt: job.attempt, url: job.url)
        // A part has to be told of with the fields of a response that this job may not have seen.
        if job.resume == nil { held.flight = job.flight }
        held.receivedBytes = receivedBytes
        held.totalBytes = announcedBytes
        held.maxBytes = maxBytes == .max ? nil : maxBytes
        held.elapsedMilliseconds = min(Int(now.since(started) / .milliseconds(1)), WireLimits.seconds * 1_000)
        held.part = part
        return held
    }

    /// Its body's file, for another broker to go on with; nil while there is none.
    var part: BodyPart? {
        body?.fileName.map { BodyPart(file: $0, httpFields: isKeepable ? head.fields : []) }
    }

    /// The whole response; its file, if it has one, is the receiver's to delete.
    func complete() throws(Refusal) -> (completion: Completion, body: [UInt8]?) {
        guard head.isComplete, head.status <= 999 else { throw Refusal(head: .malformed) }
        // A part of a part is gone on with by the next attempt.
        guard endOfRange.map({ receivedBytes == max($0, announcedBytes ?? 0) }) ?? true else {
            throw Refusal(.truncated)
        }
        var completion = Completion(attempt: job.attempt, status: isResumed ? 200 : head.status)
        completion.isResumed = isResumed
        completion.isCut = isCut
        completion.httpFields = isWhole ? [] : head.fields
        completion.elapsedMilliseconds = Int(loop.now.since(started) / .milliseconds(1))
        guard hasBody, !isCut, let store = body.take() else { return (completion, nil) }
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
