internal import EarshotWire

/// READ and DATA: bodies of sessions that receive no paths.
///
/// A READ is checked when it arrives and again when its turn comes, at the end of a pass. The name of a file and the
/// number of its bytes are thus those after all events of the pass. Nothing of a removed request is sent after the
/// reply, because a READ whose body is gone by then is void.
extension BrokerCore {
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
    mutating func setPulling(_ hello: Hello, of client: Handle<ClientSession>) {
        if hello.isPulling {
            pulls.open(client)
            pulls.setSource(hello.bodiesOf, of: client)
            // An unknown session and one of another principal are treated alike, so that guessing reveals nothing.
            if bodyOwner(of: client) == nil { pulls.setSource(nil, of: client) }
        } else if !pulls.isEmpty {
            pulls.remove(client)
        }
    }

    // MARK: Events

    /// Handles READ: refuses it, or answers it at the end of a pass.
    mutating func readRequested(_ message: BodyRead, by client: Handle<ClientSession>) {
        guard pulls.contains(client) else {
            refuse(client, "bad-message", "READ is for sessions whose HELLO has bodies: pull", .read(message))
            return
        }
        let read: PullWindow.Read
        switch message.body {
        case .terminal(let sequence):
            guard pulledBody(of: sequence, to: client) != nil else {
                refuse(client, "unknown-body", "no such terminal with a pulled body waits for an ACK", .read(message))
                return
            }
            read = PullWindow.Read(message)
        case .request(let handler, let request):
            guard let stream = stream(of: handler, request, to: client) else {
                refuse(client, "unknown-body", "no such open request has stream: yes", .read(message))
                return
            }
            read = PullWindow.Read(message, of: stream)
        }
        let most = WireLimits.openReads
        if pulls.count(of: client) >= most { dropVoidReads(of: client) }
        guard pulls.count(of: client) < most else {
            refuse(client, "limit", "\(most) READs have no answer yet; wait for one", .read(message))
            return
        }
        pulls.add(read, of: client)
    }

    /// Answers READs, at most `CoreLimits.readsPerPass`. Called once per pass.
    mutating func answerReads() {
        var budget = max(limits.readsPerPass, 1)
        while budget > 0, let (client, read) = pulls.take() {
            budget -= 1
            answer(read, of: client)
        }
    }

    /// Handles a DATA that the socket did not take. Reading continues at `clientWritable`.
    public mutating func pieceRefused(_ piece: BodyPiece, by id: ClientID) {
        guard let client = clients.number(of: id) else { return }
        pulls.refuse(piece.read, of: client)
    }

    /// Handles a file without the expected bytes.
    public mutating func pieceLost(_ piece: BodyPiece, by id: ClientID, now: Tick) {
        guard let client = clients.number(of: id), pulls.contains(client) else { return }
        clock = now
        if let stream = piece.read.stream {
            // The program that serves the scheme announced more than it wrote. The next PROGRESS or the terminal helps.
            if isLive(stream) { pulls.park(piece.read, of: client) }
        } else {
            refuse(
                client, "unknown-body", "the file of this body is missing; request it again", .read(piece.read.message))
        }
    }

    /// Forbids reading the bodies of sent terminals, because the client has removed their requests.
    mutating func closeBodies(of client: Handle<ClientSession>, in requests: RemovedRequests) {
        guard pulls.contains(client) else { return }
        let window = clients[client].deliveries
        var sequence = window.acknowledged
        var sequences: [UInt64] = []
        while sequence < window.lastReceived {
            sequence += 1
            if let due = window.entry(sequence), isTerminal(due, of: requests) { sequences.append(sequence) }
        }
        pulls.close(sequences, to: client)
    }

    // MARK: Steps

    /// Returns a terminal as a client with pulled bodies receives it.
    @inline(never)
    func pulled(_ terminal: Terminal, to client: Handle<ClientSession>) -> Terminal {
        terminal.hasFile && pulls.contains(client) ? terminal.pulled() : terminal
    }

    /// Returns the progress as a client with pulled bodies receives it: with its generation and without a path.
    @inline(never)
    func pulled(_ progress: Progress, to client: Handle<ClientSession>) -> Progress {
        guard pulls.contains(client) else { return progress }
        var progress = progress
        progress.file = nil
        return progress
    }

    private mutating func answer(_ read: PullWindow.Read, of client: Handle<ClientSession>) {
        switch source(of: read, by: client) {
        case .void: break
        case .awaited: pulls.park(read, of: client)
        case .present(let body):
            if let owner = bodyOwner(of: client), owner != client { pulls.noteActivity(of: owner) }
            let data = BodyData(read.message.body, offset: read.message.offset, generation: body.generation)
            let rest = read.message.offset < body.bytes ? body.bytes - read.message.offset : 0
            let isOther = read.stream != nil && read.generation.map { $0 != body.generation } ?? false
            if rest > 0, !isOther {
                if let stream = read.stream { noteReader(client, ofGrowing: stream.record) }
                let piece = BodyPiece(read: read, data: data, file: body.file, length: min(rest, read.message.length))
                actions.append(.client(.sendPiece(clients[client].id, piece)))
            } else if read.stream == nil || isOther {
                // The end of the body, or another body.
                say(.data(data), to: client)
            } else {
                var waiting = read
                waiting.generation = body.generation
                pulls.park(waiting, of: client)
            }
        }
    }

    private func source(of read: PullWindow.Read, by client: Handle<ClientSession>) -> Source {
        switch read.message.body {
        case .terminal(let sequence): return pulledBody(of: sequence, to: client).map { .present($0) } ?? .void
        case .request:
            guard let stream = read.stream, isLive(stream),
                listeners(of: interests[stream.record].handler).contains(client)
            else { return .void }
            return growingBody(of: stream.record).map { .present($0) } ?? .awaited
        }
    }

    private mutating func dropVoidReads(of client: Handle<ClientSession>) {
        let void = pulls.reads(of: client).filter { if case .void = source(of: $0, by: client) { true } else { false } }
        pulls.drop(of: client) { void.contains($0) }
    }

    /// The session whose terminals name the bodies that a client reads: its own, or the one in `bodies-of` of its HELLO.
    /// Nil if that one has ended or is not of the same principal.
    private func bodyOwner(of client: Handle<ClientSession>) -> Handle<ClientSession>? {
        guard let token = pulls.source(of: client) else { return client }
        guard let owner = clients.number(of: token), pulls.contains(owner),
            clients[owner].principal == clients[client].principal
        else { return nil }
        return owner
    }

    /// Body in a file of a terminal that was sent and not acknowledged.
    private func pulledBody(of sequence: UInt64, to client: Handle<ClientSession>) -> Readable? {
        guard let owner = bodyOwner(of: client), !pulls.isClosed(sequence, to: owner) else { return nil }
        switch clients[owner].deliveries.entry(sequence)?.kind {
        case .uncounted(let interest), .counted(let interest):
            guard let file = namedFile(of: interest), let response = outcomes[outcomeNumber(of: interest)].response
            else { return nil }
            return Readable(file: file, bytes: response.length)
        case .owed, .withdrawn, nil: return nil
        }
    }

    /// Streaming request of a handler to which the client is subscribed.
    private func stream(
        of handler: HandlerID, _ request: RequestID, to client: Handle<ClientSession>
    ) -> GenerationalHandle<Interest>? {
        guard let number = handlers.number(of: key(handler, of: client)),
            let interest = listedInterest(request, of: number), listeners(of: number).contains(client)
        else { return nil }
        let stream = interests.reference(to: interest)
        return isLive(stream) ? stream : nil
    }

    /// Whether the request is open, so that its body may be growing.
    private func isLive(_ stream: GenerationalHandle<Interest>) -> Bool {
        guard let interest = interests.resolve(stream), interests[interest].phase == .open, !isDoomed(interest),
            let number = interests[interest].extras
        else { return false }
        return extras[number].streams
    }

    /// Body that a worker is receiving for a live request; nil while there is none in a file.
    private func growingBody(of interest: Handle<Interest>) -> Readable? {
        let flight = leaf(ofOpen: interest)
        guard case .running(let worker) = flights[flight].phase,
            let lease = workers[worker].leases[attempt(of: flight)], let part = lease.part
        else { return nil }
        return Readable(file: part.file, bytes: lease.receivedBytes, generation: Generation(part.generation))
    }

    /// Returns a sentence for each violated invariant.
    func auditPulls() -> [String] {
        pulls.checkInvariants()
            + pulls.sessions.filter { !clients.contains($0) }.map { "12: session \($0) has ended and pulls bodies" }
    }
}
