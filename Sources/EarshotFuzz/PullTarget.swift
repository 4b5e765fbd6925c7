internal import EarshotQueries
internal import EarshotWire

@testable internal import EarshotCore

/// Fuzz target: a core whose clients read bodies with READ, in sessions with leases, and whose workers report growing
/// and complete bodies. Each byte is a choice.
///
/// Each READ has at most one answer. It is a DATA that names the same body and offset, and at most the requested bytes and
/// those that the worker reported. No answer follows an ACK, the reply to a removal, or the loss of the connection. A READ
/// without an answer waits for bytes of a growing body. Only a READ that no decoder accepts is answered by an ERROR.
struct PullTarget {
    /// Maximum number of steps per input, so that inputs stay fast.
    private static let steps = 300
    private static let handlers = ["h", "h/1", "g"].compactMap { HandlerID($0) }
    private static let requests = ["1", "2", "3"].compactMap { RequestID($0) }
    private static let failureCodes = ["reset", "timeout", "too-large", "worker-failed", "cancelled"]

    /// A client: its connection and the READs that it has sent.
    struct Peer {
        var id: ClientID
        /// Token of the session.
        var token: SessionToken
        /// Letter of the user in URLs and names of files.
        let user: Character
        let isPulling: Bool
        /// Whether it reads the bodies of the first client's terminals instead of its own.
        var readsFirstClientsBodies = false
        var openReads: [OpenRead] = []
        /// READs of lost bodies, which will be refused.
        var lostBodies: [BodyReference] = []
        /// Received terminals by number, except those that were in a file.
        var terminals: [UInt64: (handler: HandlerID, request: RequestID, length: Int)] = [:]
        var lastDelivered: UInt64 = 0
        var lastAcknowledged: UInt64 = 0
        /// Number of the last message.
        var lastMessageNumber: UInt64 = 0
        var isClosed = false
    }

    /// A READ without an answer.
    struct OpenRead {
        let read: BodyRead
        /// Serial of the request whose body grows.
        var serial: UInt64?
        /// Whether the client has unsubscribed meanwhile.
        var mayNeedNoAnswer = false
    }

    struct Attempt {
        let id: AttemptID
        let worker: Int
        let user: Character
    }

    var core: BrokerCore
    private var randomChoices: ByteSource
    private var now = MonotonicTime(nanoseconds: 0)
    var peers: [Peer] = []
    private var workers: [WorkerID] = []
    private var attempts: [Attempt] = []
    private var lastPeer: UInt64 = 0
    private var lastBody: UInt64 = 0
    /// Bytes of each file, as reported by a worker, and its user.
    private var fileSizesAndUsers: [String: (bytes: Int, user: Character)] = [:]
    private var bodySizesAndUsers: [BodyID: (bytes: Int, user: Character)] = [:]
    var refusesDeliveries = false
    var losesPieces = false
    var hasLostPieces = false
    /// READ that the core is carrying out, and its sender.
    private var currentRead: (peer: Int, read: BodyRead)?
    /// Codes of the ERRORs since the last READ.
    private var errorCodes: [String] = []
    /// Client whose REMOVE the core is carrying out.
    private var removingPeer: Int?

    static func run(_ bytes: [UInt8]) {
        var target = PullTarget(bytes)
        for _ in 0..<steps where !target.randomChoices.isEmpty {
            target.performRandomStep()
            target.checkCoreAudit()
        }
        target.checkAllReadsAnswered()
    }

    private init(_ bytes: [UInt8]) {
        randomChoices = ByteSource(bytes)
        var limits = CoreLimits()
        limits.maximumOpenRequests = 64
        limits.originRules.defaultMaximumTransfers = 4
        limits.maximumRequestRemovalsPerPass = 1
        limits.maximumSessionCleanupsPerPass = 1
        limits.maximumWithdrawalChecksPerPass = 1
        limits.maximumBodyReadsPerPass = 2
        limits.maximumWaitingBodyBytes = 2_000
        limits.maximumWaitingTerminals = 5
        core = BrokerCore(
            workerLimits: WorkerLimits(broker: BrokerInstance(rawValue: 1), spoolPath: "/spool"), secret: nil,
            limits: limits, answering: Queries.answer, seed: 1)
        for (user, pulls) in [("a", true), ("a", true), ("b", true), ("a", false)] as [(Character, Bool)] {
            peers.append(
                Peer(
                    id: ClientID(rawValue: 0), token: SessionToken(highBits: 0, lowBits: 0), user: user,
                    isPulling: pulls))
            connect(peers.count - 1, resumes: false)
        }
        for index in 0..<2 {
            workers.append(WorkerID(rawValue: 0))
            connectWorker(index)
        }
        runPass()
    }

    // MARK: Steps

    private mutating func performRandomStep() {
        let kind = randomChoices.byte()
        let peer = randomChoices.number(below: peers.count)
        switch kind % 20 {
        case 0, 1: sendFetch(peer)
        case 2, 3, 4, 5: sendRead(peer)
        case 6, 7, 8: reportProgress()
        case 9, 10: completeAttempt()
        case 11: failAttempt()
        case 12:
            let sequence = peers[peer].lastAcknowledged + UInt64(randomChoices.number(below: 4))
            if sequence <= peers[peer].lastDelivered {
                peers[peer].lastAcknowledged = max(sequence, peers[peer].lastAcknowledged)
                for reader in peers.indices where bodyOwner(ofReader: reader) == peer {
                    peers[reader].openReads.removeAll {
                        if case .terminal(let number) = $0.read.body { number <= sequence } else { false }
                    }
                }
            }
            sendToCore(.acknowledge(sequence), peer)
        case 13: sendRemoval(.removeRequest(chooseHandler(), chooseRequest()), peer)
        case 14:
            let pattern = HandlerPattern(randomChoices.boolean() ? "h/*" : chooseHandler().description)
            if let pattern { sendRemoval(.removeHandlers(pattern), peer) }
        case 15:
            let choice = randomChoices.byte()
            reconnect(peer, resumes: choice & 1 != 0, reads: choice & 2 != 0)
            // A session of the first client that is not resumed has another token.
            if peer == 0, choice & 1 == 0 {
                for reader in peers.indices where bodyOwner(ofReader: reader) != reader {
                    reconnect(reader, resumes: true, reads: choice & 4 != 0)
                }
            }
        case 16:
            refusesDeliveries.toggle()
            if !refusesDeliveries { for peer in peers { core.clientSocketWritable(peer.id) } }
        case 17: losesPieces.toggle()
        case 18:
            let handler = chooseHandler()
            if randomChoices.boolean() { return sendToCore(.subscribe(.handler(handler)), peer) }
            sendToCore(.unsubscribe(.handler(handler)), peer)
            for index in peers[peer].openReads.indices { peers[peer].openReads[index].mayNeedNoAnswer = true }
        default:
            let choice = randomChoices.byte()
            if choice & 1 == 0 {
                now = now.advanced(byMilliseconds: Int(choice) * 20)
            } else {
                let index = Int(choice / 2) % workers.count
                attempts.removeAll { $0.worker == index }
                core.workerLost(workers[index], now: now)
                connectWorker(index)
            }
        }
        // Several events can be in one pass.
        if kind < 200 { runPass() }
    }

    private mutating func chooseHandler() -> HandlerID {
        Self.handlers[randomChoices.number(below: Self.handlers.count)]
    }

    private mutating func chooseRequest() -> RequestID {
        Self.requests[randomChoices.number(below: Self.requests.count)]
    }

    private mutating func sendFetch(_ peer: Int) {
        var fetch = Fetch(
            handler: chooseHandler(), request: chooseRequest(),
            url: "http://o/\(peers[peer].user)\(randomChoices.number(below: 4))")
        let options = randomChoices.byte()
        fetch.options.streams = options & 1 == 1
        fetch.options.replacesHandler = options % 16 == 14
        fetch.options.subscribes = options % 16 != 12
        sendToCore(.fetch(fetch), peer)
    }

    private mutating func sendRead(_ peer: Int) {
        let form = randomChoices.byte()
        let body: BodyReference =
            form & 1 == 0
            ? .terminal(peers[bodyOwner(ofReader: peer)].lastAcknowledged &+ UInt64(form >> 6))
            : .request(chooseHandler(), chooseRequest())
        var read = BodyRead(body, offset: randomChoices.sizeNearLimits(), maximumBytes: randomChoices.sizeNearLimits())
        if form & 2 != 0, let attempt = randomChoices.element(of: attempts) { read.generation = Generation(attempt.id) }
        let bytes = ClientMessage.readBody(read).encoded()
        while core.hasPendingRemoval(by: peers[peer].id) { runPass() }
        carryOutActions()
        errorCodes = []
        do throws(WireError) {
            guard case .readBody(let decoded) = try ClientMessage(head: bytes) else { return }
            read = decoded
        } catch {
            core.malformedClientMessageReceived(error, from: peers[peer].id, now: now)
            carryOutActions()
            precondition(errorCodes == [error.code.rawValue] || peers[peer].isClosed, "\(errorCodes) for \(error)")
            return
        }
        var open = OpenRead(read: read)
        if case .request(let handler, let request) = body { open.serial = openGeneration(handler, request, of: peer) }
        peers[peer].openReads.append(open)
        currentRead = (peer, read)
        sendToCore(.readBody(read), peer)
        carryOutActions()
        currentRead = nil
        precondition(errorCodes.isEmpty, "\(errorCodes) for \(read)")
    }

    private mutating func sendRemoval(_ message: ClientMessage, _ peer: Int) {
        carryOutActions()
        removingPeer = peer
        sendToCore(message, peer)
        while core.hasPendingRemoval(by: peers[peer].id) { runPass() }
        carryOutActions()
        removingPeer = nil
    }

    private mutating func sendToCore(_ message: ClientMessage, _ peer: Int) {
        while core.hasPendingRemoval(by: peers[peer].id) { runPass() }
        if message.canHaveNumber { peers[peer].lastMessageNumber += 1 }
        core.clientMessageReceived(
            message, number: message.canHaveNumber ? peers[peer].lastMessageNumber : nil, from: peers[peer].id, now: now
        )
    }

    private mutating func reportToCore(_ message: WorkerMessage, _ attempt: Attempt) {
        lastBody += 1
        // The shell reports one form of a body.
        let isFiled = if case .completed(let completion) = message { completion.fileName != nil } else { false }
        core.workerMessageReceived(
            message, body: isFiled ? nil : BodyID(rawValue: lastBody), from: workers[attempt.worker], now: now)
    }

    private mutating func reportProgress() {
        guard let attempt = randomChoices.element(of: attempts) else { return }
        let received = randomChoices.sizeNearLimits()
        let file = "9-\(attempt.id).part"
        fileSizesAndUsers[file] = (max(fileSizesAndUsers[file]?.bytes ?? 0, received), attempt.user)
        let part = randomChoices.number(below: 8) == 0 ? nil : BodyPart(fileName: file, httpFields: [])
        let total = randomChoices.boolean() ? nil : received
        reportToCore(.progress(attempt.id, received: received, total: total, part: part), attempt)
    }

    private mutating func completeAttempt() {
        guard let index = attempts.isEmpty ? nil : randomChoices.number(below: attempts.count) else { return }
        let attempt = attempts.remove(at: index)
        var completion = Completion(attempt: attempt.id, status: randomChoices.number(below: 8) == 0 ? 503 : 200)
        completion.bodyByteCount = min(randomChoices.sizeNearLimits(), WireLimits.responseBodyBytes)
        let letters = String(repeating: "ab", count: 20) + (attempt.user == "a" ? "aaaaaaaa" : "bbbbbbbb")
        let digits = String(completion.bodyByteCount, radix: 16)
        completion.sha256 = letters + String(repeating: "0", count: 16 - digits.count) + digits
        if randomChoices.number(below: 4) != 0 { completion.fileName = completion.sha256 }
        if let file = completion.fileName { fileSizesAndUsers[file] = (completion.bodyByteCount, attempt.user) }
        bodySizesAndUsers[BodyID(rawValue: lastBody + 1)] = (completion.bodyByteCount, attempt.user)
        reportToCore(.completed(completion), attempt)
    }

    private mutating func failAttempt() {
        guard let index = attempts.isEmpty ? nil : randomChoices.number(below: attempts.count) else { return }
        let attempt = attempts.remove(at: index)
        reportToCore(
            .failed(
                attempt.id, code: Self.failureCodes[randomChoices.number(below: Self.failureCodes.count)], detail: nil,
                receivedBytes: 0),
            attempt)
    }

    // MARK: Connections

    /// Client whose terminals name the bodies that a client reads.
    func bodyOwner(ofReader peer: Int) -> Int { peers[peer].readsFirstClientsBodies ? 0 : peer }

    private mutating func reconnect(_ peer: Int, resumes: Bool, reads: Bool) {
        while core.hasPendingRemoval(by: peers[peer].id) { runPass() }
        core.clientLost(peers[peer].id, now: now)
        connect(peer, resumes: resumes, reads: reads)
    }

    private mutating func connect(_ peer: Int, resumes: Bool, reads: Bool = false) {
        lastPeer += 1
        peers[peer].id = ClientID(rawValue: lastPeer)
        peers[peer].openReads = []
        peers[peer].lostBodies = []
        peers[peer].isClosed = false
        let token = SessionToken(highBits: 0, lowBits: lastPeer)
        core.clientConnected(
            peers[peer].id, token: token,
            user: peers[peer].user == "a" ? nil : PrincipalName("uid:7"))
        var hello = Hello(window: peer == 0 ? 3 : 8)
        hello.pullsBodies = peers[peer].isPulling
        hello.leaseMilliseconds = 2_000
        hello.token = resumes ? peers[peer].token : nil
        hello.bodySessionToken = reads && peer != 0 ? peers[0].token : nil
        carryOutActions()
        sendToCore(.hello(hello), peer)
        carryOutActions()
    }

    private mutating func connectWorker(_ index: Int) {
        lastPeer += 1
        workers[index] = WorkerID(rawValue: lastPeer)
        core.workerConnected(workers[index], now: now)
        var ready = Ready(slots: 3)
        ready.pid = 9
        core.workerMessageReceived(.ready(ready), body: nil, from: workers[index], now: now)
    }

    // MARK: The pass

    mutating func runPass() {
        core.timePassed(now: now)
        core.dispatch(now: now)
        carryOutActions()
    }

    private mutating func carryOutActions() {
        while true {
            let actions = core.takeActions()
            if actions.isEmpty { return }
            var refused: Set<ClientID> = []
            for action in actions { carryOutAction(action, &refused) }
        }
    }

    private mutating func carryOutAction(_ action: Action, _ refused: inout Set<ClientID>) {
        switch action {
        case .client(.deliverTerminal(let client, let terminal, _)):
            guard acceptDelivery(terminal.sequence, by: client, &refused), let peer = peerIndex(of: client) else {
                return
            }
            let length = terminal.response?.bodyByteCount ?? 0
            if peers[peer].isPulling, case .terminal(let reported)? = try? BrokerMessage(head: terminal.encoded()) {
                precondition(reported.response?.bodyFilePath == nil, "a session that pulls gets the path of a file")
                precondition(!terminal.hasBodyFile || reported.response?.isPulled == true, "a body that cannot be read")
            }
            peers[peer].terminals[terminal.sequence] = (terminal.handler, terminal.request, length)
            removeUnanswerableReads(peer, terminal.handler, terminal.request)
        case .client(.sendBodyPiece(let client, let piece)): receivePiece(piece, to: client)
        case .client(.send(let client, let message)), .client(.replyToNumberedMessage(let client, let message, _, _)):
            if let peer = peerIndex(of: client) { handleBrokerMessage(message, peer) }
        case .client(.close(let client, _)):
            guard let peer = peerIndex(of: client) else { return }
            peers[peer].openReads = []
            peers[peer].isClosed = true
        case .spool(.spillBody(let body, let file)), .spool(.writeBody(let body, let file)):
            fileSizesAndUsers[file] = bodySizesAndUsers[body]
        case .worker(.send(let worker, .job(let job))):
            guard let index = workers.firstIndex(of: worker) else { return }
            attempts.append(
                Attempt(id: job.attempt, worker: index, user: job.url.contains("/a") ? "a" : "b"))
        default: return
        }
    }

    private func peerIndex(of client: ClientID) -> Int? { peers.firstIndex { $0.id == client } }

    private mutating func acceptDelivery(_ sequence: UInt64, by client: ClientID, _ refused: inout Set<ClientID>)
        -> Bool
    {
        guard !refused.contains(client) else { return false }
        guard !refusesDeliveries else {
            refused.insert(client)
            core.socketRefusedTerminal(sequence, by: client)
            return false
        }
        if let peer = peerIndex(of: client) { peers[peer].lastDelivered = max(peers[peer].lastDelivered, sequence) }
        return true
    }

    private mutating func handleBrokerMessage(_ message: BrokerMessage, _ peer: Int) {
        switch message {
        case .welcome(let welcome):
            peers[peer].readsFirstClientsBodies = welcome.readsOtherSession
            precondition(!welcome.readsOtherSession || peers[peer].user == peers[0].user, "the session of another user")
            if let token = welcome.token { peers[peer].token = token }
            if welcome.lastReceivedNumber == nil {
                (peers[peer].lastDelivered, peers[peer].lastAcknowledged, peers[peer].terminals) = (0, 0, [:])
            }
        case .bodyData(let data) where data.errorCode != nil: handleRefusal(data, to: peer)
        case .bodyData(let data): handleEmptyData(data, peer)
        case .error(let reply): errorCodes.append(reply.code)
        case .requestRemoved(let handler, let request, _) where removingPeer == peer:
            removeOpenReads(peer) { $0 == handler && $1 == request }
        case .handlersRemoved(let pattern, _) where removingPeer == peer:
            removeOpenReads(peer) { handler, _ in pattern.matches(handler) }
        default: return
        }
    }

    // MARK: Answers

    private mutating func receivePiece(_ piece: BodyPiece, to client: ClientID) {
        guard let peer = peerIndex(of: client) else { preconditionFailure("DATA for \(client), which has gone") }
        precondition((1...WireLimits.dataBytes).contains(piece.maximumBytes), "\(piece.maximumBytes) bytes in a DATA")
        let end = piece.dataHead.offset.addingReportingOverflow(piece.maximumBytes)
        guard let file = fileSizesAndUsers[piece.file] else {
            preconditionFailure("\(piece.file) is no file of a worker")
        }
        precondition(
            !end.overflow && end.partialValue <= file.bytes,
            "bytes up to \(end.partialValue) of \(piece.file), which has \(file.bytes)")
        precondition(file.user == peers[peer].user, "the body of another user")
        // READs of the same part may be answered in any order, and DATA without bytes names none of them.
        let exact = openReadIndex(of: peer) { $0 == piece.read.message }
        guard let index = exact ?? openReadIndex(for: piece.dataHead, of: peer) else {
            preconditionFailure("DATA \(piece.dataHead) without a READ, but \(peers[peer].openReads)")
        }
        precondition(
            piece.dataHead.body == piece.read.message.body && piece.dataHead.offset == piece.read.message.offset,
            "DATA \(piece.dataHead) for \(piece.read)")
        precondition(piece.maximumBytes <= piece.read.message.maximumBytes, "more bytes than the READ asked for")
        if refusesDeliveries {
            core.socketRefusedPiece(piece, by: client)
        } else if losesPieces {
            hasLostPieces = true
            if case .terminal = piece.dataHead.body {
                peers[peer].lostBodies.append(piece.dataHead.body)
                peers[peer].openReads.remove(at: index)
            }
            core.bodyPieceUnreadable(piece, by: client, now: now)
        } else {
            peers[peer].openReads.remove(at: index)
        }
    }

    private func openReadIndex(for data: BodyData, of peer: Int) -> Int? {
        openReadIndex(of: peer) { $0.body == data.body && $0.offset == data.offset }
    }

    /// Index of an open READ that an answer may be for. Of several, one that must be answered goes first.
    private func openReadIndex(of peer: Int, where isMeant: (BodyRead) -> Bool) -> Int? {
        let open = peers[peer].openReads
        return open.firstIndex { isMeant($0.read) && !$0.mayNeedNoAnswer } ?? open.firstIndex { isMeant($0.read) }
    }

    private mutating func handleEmptyData(_ data: BodyData, _ peer: Int) {
        guard let index = openReadIndex(for: data, of: peer) else {
            preconditionFailure("DATA \(data) without a READ, but \(peers[peer].openReads)")
        }
        if case .terminal(let sequence) = data.body, let terminal = peers[bodyOwner(ofReader: peer)].terminals[sequence]
        {
            precondition(data.offset >= terminal.length, "the end at \(data.offset) of \(terminal.length)")
        }
        peers[peer].openReads.remove(at: index)
    }

    private mutating func handleRefusal(_ data: BodyData, to peer: Int) {
        if let index = peers[peer].lostBodies.firstIndex(of: data.body), data.errorCode == "unknown-body" {
            peers[peer].lostBodies.remove(at: index)
            return
        }
        guard let currentRead, currentRead.peer == peer, currentRead.read.body == data.body,
            currentRead.read.offset == data.offset
        else {
            preconditionFailure("\(data) answers no READ")
        }
        switch data.errorCode {
        case "unknown-body": precondition(peers[peer].isPulling, "a session with paths has bodies to read")
        case "limit":
            precondition(readsHeldByCore(of: peer).count == WireLimits.openReadsPerSession, "the limit is too low")
        case "bad-message": precondition(!peers[peer].isPulling, "a session that pulls may send READ")
        default: preconditionFailure("\(data) has another code")
        }
        self.currentRead = nil
        peers[peer].openReads.removeLast()
    }

    private mutating func removeOpenReads(_ peer: Int, where isRemoved: (HandlerID, RequestID) -> Bool) {
        let terminals = peers[peer].terminals
        for reader in peers.indices where bodyOwner(ofReader: reader) == peer || reader == peer {
            let readsRemoved = bodyOwner(ofReader: reader) == peer
            peers[reader].openReads.removeAll {
                switch $0.read.body {
                case .terminal(let sequence):
                    readsRemoved && terminals[sequence].map { isRemoved($0.handler, $0.request) } ?? false
                case .request(let handler, let request): reader == peer && isRemoved(handler, request)
                }
            }
        }
    }

    /// Drops the READs of a growing body that ended.
    private mutating func removeUnanswerableReads(_ peer: Int, _ handler: HandlerID, _ request: RequestID) {
        let serial = openGeneration(handler, request, of: peer)
        peers[peer].openReads.removeAll {
            $0.read.body == .request(handler, request) && (serial == nil || $0.serial != serial)
        }
    }
}
