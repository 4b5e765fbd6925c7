public import EarshotWire

/// READ and DATA: bodies of sessions that receive no paths.
///
/// A READ is checked when it arrives and again when its turn comes, at the end of a pass. The name of a file and the
/// number of its bytes are thus those after all events of the pass. Nothing of a removed request is sent after the
/// reply, because a READ whose body is gone by then is void.
extension Delivery {
    /// Reason to refuse a READ or a TAKE.
    struct Refusal {
        let code: String
        let detail: String
    }

    /// A body in a file of the spool.
    private struct Readable {
        let file: String
        /// Bytes that are present.
        let bytes: Int
        /// Nil for a complete body.
        var generation: Generation?
    }

    /// Body that a READ names.
    private enum Source {
        /// The READ has no answer.
        case void
        /// No byte can be read yet.
        case awaited
        case present(Readable)
    }

    /// Applies `bodies` and `bodies-of` of a HELLO.
    static func setPulling(_ hello: Hello, of client: Handle<ClientSession>, in records: inout Records) {
        if hello.isPulling {
            records.pulls.open(client, of: records.clients[client].principal)
            records.pulls.setSource(hello.bodiesOf, of: client)
            // An unknown session and one of another principal are treated alike, so that guessing reveals nothing.
            if bodyOwner(of: client, in: &records) == nil { records.pulls.setSource(nil, of: client) }
        } else if !records.pulls.isEmpty {
            records.pulls.remove(client)
        }
    }

    // MARK: Events

    /// Handles READ: refuses it, or answers it at the end of a pass.
    ///
    /// - Returns: the refusal; nil if the READ is accepted.
    static func read(
        _ message: BodyRead, by client: Handle<ClientSession>, in records: inout Records
    ) -> Refusal? {
        guard records.pulls.contains(client) else {
            return Refusal(code: "bad-message", detail: "READ is for sessions whose HELLO has bodies: pull")
        }
        let read: PullWindow.Read
        switch message.body {
        case .terminal(let sequence):
            guard pulledBody(of: sequence, to: client, in: &records) != nil else {
                return Refusal(
                    code: "unknown-body", detail: "no such terminal with a pulled body waits for an ACK")
            }
            read = PullWindow.Read(message)
        case .request(let handler, let request):
            guard let stream = stream(of: handler, request, to: client, in: &records) else {
                return Refusal(code: "unknown-body", detail: "no such open request has stream: yes")
            }
            read = PullWindow.Read(message, of: stream)
        }
        let most = WireLimits.openReads
        if records.pulls.count(of: client) >= most { dropVoidReads(of: client, in: &records) }
        guard records.pulls.count(of: client) < most else {
            return Refusal(code: "limit", detail: "\(most) READs have no answer yet; wait for one")
        }
        records.pulls.add(read, of: client)
        return nil
    }

    /// Answers READs, at most `CoreLimits.readsPerPass`. Called once per pass.
    static func answerReads(in records: inout Records) {
        var budget = max(records.limits.readsPerPass, 1)
        while budget > 0, let (client, read) = records.pulls.take() {
            budget -= 1
            answer(read, of: client, in: &records)
        }
    }

    /// Handles a file without the expected bytes.
    ///
    /// - Returns: the refusal of its READ; nil if that waits.
    static func pieceLost(
        _ piece: BodyPiece, by client: Handle<ClientSession>, in records: inout Records
    ) -> Refusal? {
        guard let stream = piece.read.stream else {
            return Refusal(
                code: "unknown-body", detail: "the file of this body is missing; request it again")
        }
        // The program that serves the scheme announced more than it wrote. The next PROGRESS or the terminal helps.
        if isLive(stream, in: &records) { records.pulls.park(piece.read, of: client) }
        return nil
    }

    /// Forbids reading the bodies of sent terminals, because the client has removed their requests.
    static func closeBodies(
        of client: Handle<ClientSession>, in requests: RemovedRequests, _ records: inout Records
    ) {
        guard records.pulls.contains(client) else { return }
        let window = records.clients[client].deliveries
        var sequence = window.acknowledged
        var sequences: [UInt64] = []
        while sequence < window.lastReceived {
            sequence += 1
            if let due = window.entry(sequence), records.isTerminal(due, of: requests) { sequences.append(sequence) }
        }
        records.pulls.close(sequences, to: client)
    }

    // MARK: Steps

    /// Returns a terminal as a client with pulled bodies receives it.
    @inline(never)
    static func pulled(
        _ terminal: Terminal, to client: Handle<ClientSession>, in records: inout Records
    ) -> Terminal {
        terminal.hasFile && records.pulls.contains(client) ? terminal.pulled() : terminal
    }

    /// Returns the progress as a client with pulled bodies receives it: with its generation and without a path.
    @inline(never)
    static func pulled(
        _ progress: Progress, to client: Handle<ClientSession>, in records: inout Records
    ) -> Progress {
        guard records.pulls.contains(client) else { return progress }
        var progress = progress
        progress.file = nil
        return progress
    }

    private static func answer(
        _ read: PullWindow.Read, of client: Handle<ClientSession>, in records: inout Records
    ) {
        switch source(of: read, by: client, in: &records) {
        case .void: break
        case .awaited: records.pulls.park(read, of: client)
        case .present(let body):
            if let owner = bodyOwner(of: client, in: &records), owner != client {
                records.pulls.noteActivity(of: owner)
            }
            let data = BodyData(read.message.body, offset: read.message.offset, generation: body.generation)
            let rest = read.message.offset < body.bytes ? body.bytes - read.message.offset : 0
            let isOther = read.stream != nil && read.generation.map { $0 != body.generation } ?? false
            if rest > 0, !isOther {
                if let stream = read.stream { noteReader(client, ofGrowing: stream.record, in: &records) }
                let piece = BodyPiece(read: read, data: data, file: body.file, length: min(rest, read.message.length))
                records.outbox.append(.client(.sendPiece(records.clients[client].id, piece)))
            } else if read.stream == nil || isOther {
                // The end of the body, or another body.
                records.send(.data(data), to: client)
            } else {
                var waiting = read
                waiting.generation = body.generation
                records.pulls.park(waiting, of: client)
            }
        }
    }

    private static func source(
        of read: PullWindow.Read, by client: Handle<ClientSession>, in records: inout Records
    ) -> Source {
        switch read.message.body {
        case .terminal(let sequence):
            return pulledBody(of: sequence, to: client, in: &records).map { .present($0) } ?? .void
        case .request:
            guard let stream = read.stream, isLive(stream, in: &records),
                records.listeners(of: records.requests[stream.record].handler).contains(client)
            else { return .void }
            return growingBody(of: stream.record, in: &records).map { .present($0) } ?? .awaited
        }
    }

    private static func dropVoidReads(of client: Handle<ClientSession>, in records: inout Records) {
        var void: [PullWindow.Read] = []
        for read in records.pulls.reads(of: client) {
            if case .void = source(of: read, by: client, in: &records) { void.append(read) }
        }
        records.pulls.drop(of: client) { void.contains($0) }
    }

    /// The session whose terminals name the bodies that a client reads: its own, or the one in `bodies-of` of its HELLO.
    /// Nil if that one has ended or is not of the same principal.
    private static func bodyOwner(
        of client: Handle<ClientSession>, in records: inout Records
    ) -> Handle<ClientSession>? {
        guard let token = records.pulls.source(of: client) else { return client }
        guard let owner = records.clients.handle(of: token), records.pulls.contains(owner),
            records.clients[owner].principal == records.clients[client].principal
        else { return nil }
        return owner
    }

    /// Body in a file of a terminal that was sent and not acknowledged.
    private static func pulledBody(
        of sequence: UInt64, to client: Handle<ClientSession>, in records: inout Records
    ) -> Readable? {
        guard let owner = bodyOwner(of: client, in: &records), !records.pulls.isClosed(sequence, to: owner) else {
            return nil
        }
        switch records.clients[owner].deliveries.entry(sequence)?.kind {
        case .uncounted(let interest), .counted(let interest):
            guard let file = records.namedFile(of: interest),
                let response = records.outcomes[records.outcome(of: interest)].response
            else { return nil }
            return Readable(file: file, bytes: response.length)
        case .compact, .withdrawn, nil: return nil
        }
    }

    /// Streaming request of a handler to which the client is subscribed.
    private static func stream(
        of handler: HandlerID, _ request: RequestID, to client: Handle<ClientSession>, in records: inout Records
    ) -> GenerationalHandle<Interest>? {
        guard let number = records.handlers.handle(of: records.key(handler, of: client)),
            let interest = records.listedInterest(request, of: number),
            records.listeners(of: number).contains(client)
        else { return nil }
        let stream = records.requests.reference(to: interest)
        return isLive(stream, in: &records) ? stream : nil
    }

    /// Whether the request is open, so that its body may be growing.
    private static func isLive(_ stream: GenerationalHandle<Interest>, in records: inout Records) -> Bool {
        guard let interest = records.requests.resolve(stream), records.requests[interest].phase == .open,
            !records.isDoomed(interest), let number = records.requests[interest].extras
        else { return false }
        return records.requests[number].streams
    }

    /// Body that a worker is receiving for a live request; nil while there is none in a file.
    private static func growingBody(of interest: Handle<Interest>, in records: inout Records) -> Readable? {
        let flight = records.leaf(ofOpen: interest)
        guard case .running(let worker) = records.flights[flight].phase,
            let lease = records.workers[worker].leases[records.attempt(of: flight)], let part = lease.part
        else { return nil }
        return Readable(file: part.file, bytes: lease.receivedBytes, generation: Generation(part.generation))
    }
}

/// Bytes that the core asks the shell to read and send.
public struct BodyPiece: Equatable, Sendable {
    let read: PullWindow.Read
    /// Head of the DATA.
    public let data: BodyData
    /// Name of the file in the spool.
    public let file: String
    /// Maximum number of bytes, at least 1.
    public let length: Int
}
