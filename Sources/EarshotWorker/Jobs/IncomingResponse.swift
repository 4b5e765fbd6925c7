internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import LibCrypto

/// The response to one job while it arrives: its head, its decoded body and the reason to abandon it.
///
/// ```
/// head → body → transferred → completion
///      → omitsBody          → completion    (the head suffices, or the body is too large for its use)
///      → refusal
///      → requiresWholeBody  → head          (resetResponse: the whole body is requested)
/// ```
///
/// The methods that accept bytes run inside libcurl. They store and judge bytes, and never call back into libcurl.
struct IncomingResponse: ~Copyable {
    /// Requirements of the job and the broker's terms for a response.
    struct Expectation {
        let attempt: AttemptID
        let url: FetchURL
        let fields: HeaderFields
        let isHEADMethod: Bool
        /// Whether the body is stored without decoding.
        let keepsContentCodings: Bool
        let redirectMode: RedirectMode
        /// Whether an error page is a result.
        let deliversErrors: Bool
        /// Whether the broker offered a partial body. A body that starts over then needs a file with another name.
        let isResuming: Bool
        let terms: Terms

        /// Returns the expectation of a job. A function, because an initializer would receive copies of all three
        /// arguments.
        static func make(job: Job, plan: TransferPlan, terms: Terms) -> Expectation {
            Expectation(
                attempt: job.attempt, url: plan.url, fields: plan.jobFields, isHEADMethod: plan.isHEADMethod,
                keepsContentCodings: plan.keepsContentCodings, redirectMode: job.redirectMode,
                deliversErrors: job.route.deliversErrorResponses, isResuming: job.resume != nil, terms: terms)
        }

        /// The request to the server.
        var originRequest: HTTPRequest { HTTPRequest(method: isHEADMethod ? .head : .get, url: url, fields: fields) }
    }

    /// Verdict on a header line.
    enum HeadVerdict: Equatable {
        /// The response continues.
        case accepted
        /// The response continues, but its body is not needed: the core follows the redirect.
        case followedRedirect
        /// The transfer ends here.
        case refused
    }

    /// Result of comparing the response with the offered part.
    private enum Placement {
        /// The response has a body of its own.
        case ownBody
        /// Its body continues the part.
        case continuesPart
        /// The response is abandoned: it belongs to another representation, or the whole body is too large.
        case misplacedPart
    }

    /// The relation of the response's body to the offered part.
    private enum Continuation {
        /// No part was offered, or it is unusable.
        case none
        /// A part is available; the response has not decided about it.
        case offered(OfferedPart)
        /// The body continues the part and ends at this offset.
        case appendedToPart(end: Int)
        /// The part is already complete. The bytes of the response do not belong to it.
        case partAlreadyComplete
    }

    private let expectation: Expectation
    private(set) var head = ResponseHead()
    private(set) var body: IncomingBody
    private var continuation = Continuation.none
    private var bodyUse = BodyUse.result
    /// Announced length of the body in bytes; nil if unknown, or if the body has a content coding.
    private var announcedBytes: Int?
    /// Reason to abandon the response.
    private(set) var refusal: Refusal?
    /// Whether the completion omits the body, because it exceeds the limit for its use or is not needed.
    private(set) var omitsBody = false
    /// Whether the response neither continues the part nor stands alone, so the whole body must be requested.
    private(set) var requiresWholeBody = false
    /// Whether the transfer succeeded. Bytes may remain to be decoded.
    private(set) var isTransferComplete = false
    /// Whether a later attempt may continue the body; nil until it is judged, which requires an accepted head.
    private var isKeepableForLaterAttempt: Bool?
    /// Whether the broker has received the header fields that belong to the body.
    private var hasReportedFields = false

    /// - Parameter part: Partial body of earlier attempts; nil without a usable one.
    init(_ expectation: Expectation, continuing part: OfferedPart?, maximumBodyBytes: Int?) {
        self.expectation = expectation
        if let part { continuation = .offered(part) }
        body = IncomingBody(
            of: expectation.attempt, expectation.terms, maximumBodyBytes: maximumBodyBytes ?? .max,
            startsAnew: expectation.isResuming)
    }

    /// Resets to the state before the first byte, without the part of earlier attempts.
    mutating func resetResponse() {
        body.stopHashing()
        self = IncomingResponse(expectation, continuing: nil, maximumBodyBytes: body.maximumBodyBytes)
    }

    /// The part of earlier attempts, until a response decides about it; nil without one.
    var offeredPart: OfferedPart? {
        if case .offered(let part) = continuation { part } else { nil }
    }

    /// Adds the hash to the part of earlier attempts, or drops the part if it could not be read or has another hash.
    mutating func receivePartHash(_ task: PartHasher.Task) {
        guard case .offered(let part) = continuation else { return }
        guard let hash = task.takeHash(), part.verifyHash(hash) else {
            continuation = .none
            return
        }
    }

    // MARK: The head

    /// Appends one header line and returns the verdict.
    mutating func append(headerLine: Span<UInt8>) -> HeadVerdict {
        do throws(ResponseHead.Fault) {
            return try head.append(headerLine) ? evaluateHead() : .accepted
        } catch {
            refusal = Refusal(headFault: error)
            return .refused
        }
    }

    /// Judges a complete head. Refuses a body whose announced length is too large without receiving it.
    private mutating func evaluateHead() -> HeadVerdict {
        isKeepableForLaterAttempt = nil
        let length = hasBody ? ContentLength(HeaderFields(lines: head.framingFields)) : .absent
        guard length != .invalid else {
            refusal = Refusal(.protocolError, "The Content-Length of the response is invalid.")
            return .refused
        }
        guard expectation.fields.permitResponse(withStatus: head.status) || offeredPart != nil && head.status == 206
        else {
            refusal = Refusal(.protocolError, "The server sent an unrequested \(head.status).")
            return .refused
        }
        // libcurl would decode it in one call, without a bound on its size.
        if head.mayHaveField(named: "transfer-encoding"),
            HeaderFields(lines: head.framingFields).hasUnrequestedTransferCoding
        {
            refusal = Refusal(.encodingError, "The response has an unrequested transfer coding.")
            return .refused
        }
        if let part = offeredPart {
            switch placeBody(HeaderFields(lines: head.fields), behind: part) {
            case .ownBody: break
            case .continuesPart: return .accepted
            case .misplacedPart: return .refused
            }
        }
        bodyUse = BodyUse(of: head, redirect: expectation.redirectMode, deliversErrors: expectation.deliversErrors)
        if bodyUse != .result { body.limitUseBytes(to: expectation.terms.maximumErrorPageBytes) }
        if hasBody, !expectation.keepsContentCodings,
            let decoder = BodyDecoder(for: head, maximumDecodingRatio: expectation.terms.maximumDecodingRatio)
        {
            body.setDecoder(decoder)
        }
        let verdict = bodyUse == .followedRedirect ? HeadVerdict.followedRedirect : .accepted
        guard case .bytes(let length) = length, !body.isEncoded else { return verdict }
        announcedBytes = length
        body.reserveCapacity(expectedBytes: length)
        guard length > body.maximumBodyBytes || length > expectation.terms.maximumErrorPageBytes && bodyUse != .result
        else { return verdict }
        if length > body.maximumBodyBytes { refusal = Refusal(.tooLarge) } else { omitsBody = true }
        return .refused
    }

    /// Judges the response to a request for the rest of a body.
    private mutating func placeBody(_ fields: HeaderFields, behind part: OfferedPart) -> Placement {
        let outcome = ResumeRule().outcome(
            status: head.status, response: fields, kept: part.partialBody, now: Int64(time(nil)))
        switch outcome {
        case .append(_, let end, let total):
            return resumePart(part, continuation: .appendedToPart(end: Int(end)), announced: total.map { Int($0) })
        case .alreadyComplete:
            return resumePart(part, continuation: .partAlreadyComplete, announced: Int(part.partialBody.keptBytes))
        case .notAResumption: return .ownBody
        case .startOver:
            continuation = .none
            return .ownBody
        case .mismatch:
            continuation = .none
            requiresWholeBody = true
            return .misplacedPart
        }
    }

    private mutating func resumePart(
        _ part: OfferedPart, continuation next: Continuation, announced: Int?
    ) -> Placement {
        announcedBytes = announced
        guard let hash = part.takeHash() else {
            preconditionFailure("\(expectation.attempt) requested the rest of a body whose part has no hash")
        }
        body.resumePartialBody(part.file, hash: hash, count: Int(part.partialBody.keptBytes))
        continuation = next
        isKeepableForLaterAttempt = true
        hasReportedFields = true
        guard let announced, announced > body.maximumBodyBytes else { return .continuesPart }
        refusal = Refusal(.tooLarge)
        return .misplacedPart
    }

    /// Whether the response has a body, possibly an empty one: RFC 9112, section 6.3.
    private var hasBody: Bool { !expectation.isHEADMethod && head.status != 204 && head.status != 304 }

    /// Whether only the end of the connection marks the end of the body.
    var endsAtConnectionClose: Bool {
        guard hasBody, !head.hasFramingField else { return false }
        return switch continuation {
        case .none, .offered: true
        case .appendedToPart, .partAlreadyComplete: false
        }
    }

    // MARK: The body

    /// Whether `append(encoded:)` takes the bytes of the body: the head is complete and names a content coding.
    var acceptsEncodedBytes: Bool { body.isEncoded && head.isComplete }

    /// Stores bytes of a body without content coding.
    ///
    /// - Returns: false if the response is abandoned.
    mutating func append(body bytes: Span<UInt8>) -> Bool {
        guard head.isComplete else {
            refusal = Refusal(headFault: .malformed)
            return false
        }
        switch continuation {
        case .none, .offered: break
        case .appendedToPart(let end) where bytes.count > end - body.count:
            // The response contradicts its Content-Range, so none of its bytes are trusted.
            isKeepableForLaterAttempt = false
            refusal = Refusal(.truncated, "The response is longer than its Content-Range.")
            return false
        case .appendedToPart: break
        case .partAlreadyComplete: return true
        }
        do throws(IncomingBody.Fault) {
            try body.append(bytes)
            return true
        } catch {
            refuseBody(error)
            return false
        }
    }

    /// Appends bytes of a body with a content coding. Earlier bytes must already be decoded.
    mutating func append(encoded bytes: Span<UInt8>) { body.append(encoded: bytes) }

    /// Decodes about `room` bytes.
    ///
    /// - Parameter buffer: Output of one decoding step.
    /// - Returns: The remaining room; nil if the response is abandoned.
    mutating func decode(atMost room: Int, into buffer: inout [UInt8]) -> Int? {
        do throws(IncomingBody.Fault) {
            return try body.decode(atMost: room, into: &buffer)
        } catch {
            refuseBody(error)
            return nil
        }
    }

    private mutating func refuseBody(_ fault: IncomingBody.Fault) {
        if fault == .tooLargeForBodyUse, !body.exceedsDecodingRatio {
            omitsBody = true
            refusal = nil
        } else {
            refusal = Refusal(bodyFault: fault)
        }
    }

    /// Marks the transfer as successful.
    ///
    /// - Throws: `truncated` if the body ended before its content coding did.
    mutating func finishTransfer() throws(Refusal) {
        isTransferComplete = true
        guard body.hasUndecodedBytes || body.mayEndHere else {
            throw Refusal(.truncated, "The body ended before its content coding did.")
        }
    }

    /// Omits the body of a followed redirect from the completion.
    ///
    /// - Returns: Whether the completion has no body now.
    mutating func omitRedirectBody() -> Bool {
        if head.isComplete, bodyUse == .followedRedirect { omitsBody = true }
        return omitsBody
    }

    /// Raises the maximum body size; nil removes it.
    mutating func raiseMaximumBodyBytes(to maximum: Int?) { body.raiseMaximumBodyBytes(to: maximum) }

    /// Starts a thread on the next range of the hash of a large body. The last range includes all remaining bytes.
    ///
    /// - Parameter reportsCheckpoint: Whether a PROGRESS can report a checkpoint.
    mutating func startHashing(
        on hasher: PartHasher, isLast: Bool, reportsCheckpoint: Bool, now: LoopTime
    ) throws(SystemError) {
        let syncs = reportsCheckpoint && body.needsCheckpoint(now: now) && evaluateKeepability()
        try body.startHashing(on: hasher, isLast: isLast, makesCheckpoint: syncs)
    }

    /// Takes the result of a hash thread.
    ///
    /// - Returns: false if the thread could not read the file.
    mutating func receiveHash(from task: PartHasher.Task, now: LoopTime) -> Bool {
        body.receiveHash(from: task, now: now)
    }

    // MARK: Reports to the broker

    /// Deletes the bytes of this attempt. An unused part of earlier attempts is left to the broker.
    mutating func discard() {
        body.discard()
        offeredPart?.file.closeWithoutDeleting()
        continuation = .none
    }

    /// Leaves the bytes received so far to the broker, if a later attempt may continue them.
    ///
    /// - Returns: Their file and header fields; nil if nothing is kept.
    mutating func handOverPartialBody() -> BodyPart? {
        guard body.count > 0, evaluateKeepability(), let file = body.handOverPartialFile() else { return nil }
        return BodyPart(fileName: file, httpFields: hasReportedFields ? [] : head.fields)
    }

    /// Returns the PROGRESS for the bytes received so far.
    ///
    /// - Parameter streams: Whether the body must be in a file, because clients read it while it grows.
    mutating func makeProgressMessage(streams: Bool) -> WorkerMessage {
        if streams { body.moveToFile() }
        var part: BodyPart?
        if let file = body.fileName {
            part = BodyPart(fileName: file)
            if !hasReportedFields, head.isComplete, head.status <= 999 {
                let isForClients = !evaluateKeepability()
                if !isForClients || streams { part?.httpFields = head.fields }
                if isForClients, streams { part?.status = head.status }
            }
        }
        return .progress(
            expectation.attempt, received: body.count, total: announcedBytes, part: part,
            checkpoint: body.unreportedCheckpoint)
    }

    /// Records that the broker has received the last PROGRESS.
    mutating func recordSentProgress() {
        if body.fileName != nil { hasReportedFields = true }
        body.unreportedCheckpoint = nil
    }

    /// Returns the complete response. The receiver owns the file of its body, if there is one, and must delete it.
    ///
    /// - Throws: `truncated` if the body is shorter than announced; `protocol-error` without a valid head; a spool
    ///   failure.
    mutating func makeCompletion() throws(Refusal) -> (completion: Completion, body: [UInt8]?) {
        guard head.isComplete, head.status <= 999 else { throw Refusal(headFault: .malformed) }
        var completion = Completion(attempt: expectation.attempt, status: head.status)
        completion.isBodyOmitted = omitsBody
        completion.httpFields = head.fields
        switch continuation {
        case .none, .offered: break
        case .appendedToPart(let end):
            // If the server sent less than the rest, the next attempt continues.
            guard body.count == max(end, announcedBytes ?? 0) else { throw Refusal(.truncated) }
            completion.status = 200
            completion.isResumed = true
        case .partAlreadyComplete:
            completion.status = 200
            completion.isResumed = true
            completion.httpFields = []
        }
        guard hasBody, !omitsBody else { return (completion, nil) }
        let bytes = try body.finish(into: &completion)
        return (completion, bytes)
    }

    /// Returns whether a later attempt may continue these bytes. Judged on demand, because most bodies arrive whole.
    private mutating func evaluateKeepability() -> Bool {
        if let isKeepableForLaterAttempt { return isKeepableForLaterAttempt }
        guard head.isComplete else { return false }
        let fields = HeaderFields(lines: head.fields)
        let beginning = ResumeRule().partialBody(
            keptBytes: 1, status: head.status, response: fields, of: expectation.originRequest, now: Int64(time(nil)))
        isKeepableForLaterAttempt = beginning != nil
        return beginning != nil
    }
}

/// The use of a response's body, which bounds its size.
enum BodyUse {
    /// The body is delivered, up to the maximum size of the request.
    case result
    /// The body explains a status of 400 or more. It is omitted if too large.
    case errorPage
    /// The body belongs to a redirect that is followed. Only the cache needs it, so the worker does not wait for it.
    case followedRedirect

    /// - Parameters:
    ///   - redirect: The redirect mode of the request.
    ///   - deliversErrors: Whether an error page is a result.
    init(of head: ResponseHead, redirect: RedirectMode, deliversErrors: Bool) {
        switch head.status {
        case 301, 302, 303, 307, 308:
            let leads = redirect != .manual && HeaderFields(lines: head.fields).contains("location")
            self = leads ? .followedRedirect : .result
        case 400... where !deliversErrors: self = .errorPage
        default: self = .result
        }
    }
}
