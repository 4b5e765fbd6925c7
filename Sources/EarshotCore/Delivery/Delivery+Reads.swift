public import EarshotWire

/// READ and DATA: bodies of sessions that receive no paths.
///
/// A READ is checked when it arrives and again when its turn comes, at the end of a pass. The name of a file and the
/// number of its bytes are thus those after all events of the pass. Nothing of a removed request is sent after the
/// reply, because a READ whose body is gone by then is void.
extension Delivery {
    /// Reason to refuse a READ or a TAKE.
    struct ReadRefusal {
        let code: String
        let detail: String
    }

    /// A body in a file of the spool.
    private struct ReadableBody {
        let file: String
        /// Bytes that are present.
        let availableBytes: Int
        /// Nil for a complete body.
        var generation: Generation?
    }

    /// Body that a READ names.
    private enum RequestedBody {
        /// The READ has no answer.
        case unanswerable
        /// No byte can be read yet.
        case notYetAvailable
        case available(ReadableBody)
    }

    /// Applies `bodies` and `bodies-of` of a HELLO.
    static func configureBodyPulling(_ hello: Hello, of client: Handle<ClientSession>, in records: inout Records) {
        if hello.pullsBodies {
            records.bodyPulls.addSession(client, of: records.clients[client].principal)
            records.bodyPulls.setSourceSession(hello.bodySessionToken, of: client)
            // An unknown session and one of another principal are treated alike, so that guessing reveals nothing.
            if bodyOwner(of: client, in: &records) == nil { records.bodyPulls.setSourceSession(nil, of: client) }
        } else if !records.bodyPulls.isEmpty {
            records.bodyPulls.removeSession(client)
        }
    }

    // MARK: Events

    /// Handles READ: refuses it, or answers it at the end of a pass.
    ///
    /// - Returns: the refusal; nil if the READ is accepted.
    static func acceptRead(
        _ message: BodyRead, by client: Handle<ClientSession>, in records: inout Records
    ) -> ReadRefusal? {
        guard records.bodyPulls.contains(client) else {
            return ReadRefusal(code: "bad-message", detail: "READ is for sessions whose HELLO has bodies: pull")
        }
        let read: PullWindow.Read
        switch message.body {
        case .terminal(let sequence):
            guard bodyOfSentTerminal(of: sequence, to: client, in: &records) != nil else {
                return ReadRefusal(
                    code: "unknown-body", detail: "no such terminal with a pulled body waits for an ACK")
            }
            read = PullWindow.Read(message)
        case .request(let handler, let request):
            guard let stream = streamingInterest(of: handler, request, to: client, in: &records) else {
                return ReadRefusal(code: "unknown-body", detail: "no such open request has stream: yes")
            }
            read = PullWindow.Read(message, of: stream)
        }
        let most = WireLimits.openReadsPerSession
        if records.bodyPulls.pendingReadCount(of: client) >= most { dropUnanswerableReads(of: client, in: &records) }
        guard records.bodyPulls.pendingReadCount(of: client) < most else {
            return ReadRefusal(code: "limit", detail: "\(most) READs have no answer yet; wait for one")
        }
        records.bodyPulls.addRead(read, of: client)
        return nil
    }

    /// Answers READs, at most `CoreLimits.maximumBodyReadsPerPass`. Called once per pass.
    static func answerPendingReads(in records: inout Records) {
        var budget = max(records.limits.maximumBodyReadsPerPass, 1)
        while budget > 0, let (client, read) = records.bodyPulls.popNextRead() {
            budget -= 1
            answerRead(read, of: client, in: &records)
        }
    }

    /// Handles a file without the expected bytes.
    ///
    /// - Returns: the refusal of its READ; nil if that waits.
    static func bodyPieceUnreadable(
        _ piece: BodyPiece, by client: Handle<ClientSession>, in records: inout Records
    ) -> ReadRefusal? {
        guard let stream = piece.read.growingBodyInterest else {
            return ReadRefusal(
                code: "unknown-body", detail: "the file of this body is missing; request it again")
        }
        // The program that serves the scheme announced more than it wrote. The next PROGRESS or the terminal helps.
        if isRequestOpen(stream, in: &records) { records.bodyPulls.parkRead(piece.read, of: client) }
        return nil
    }

    /// Forbids reading the bodies of sent terminals, because the client has removed their requests.
    static func forbidBodyReads(
        of client: Handle<ClientSession>, in requests: RemovedRequests, _ records: inout Records
    ) {
        guard records.bodyPulls.contains(client) else { return }
        let window = records.clients[client].deliveries
        var sequence = window.lastAcknowledgedSequence
        var sequences: [UInt64] = []
        while sequence < window.highestSentSequence {
            sequence += 1
            if let due = window.sentTerminal(atSequence: sequence), records.isDueTerminal(due, amongRemoved: requests) {
                sequences.append(sequence)
            }
        }
        records.bodyPulls.closeBodies(sequences, to: client)
    }

    // MARK: Steps

    /// Returns a terminal as a client with pulled bodies receives it.
    @inline(never)
    static func terminalForPulling(
        _ terminal: Terminal, to client: Handle<ClientSession>, in records: inout Records
    ) -> Terminal {
        terminal.hasBodyFile && records.bodyPulls.contains(client) ? terminal.withPulledBody() : terminal
    }

    /// Returns the progress as a client with pulled bodies receives it: with its generation and without a path.
    @inline(never)
    static func progressForPulling(
        _ progress: Progress, to client: Handle<ClientSession>, in records: inout Records
    ) -> Progress {
        guard records.bodyPulls.contains(client) else { return progress }
        var progress = progress
        progress.filePath = nil
        return progress
    }

    private static func answerRead(
        _ read: PullWindow.Read, of client: Handle<ClientSession>, in records: inout Records
    ) {
        switch requestedBody(of: read, by: client, in: &records) {
        case .unanswerable: break
        case .notYetAvailable: records.bodyPulls.parkRead(read, of: client)
        case .available(let body):
            if let owner = bodyOwner(of: client, in: &records), owner != client {
                records.bodyPulls.recordActivity(of: owner)
            }
            let data = BodyData(read.message.body, offset: read.message.offset, generation: body.generation)
            let rest = read.message.offset < body.availableBytes ? body.availableBytes - read.message.offset : 0
            let isOther = read.growingBodyInterest != nil && read.generation.map { $0 != body.generation } ?? false
            if rest > 0, !isOther {
                if let stream = read.growingBodyInterest {
                    recordFileReader(client, ofGrowing: stream.record, in: &records)
                }
                let piece = BodyPiece(
                    read: read, dataHead: data, file: body.file, maximumBytes: min(rest, read.message.maximumBytes))
                records.outbox.appendAction(.client(.sendBodyPiece(records.clients[client].id, piece)))
            } else if read.growingBodyInterest == nil || isOther {
                // The end of the body, or another body.
                records.sendMessage(.bodyData(data), to: client)
            } else {
                var waiting = read
                waiting.generation = body.generation
                records.bodyPulls.parkRead(waiting, of: client)
            }
        }
    }

    private static func requestedBody(
        of read: PullWindow.Read, by client: Handle<ClientSession>, in records: inout Records
    ) -> RequestedBody {
        switch read.message.body {
        case .terminal(let sequence):
            return bodyOfSentTerminal(of: sequence, to: client, in: &records).map { .available($0) } ?? .unanswerable
        case .request:
            guard let stream = read.growingBodyInterest, isRequestOpen(stream, in: &records),
                records.subscribers(of: records.requests[stream.record].handler).contains(client)
            else { return .unanswerable }
            return growingBody(of: stream.record, in: &records).map { .available($0) } ?? .notYetAvailable
        }
    }

    private static func dropUnanswerableReads(of client: Handle<ClientSession>, in records: inout Records) {
        var void: [PullWindow.Read] = []
        for read in records.bodyPulls.reads(of: client) {
            if case .unanswerable = requestedBody(of: read, by: client, in: &records) { void.append(read) }
        }
        records.bodyPulls.removeReads(of: client) { void.contains($0) }
    }

    /// The session whose terminals name the bodies that a client reads: its own, or the one in `bodies-of` of its
    /// HELLO. Nil if that one has ended or is not of the same principal.
    private static func bodyOwner(
        of client: Handle<ClientSession>, in records: inout Records
    ) -> Handle<ClientSession>? {
        guard let token = records.bodyPulls.sourceSession(of: client) else { return client }
        guard let owner = records.clients.handle(of: token), records.bodyPulls.contains(owner),
            records.clients[owner].principal == records.clients[client].principal
        else { return nil }
        return owner
    }

    /// Body in a file of a terminal that was sent and not acknowledged.
    private static func bodyOfSentTerminal(
        of sequence: UInt64, to client: Handle<ClientSession>, in records: inout Records
    ) -> ReadableBody? {
        guard let owner = bodyOwner(of: client, in: &records), !records.bodyPulls.isBodyClosed(sequence, to: owner)
        else {
            return nil
        }
        switch records.clients[owner].deliveries.sentTerminal(atSequence: sequence)?.kind {
        case .uncountedTerminal(let interest), .countedTerminal(let interest):
            guard let file = records.fileNamedInTerminal(of: interest),
                let response = records.outcomes[records.outcome(of: interest)].response
            else { return nil }
            return ReadableBody(file: file, availableBytes: response.bodyLength)
        case .compactFailure, .withdrawn, nil: return nil
        }
    }

    /// Streaming request of a handler to which the client is subscribed.
    private static func streamingInterest(
        of handler: HandlerID, _ request: RequestID, to client: Handle<ClientSession>, in records: inout Records
    ) -> GenerationalHandle<Interest>? {
        guard let number = records.handlers.handle(of: records.handlerKey(handler, of: client)),
            let interest = records.interestHoldingID(request, of: number),
            records.subscribers(of: number).contains(client)
        else { return nil }
        let stream = records.requests.reference(to: interest)
        return isRequestOpen(stream, in: &records) ? stream : nil
    }

    /// Whether the request is open, so that its body may be growing.
    private static func isRequestOpen(_ stream: GenerationalHandle<Interest>, in records: inout Records) -> Bool {
        guard let interest = records.requests.resolve(stream), records.requests[interest].phase == .open,
            !records.isAwaitingRemoval(interest), let number = records.requests[interest].rareOptions
        else { return false }
        return records.requests[number].isStreaming
    }

    /// Body that a worker is receiving for a live request; nil while there is none in a file.
    private static func growingBody(of interest: Handle<Interest>, in records: inout Records) -> ReadableBody? {
        let flight = records.lastRedirectedFlight(ofOpen: interest)
        guard case .running(let worker) = records.flights[flight].phase,
            let lease = records.workers[worker].leases[records.currentAttempt(of: flight)], let part = lease.partFile
        else { return nil }
        return ReadableBody(
            file: part.file, availableBytes: lease.receivedBytes, generation: Generation(part.generation))
    }
}

/// Bytes for the shell to read and send.
public struct BodyPiece: Equatable, Sendable {
    let read: PullWindow.Read
    /// Head of the DATA.
    public let dataHead: BodyData
    /// Name of the file in the spool.
    public let file: String
    /// Maximum number of bytes, at least 1.
    public let maximumBytes: Int
}
