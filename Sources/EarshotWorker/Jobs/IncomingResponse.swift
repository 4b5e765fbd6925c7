internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import LibCrypto

/// The response to one job while it arrives: its head, its decoded body and the reason to give it up.
///
/// ```
/// head → body → received (end)  → complete
///      → cut                    → complete    (the head is enough, or the body is too large for its use)
///      → refused                              (refusal)
///      → mismatch (wantsWhole)  → head        (startOver: the whole body is requested)
/// ```
///
/// The methods that take bytes run inside libcurl: they store and judge, and call nobody.
struct IncomingResponse: ~Copyable {
    /// What the job and the broker's terms let a response be.
    struct Expectation {
        let attempt: AttemptID
        let url: FetchURL
        let fields: HeaderFields
        let isHead: Bool
        /// Whether the request names content codings: then the body is stored as it comes.
        let namesCodings: Bool
        let redirect: RedirectMode
        /// The JOB's limit of a body in memory; nil for that of the terms.
        let inlineBytes: Int?
        /// Whether the broker gave a part of the body: a body from its first byte on gets a file of another name.
        let isResuming: Bool
        let terms: Worker.Terms

        /// Returns the expectation of a job. An initializer would be given copies of all three.
        static func make(_ job: Job, _ plan: TransferPlan, _ terms: Worker.Terms) -> Expectation {
            Expectation(
                attempt: job.attempt, url: plan.url, fields: plan.fields, isHead: plan.isHead,
                namesCodings: plan.namesCodings, redirect: job.redirect, inlineBytes: job.inlineBytes,
                isResuming: job.resume != nil, terms: terms)
        }

        /// The request to the server.
        var asked: HTTPRequest { HTTPRequest(method: isHead ? .head : .get, url: url, fields: fields) }

        fileprivate func makeBody(maxBytes: Int) -> IncomingBody {
            let store = BodyStore(inlineLimit: terms.inlineBytes, wished: inlineBytes, maximum: maxBytes) {
                [terms, attempt, isResuming] () throws(SystemError) in
                guard let spool = terms.spool else { throw SystemError("no spool", number: ENOENT) }
                return try SpoolFile(SpoolFile.name(attempt, pid: getpid(), isAnew: isResuming), in: spool)
            }
            return IncomingBody(store, maxBytes: maxBytes)
        }
    }

    /// Verdict on a header line.
    enum HeadVerdict: Equatable {
        /// The response may go on.
        case accepted
        /// It may go on, but no request needs its body: the core follows the redirect.
        case redirect
        /// The transfer ends here.
        case refused
    }

    /// The relation of the body to the part that the broker gave.
    private enum Continuation {
        /// The broker gave no part, or it is useless.
        case none
        /// The part waits for a response that fits it.
        case offered(LentPart)
        /// The body continues the part and ends at this offset.
        case appended(end: Int)
        /// The part is the whole body: the bytes of the response are not part of it.
        case whole
    }

    private let expectation: Expectation
    private(set) var head = ResponseHead()
    private(set) var body: IncomingBody
    private var continuation = Continuation.none
    private var use = BodyUse.result
    /// Length of the body as announced; nil if unknown, or if it has a content coding.
    private var announcedBytes: Int?
    /// Reason to give the response up.
    private(set) var refusal: Refusal?
    /// Whether the body is left out of the answer: it is too large for its use, or not needed.
    private(set) var isCut = false
    /// Whether the response fits neither the part nor stands alone: the whole body has to be requested.
    private(set) var wantsWhole = false
    /// Whether the transfer ended well; bytes may be left to decode.
    private(set) var isReceived = false
    /// Whether a later attempt may continue the body; nil until judged, which requires an accepted head.
    private var keepability: Bool?
    /// Whether the broker knows the header fields that belong to the body.
    private var areFieldsTold = false

    /// - Parameter part: Bytes of earlier attempts; nil without, or if they cannot be used.
    init(_ expectation: Expectation, continuing part: LentPart?, maxBytes: Int?) {
        self.expectation = expectation
        if let part { continuation = .offered(part) }
        body = expectation.makeBody(maxBytes: maxBytes ?? .max)
    }

    /// Returns to the state before the first byte, without the part of earlier attempts.
    mutating func startOver() {
        body.stopHashing()
        self = IncomingResponse(expectation, continuing: nil, maxBytes: body.maxBytes)
    }

    /// The part of earlier attempts, until a response decides about it.
    var offeredPart: LentPart? {
        if case .offered(let part) = continuation { part } else { nil }
    }

    /// Gives the part of earlier attempts the hash of its bytes, or drops it if they could not be read.
    mutating func partHashed(_ task: PartHasher.Task) {
        guard case .offered(let part) = continuation else { return }
        if let hash = task.takeHash() { part.hashed(hash) } else { continuation = .none }
    }

    // MARK: The head

    /// Takes one header line.
    mutating func append(headerLine: Span<UInt8>) -> HeadVerdict {
        do throws(ResponseHead.Fault) {
            return try head.append(headerLine) ? judgeHead() : .accepted
        } catch {
            refusal = Refusal(head: error)
            return .refused
        }
    }

    /// Judges a complete head. A body announced as too large need not be awaited.
    private mutating func judgeHead() -> HeadVerdict {
        keepability = nil
        let length = hasBody ? ContentLength(HeaderFields(lines: head.framingFields)) : .absent
        guard length != .invalid else {
            refusal = Refusal(.protocolError, "Nobody can tell from its Content-Length where the answer ends.")
            return .refused
        }
        guard expectation.fields.allow(status: head.status) || offeredPart != nil && head.status == 206 else {
            refusal = Refusal(.protocolError, "The server sent a \(head.status) that was not asked for.")
            return .refused
        }
        // libcurl would decode it in one call, without a bound on its size.
        if head.mayHave("transfer-encoding"), HeaderFields(lines: head.framingFields).hasUnaskedTransferCoding {
            refusal = Refusal(.encodingError, "The answer has a transfer coding that the worker did not ask for.")
            return .refused
        }
        if let part = offeredPart {
            switch place(HeaderFields(lines: head.fields), behind: part) {
            case .own: break
            case .placed: return .accepted
            case .misplaced: return .refused
            }
        }
        use = BodyUse(of: head, redirect: expectation.redirect)
        if use != .result { body.lower(to: expectation.terms.pageBytes) }
        if hasBody, !expectation.namesCodings,
            let decoder = BodyDecoder(for: head, maxRatio: expectation.terms.maxRatio)
        {
            body.decode(with: decoder)
        }
        let verdict = use == .redirect ? HeadVerdict.redirect : .accepted
        guard case .bytes(let length) = length, !body.isEncoded else { return verdict }
        announcedBytes = length
        body.expect(length)
        guard length > body.maxBytes || length > expectation.terms.pageBytes && use != .result else { return verdict }
        if length > body.maxBytes { refusal = Refusal(.tooLarge) } else { isCut = true }
        return .refused
    }

    /// Judges the response to a request for the rest of a body.
    private mutating func place(_ fields: HeaderFields, behind part: LentPart) -> BodyPlacement {
        let outcome = ResumeRule().outcome(
            status: head.status, response: fields, kept: part.kept, now: Int64(time(nil)))
        switch outcome {
        case .append(_, let end, let total):
            return resume(part, .appended(end: Int(end)), announced: total.map { Int($0) })
        case .alreadyWhole: return resume(part, .whole, announced: Int(part.kept.keptBytes))
        case .unrelated: return .own
        case .startOver:
            continuation = .none
            return .own
        case .mismatch:
            continuation = .none
            wantsWhole = true
            return .misplaced
        }
    }

    private mutating func resume(_ part: LentPart, _ next: Continuation, announced: Int?) -> BodyPlacement {
        announcedBytes = announced
        guard let store = part.store(maximum: body.maxBytes) else {
            preconditionFailure("\(expectation.attempt) requested the rest of a body whose part has no hash")
        }
        body.continued(store)
        continuation = next
        keepability = true
        areFieldsTold = true
        guard let announced, announced > body.maxBytes else { return .placed }
        refusal = Refusal(.tooLarge)
        return .misplaced
    }

    /// Whether the response has a body, even an empty one: RFC 9112, section 6.3.
    private var hasBody: Bool { !expectation.isHead && head.status != 204 && head.status != 304 }

    /// Whether only the end of the connection marks the end of the body.
    var endsWithConnection: Bool {
        guard hasBody, !head.isFramed else { return false }
        return switch continuation {
        case .none, .offered: true
        case .appended, .whole: false
        }
    }

    // MARK: The body

    /// Stores bytes of a body without content coding.
    ///
    /// - Returns: false if the response is given up.
    mutating func append(body bytes: Span<UInt8>) -> Bool {
        guard head.isComplete else {
            refusal = Refusal(head: .malformed)
            return false
        }
        switch continuation {
        case .none, .offered: break
        case .appended(let end) where bytes.count > end - body.count:
            // The response contradicts its Content-Range, so none of its bytes are trusted.
            keepability = false
            refusal = Refusal(.truncated, "The answer is longer than its Content-Range.")
            return false
        case .appended: break
        case .whole: return true
        }
        do throws(IncomingBody.Fault) {
            try body.append(bytes)
            return true
        } catch {
            refuse(error)
            return false
        }
    }

    /// Takes bytes of a body with a content coding; earlier ones must be decoded.
    mutating func append(encoded bytes: Span<UInt8>) { body.append(encoded: bytes) }

    /// Decodes about `room` bytes.
    ///
    /// - Parameter buffer: Room for one step.
    /// - Returns: the room that is left; nil if the response is given up.
    mutating func decode(atMost room: Int, into buffer: inout [UInt8]) -> Int? {
        do throws(IncomingBody.Fault) {
            return try body.decode(atMost: room, into: &buffer)
        } catch {
            refuse(error)
            return nil
        }
    }

    private mutating func refuse(_ fault: IncomingBody.Fault) {
        switch fault {
        case .tooLargeForUse where !body.isOverRatio:
            isCut = true
            refusal = nil
        case .tooLargeForUse: refusal = Refusal(.tooCompressed)
        case .store(let fault): refusal = Refusal(body: fault)
        case .decoding(let fault): refusal = Refusal(decoding: fault)
        }
    }

    /// Notes that the transfer has ended well.
    ///
    /// - Throws: `truncated` if the body ended before its content coding did.
    mutating func end() throws(Refusal) {
        isReceived = true
        guard body.hasWork || body.isAtEnd else {
            throw Refusal(.truncated, "The body ended before its content coding did.")
        }
    }

    /// Leaves the body of a followed redirect out of the answer.
    ///
    /// - Returns: whether the answer has no body now.
    mutating func cut() -> Bool {
        if head.isComplete, use == .redirect { isCut = true }
        return isCut
    }

    /// Raises the maximum body size; nil removes it.
    mutating func raise(to maximum: Int?) { body.raise(to: maximum) }

    /// Has a thread continue the hash of a large body; all of its rest, if no more bytes come.
    mutating func hash(on hasher: PartHasher, isLast: Bool) throws(SystemError) {
        try body.hash(on: hasher, for: expectation.attempt, isLast: isLast)
    }

    /// Takes a thread's result.
    ///
    /// - Returns: false if the thread could not read the file.
    mutating func hashed(_ task: PartHasher.Task) -> Bool { body.hashed(task) }

    // MARK: Reports to the broker

    /// Deletes the bytes of this attempt. An unused part of earlier attempts stays for the broker.
    mutating func discard() {
        body.stopHashing()
        _ = body.take()
        offeredPart?.file.leave()
        continuation = .none
    }

    /// Leaves the bytes so far to the broker, if a later attempt may continue them.
    ///
    /// - Returns: their file and fields; nil if nothing is left.
    mutating func leave() -> BodyPart? {
        guard body.count > 0, isKeepable(), let store = body.take(), let file = store.fileName, store.leave() else {
            return nil
        }
        return BodyPart(file: file, httpFields: areFieldsTold ? [] : head.fields)
    }

    /// The body's file, for another broker; nil while there is none.
    mutating func part() -> BodyPart? {
        guard let file = body.fileName else { return nil }
        return BodyPart(file: file, httpFields: isKeepable() ? head.fields : [])
    }

    /// The PROGRESS of the bytes so far.
    ///
    /// - Parameter streams: Whether the body must be in a file: clients read it while it grows.
    mutating func progress(streams: Bool) -> WorkerMessage {
        // If that fails the body stays in memory, as long as it may.
        if streams { try? body.moveToFile() }
        var part: BodyPart?
        if let file = body.fileName {
            part = BodyPart(file: file, httpFields: isKeepable() && !areFieldsTold ? head.fields : [])
        }
        return .progress(expectation.attempt, received: body.count, total: announcedBytes, part: part)
    }

    /// The broker has received the last PROGRESS.
    mutating func progressTaken() {
        if body.fileName != nil { areFieldsTold = true }
    }

    /// Adds the numbers of the body to the report for another broker.
    mutating func report(in held: inout HeldAttempt) {
        held.receivedBytes = body.count
        held.totalBytes = announcedBytes
        held.maxBytes = body.maxBytes == .max ? nil : body.maxBytes
        held.part = part()
    }

    /// Returns the whole response. The file of its body, if it has one, is the receiver's to delete.
    mutating func complete(elapsedMilliseconds: Int) throws(Refusal) -> (completion: Completion, body: [UInt8]?) {
        guard head.isComplete, head.status <= 999 else { throw Refusal(head: .malformed) }
        var completion = Completion(attempt: expectation.attempt, status: head.status)
        completion.isCut = isCut
        completion.httpFields = head.fields
        completion.elapsedMilliseconds = elapsedMilliseconds
        switch continuation {
        case .none, .offered: break
        case .appended(let end):
            // If the server sent less than the rest, the next attempt continues.
            guard body.count == max(end, announcedBytes ?? 0) else { throw Refusal(.truncated) }
            completion.status = 200
            completion.isResumed = true
        case .whole:
            completion.status = 200
            completion.isResumed = true
            completion.httpFields = []
        }
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

    /// Whether a later attempt may continue these bytes. Judged on demand: most bodies are complete before.
    private mutating func isKeepable() -> Bool {
        if let keepability { return keepability }
        guard head.isComplete else { return false }
        let fields = HeaderFields(lines: head.fields)
        let beginning = ResumeRule().beginning(
            1, status: head.status, response: fields, of: expectation.asked, now: Int64(time(nil)))
        keepability = beginning != nil
        return beginning != nil
    }
}
