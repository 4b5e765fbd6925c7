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
    private static let codes = ["reset", "timeout", "too-large", "worker-failed", "cancelled"]

    /// A client: its connection and the READs that it has sent.
    struct Peer {
        var id: ClientID
        /// Token of the session.
        var token: SessionToken
        /// Letter of the user in URLs and names of files.
        let user: Character
        let pulls: Bool
        /// Whether it reads the bodies of the first client's terminals instead of its own.
        var readsOther = false
        var open: [OpenRead] = []
        /// READs of lost bodies, which will be refused.
        var lost: [BodyReference] = []
        /// Received terminals by number, except those that were in a file.
        var terminals: [UInt64: (handler: HandlerID, request: RequestID, length: Int)] = [:]
        var last: UInt64 = 0
        var acknowledged: UInt64 = 0
        /// Number of the last message.
        var number: UInt64 = 0
        var isClosed = false
    }

    /// A READ without an answer.
    struct OpenRead {
        let read: BodyRead
        /// Serial of the request whose body grows.
        var serial: UInt64?
        /// Whether the client has unsubscribed meanwhile.
        var mayBeVoid = false
    }

    struct Attempt {
        let id: AttemptID
        let worker: Int
        let user: Character
    }

    var core: BrokerCore
    private var choices: ByteSource
    private var now = Tick(nanoseconds: 0)
    var peers: [Peer] = []
    private var workers: [WorkerID] = []
    private var attempts: [Attempt] = []
    private var lastPeer: UInt64 = 0
    private var lastBody: UInt64 = 0
    /// Bytes of each file, as reported by a worker, and its user.
    private var files: [String: (bytes: Int, user: Character)] = [:]
    private var bodies: [BodyID: (bytes: Int, user: Character)] = [:]
    var isRefusing = false
    var losesPieces = false
    var hasLostPieces = false
    /// READ that the core is carrying out, and its sender.
    private var current: (peer: Int, read: BodyRead)?
    /// Codes of the ERRORs since the last READ.
    private var errors: [String] = []
    /// Client whose REMOVE the core is carrying out.
    private var remover: Int?

    static func run(_ bytes: [UInt8]) {
        var target = PullTarget(bytes)
        for _ in 0..<steps where !target.choices.isEmpty {
            target.step()
            target.check()
        }
        target.checkIdle()
    }

    private init(_ bytes: [UInt8]) {
        choices = ByteSource(bytes)
        var limits = CoreLimits()
        limits.requests = 64
        limits.origins.limit = 4
        limits.removalsPerPass = 1
        limits.departuresPerPass = 1
        limits.withdrawalsPerPass = 1
        limits.readsPerPass = 2
        limits.waitingBytes = 2_000
        limits.waitingTerminals = 5
        core = BrokerCore(
            workerLimits: WorkerLimits(broker: BrokerInstance(rawValue: 1), spool: "/spool"), secret: nil,
            limits: limits, answering: Queries.answer, seed: 1)
        for (user, pulls) in [("a", true), ("a", true), ("b", true), ("a", false)] as [(Character, Bool)] {
            peers.append(
                Peer(id: ClientID(rawValue: 0), token: SessionToken(high: 0, low: 0), user: user, pulls: pulls))
            connect(peers.count - 1, resumes: false)
        }
        for index in 0..<2 {
            workers.append(WorkerID(rawValue: 0))
            connectWorker(index)
        }
        pass()
    }

    // MARK: Steps

    private mutating func step() {
        let kind = choices.byte()
        let peer = choices.number(peers.count)
        switch kind % 20 {
        case 0, 1: fetch(peer)
        case 2, 3, 4, 5: read(peer)
        case 6, 7, 8: progress()
        case 9, 10: done()
        case 11: failed()
        case 12:
            let sequence = peers[peer].acknowledged + UInt64(choices.number(4))
            if sequence <= peers[peer].last {
                peers[peer].acknowledged = max(sequence, peers[peer].acknowledged)
                for reader in peers.indices where owner(reader) == peer {
                    peers[reader].open.removeAll {
                        if case .terminal(let number) = $0.read.body { number <= sequence } else { false }
                    }
                }
            }
            send(.acknowledge(sequence), peer)
        case 13: remove(.removeRequest(handler(), request()), peer)
        case 14:
            let pattern = HandlerPattern(choices.flag() ? "h/*" : handler().description)
            if let pattern { remove(.remove(pattern), peer) }
        case 15:
            let choice = choices.byte()
            reconnect(peer, resumes: choice & 1 != 0, reads: choice & 2 != 0)
            // A session of the first client that is not resumed has another token.
            if peer == 0, choice & 1 == 0 {
                for reader in peers.indices where owner(reader) != reader {
                    reconnect(reader, resumes: true, reads: choice & 4 != 0)
                }
            }
        case 16:
            isRefusing.toggle()
            if !isRefusing { for peer in peers { core.clientWritable(peer.id) } }
        case 17: losesPieces.toggle()
        case 18:
            let handler = handler()
            if choices.flag() { return send(.subscribe(.handler(handler)), peer) }
            send(.unsubscribe(.handler(handler)), peer)
            for index in peers[peer].open.indices { peers[peer].open[index].mayBeVoid = true }
        default:
            let choice = choices.byte()
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
        if kind < 200 { pass() }
    }

    private mutating func handler() -> HandlerID { Self.handlers[choices.number(Self.handlers.count)] }

    private mutating func request() -> RequestID { Self.requests[choices.number(Self.requests.count)] }

    private mutating func fetch(_ peer: Int) {
        var fetch = Fetch(
            handler: handler(), request: request(), url: "http://o/\(peers[peer].user)\(choices.number(4))")
        let options = choices.byte()
        fetch.options.streams = options & 1 == 1
        fetch.options.replacesHandler = options % 16 == 14
        fetch.options.subscribes = options % 16 != 12
        send(.fetch(fetch), peer)
    }

    private mutating func read(_ peer: Int) {
        let form = choices.byte()
        let body: BodyReference =
            form & 1 == 0
            ? .terminal(peers[owner(peer)].acknowledged &+ UInt64(form >> 6)) : .request(handler(), request())
        var read = BodyRead(body, offset: choices.size(), length: choices.size())
        if form & 2 != 0, let attempt = choices.element(of: attempts) { read.generation = Generation(attempt.id) }
        let bytes = ClientMessage.read(read).encoded()
        while core.isRemoving(peers[peer].id) { pass() }
        carryOut()
        errors = []
        do throws(WireError) {
            guard case .read(let decoded) = try ClientMessage(head: bytes) else { return }
            read = decoded
        } catch {
            core.receivedMalformed(error, from: peers[peer].id, now: now)
            carryOut()
            precondition(errors == [error.code.rawValue] || peers[peer].isClosed, "\(errors) for \(error)")
            return
        }
        var open = OpenRead(read: read)
        if case .request(let handler, let request) = body { open.serial = serial(handler, request, peer) }
        peers[peer].open.append(open)
        current = (peer, read)
        send(.read(read), peer)
        carryOut()
        current = nil
        precondition(errors.isEmpty, "\(errors) for \(read)")
    }

    private mutating func remove(_ message: ClientMessage, _ peer: Int) {
        carryOut()
        remover = peer
        send(message, peer)
        while core.isRemoving(peers[peer].id) { pass() }
        carryOut()
        remover = nil
    }

    private mutating func send(_ message: ClientMessage, _ peer: Int) {
        while core.isRemoving(peers[peer].id) { pass() }
        if message.canHaveNumber { peers[peer].number += 1 }
        core.received(
            message, number: message.canHaveNumber ? peers[peer].number : nil, from: peers[peer].id, now: now)
    }

    private mutating func report(_ message: WorkerMessage, _ attempt: Attempt) {
        lastBody += 1
        // The shell reports one form of a body.
        let isFiled = if case .done(let completion) = message { completion.file != nil } else { false }
        core.received(
            message, body: isFiled ? nil : BodyID(rawValue: lastBody), from: workers[attempt.worker], now: now)
    }

    private mutating func progress() {
        guard let attempt = choices.element(of: attempts) else { return }
        let received = choices.size()
        let file = "9-\(attempt.id).part"
        files[file] = (max(files[file]?.bytes ?? 0, received), attempt.user)
        let part = choices.number(8) == 0 ? nil : BodyPart(file: file, httpFields: [])
        let total = choices.flag() ? nil : received
        report(.progress(attempt.id, received: received, total: total, part: part), attempt)
    }

    private mutating func done() {
        guard let index = attempts.isEmpty ? nil : choices.number(attempts.count) else { return }
        let attempt = attempts.remove(at: index)
        var completion = Completion(attempt: attempt.id, status: choices.number(8) == 0 ? 503 : 200)
        completion.length = min(choices.size(), WireLimits.bodyBytes)
        let letters = String(repeating: "ab", count: 20) + (attempt.user == "a" ? "aaaaaaaa" : "bbbbbbbb")
        let digits = String(completion.length, radix: 16)
        completion.sha256 = letters + String(repeating: "0", count: 16 - digits.count) + digits
        if choices.number(4) != 0 { completion.file = completion.sha256 }
        if let file = completion.file { files[file] = (completion.length, attempt.user) }
        bodies[BodyID(rawValue: lastBody + 1)] = (completion.length, attempt.user)
        report(.done(completion), attempt)
    }

    private mutating func failed() {
        guard let index = attempts.isEmpty ? nil : choices.number(attempts.count) else { return }
        let attempt = attempts.remove(at: index)
        report(
            .failed(attempt.id, code: Self.codes[choices.number(Self.codes.count)], detail: nil, receivedBytes: 0),
            attempt)
    }

    // MARK: Connections

    /// Client whose terminals name the bodies that a client reads.
    func owner(_ peer: Int) -> Int { peers[peer].readsOther ? 0 : peer }

    private mutating func reconnect(_ peer: Int, resumes: Bool, reads: Bool) {
        while core.isRemoving(peers[peer].id) { pass() }
        core.clientLost(peers[peer].id, now: now)
        connect(peer, resumes: resumes, reads: reads)
    }

    private mutating func connect(_ peer: Int, resumes: Bool, reads: Bool = false) {
        lastPeer += 1
        peers[peer].id = ClientID(rawValue: lastPeer)
        peers[peer].open = []
        peers[peer].lost = []
        peers[peer].isClosed = false
        let token = SessionToken(high: 0, low: lastPeer)
        core.clientConnected(
            peers[peer].id, token: token,
            user: peers[peer].user == "a" ? nil : PrincipalName("uid:7"))
        var hello = Hello(window: peer == 0 ? 3 : 8)
        hello.isPulling = peers[peer].pulls
        hello.leaseMilliseconds = 2_000
        hello.token = resumes ? peers[peer].token : nil
        hello.bodiesOf = reads && peer != 0 ? peers[0].token : nil
        carryOut()
        send(.hello(hello), peer)
        carryOut()
    }

    private mutating func connectWorker(_ index: Int) {
        lastPeer += 1
        workers[index] = WorkerID(rawValue: lastPeer)
        core.workerConnected(workers[index], now: now)
        var ready = Ready(slots: 3)
        ready.pid = 9
        core.received(.ready(ready), body: nil, from: workers[index], now: now)
    }

    // MARK: The pass

    mutating func pass() {
        core.timePassed(now: now)
        core.dispatch(now: now)
        carryOut()
    }

    private mutating func carryOut() {
        while true {
            let actions = core.takeActions()
            if actions.isEmpty { return }
            var refused: Set<ClientID> = []
            for action in actions { carryOut(action, &refused) }
        }
    }

    private mutating func carryOut(_ action: Action, _ refused: inout Set<ClientID>) {
        switch action {
        case .client(.deliver(let client, let terminal, _)):
            guard take(terminal.sequence, by: client, &refused), let peer = index(of: client) else { return }
            let length = terminal.response?.length ?? 0
            if peers[peer].pulls, case .terminal(let reported)? = try? BrokerMessage(head: terminal.encoded()) {
                precondition(reported.response?.file == nil, "a session that pulls gets the path of a file")
                precondition(!terminal.hasFile || reported.response?.isPulled == true, "a body that cannot be read")
            }
            peers[peer].terminals[terminal.sequence] = (terminal.handler, terminal.request, length)
            dropVoid(peer, terminal.handler, terminal.request)
        case .client(.sendPiece(let client, let piece)): send(piece, to: client)
        case .client(.send(let client, let message)), .client(.reply(let client, let message, _, _)):
            if let peer = index(of: client) { received(message, peer) }
        case .client(.close(let client, _)):
            guard let peer = index(of: client) else { return }
            peers[peer].open = []
            peers[peer].isClosed = true
        case .spool(.spill(let body, let file)), .spool(.write(let body, let file)): files[file] = bodies[body]
        case .worker(.send(let worker, .job(let job))):
            guard let index = workers.firstIndex(of: worker) else { return }
            attempts.append(
                Attempt(id: job.attempt, worker: index, user: job.url.contains("/a") ? "a" : "b"))
        default: return
        }
    }

    private func index(of client: ClientID) -> Int? { peers.firstIndex { $0.id == client } }

    private mutating func take(_ sequence: UInt64, by client: ClientID, _ refused: inout Set<ClientID>) -> Bool {
        guard !refused.contains(client) else { return false }
        guard !isRefusing else {
            refused.insert(client)
            core.deliveryRefused(sequence, by: client)
            return false
        }
        if let peer = index(of: client) { peers[peer].last = max(peers[peer].last, sequence) }
        return true
    }

    private mutating func received(_ message: BrokerMessage, _ peer: Int) {
        switch message {
        case .welcome(let welcome):
            peers[peer].readsOther = welcome.readsOther
            precondition(!welcome.readsOther || peers[peer].user == peers[0].user, "the session of another user")
            if let token = welcome.token { peers[peer].token = token }
            if welcome.lastReceived == nil {
                (peers[peer].last, peers[peer].acknowledged, peers[peer].terminals) = (0, 0, [:])
            }
        case .data(let data) where data.error != nil: refused(data, peer)
        case .data(let data): answerEmpty(data, peer)
        case .error(let reply): errors.append(reply.code)
        case .requestRemoved(let handler, let request, _) where remover == peer:
            drop(peer) { $0 == handler && $1 == request }
        case .removed(let pattern, _) where remover == peer: drop(peer) { handler, _ in pattern.matches(handler) }
        default: return
        }
    }

    // MARK: Answers

    private mutating func send(_ piece: BodyPiece, to client: ClientID) {
        guard let peer = index(of: client) else { preconditionFailure("DATA for \(client), which has gone") }
        precondition((1...WireLimits.dataBytes).contains(piece.length), "\(piece.length) bytes in a DATA")
        let end = piece.data.offset.addingReportingOverflow(piece.length)
        guard let file = files[piece.file] else { preconditionFailure("\(piece.file) is no file of a worker") }
        precondition(
            !end.overflow && end.partialValue <= file.bytes,
            "bytes up to \(end.partialValue) of \(piece.file), which has \(file.bytes)")
        precondition(file.user == peers[peer].user, "the body of another user")
        // READs of the same part may be answered in any order, and DATA without bytes names none of them.
        let exact = openRead(of: peer) { $0 == piece.read.message }
        guard let index = exact ?? openRead(for: piece.data, of: peer) else {
            preconditionFailure("DATA \(piece.data) without a READ, but \(peers[peer].open)")
        }
        precondition(
            piece.data.body == piece.read.message.body && piece.data.offset == piece.read.message.offset,
            "DATA \(piece.data) for \(piece.read)")
        precondition(piece.length <= piece.read.message.length, "more bytes than the READ asked for")
        if isRefusing {
            core.pieceRefused(piece, by: client)
        } else if losesPieces {
            hasLostPieces = true
            if case .terminal = piece.data.body {
                peers[peer].lost.append(piece.data.body)
                peers[peer].open.remove(at: index)
            }
            core.pieceLost(piece, by: client, now: now)
        } else {
            peers[peer].open.remove(at: index)
        }
    }

    private func openRead(for data: BodyData, of peer: Int) -> Int? {
        openRead(of: peer) { $0.body == data.body && $0.offset == data.offset }
    }

    /// Index of an open READ that an answer may be for. Of several, one that must be answered goes first.
    private func openRead(of peer: Int, where isMeant: (BodyRead) -> Bool) -> Int? {
        let open = peers[peer].open
        return open.firstIndex { isMeant($0.read) && !$0.mayBeVoid } ?? open.firstIndex { isMeant($0.read) }
    }

    private mutating func answerEmpty(_ data: BodyData, _ peer: Int) {
        guard let index = openRead(for: data, of: peer) else {
            preconditionFailure("DATA \(data) without a READ, but \(peers[peer].open)")
        }
        if case .terminal(let sequence) = data.body, let terminal = peers[owner(peer)].terminals[sequence] {
            precondition(data.offset >= terminal.length, "the end at \(data.offset) of \(terminal.length)")
        }
        peers[peer].open.remove(at: index)
    }

    private mutating func refused(_ data: BodyData, _ peer: Int) {
        if let index = peers[peer].lost.firstIndex(of: data.body), data.error == "unknown-body" {
            peers[peer].lost.remove(at: index)
            return
        }
        guard let current, current.peer == peer, current.read.body == data.body, current.read.offset == data.offset
        else {
            preconditionFailure("\(data) answers no READ")
        }
        switch data.error {
        case "unknown-body": precondition(peers[peer].pulls, "a session with paths has bodies to read")
        case "limit": precondition(core(peer).count == WireLimits.openReads, "the limit is too low")
        case "bad-message": precondition(!peers[peer].pulls, "a session that pulls may send READ")
        default: preconditionFailure("\(data) has another code")
        }
        self.current = nil
        peers[peer].open.removeLast()
    }

    private mutating func drop(_ peer: Int, where isRemoved: (HandlerID, RequestID) -> Bool) {
        let terminals = peers[peer].terminals
        for reader in peers.indices where owner(reader) == peer || reader == peer {
            let readsRemoved = owner(reader) == peer
            peers[reader].open.removeAll {
                switch $0.read.body {
                case .terminal(let sequence):
                    readsRemoved && terminals[sequence].map { isRemoved($0.handler, $0.request) } ?? false
                case .request(let handler, let request): reader == peer && isRemoved(handler, request)
                }
            }
        }
    }

    /// Drops the READs of a growing body that ended.
    private mutating func dropVoid(_ peer: Int, _ handler: HandlerID, _ request: RequestID) {
        let serial = serial(handler, request, peer)
        peers[peer].open.removeAll {
            $0.read.body == .request(handler, request) && (serial == nil || $0.serial != serial)
        }
    }
}
