internal import DequeModule
internal import EarshotLoop
internal import Glibc
internal import Logging
internal import ZMTP

/// A Unix socket for ZeroMQ peers, with the connections on it.
///
/// The loss of a connection is reported once, after all messages that the peer sent before it.
final class StreamPort {
    /// Result of sending a message.
    enum Sent {
        case sent
        /// The peer has reached its bound of unsent messages.
        case wouldBlock
        /// The connection is lost.
        case unreachable
    }

    /// Kinds of messages, by their treatment when a peer does not read.
    enum Kind {
        /// Reply to the peer. With too many unread replies the broker stops reading from the peer.
        case reply
        /// Held back by the sender.
        case terminal
        /// Dropped.
        case progress
        /// Part of a body, held back by the sender.
        case data
    }

    typealias Peer = PortPeer

    /// Send buffer of a connection with pulled bodies, in bytes: two parts, so that the next one is sent while the client
    /// stores the first.
    private static let dataBufferBytes: Int32 = 512 << 10
    /// Time for a connection to close by itself after the end of its process, which a forked child can outlive. Also
    /// the time for the last message of a closed connection.
    private static let closeMilliseconds = 100
    /// Time for a large message to arrive while others wait for its memory. A local sender needs milliseconds.
    private static let frameTime = Duration.seconds(10)
    /// Interval of that check while a connection waits for memory.
    private static let framePause = Duration.seconds(1)

    private let loop: EventLoop
    private let listener: PortListener
    private let frameBytes: Int
    private let bounds: PortBounds
    private let memory: ConnectionMemory
    var admission: PortAdmission
    private var refusals: RefusedPeers
    private let gateways: GatewayProcesses
    private(set) var peers: [UInt64: Peer] = [:]
    private var processes: PeerProcesses?
    /// Peers with possible input or a lost connection, in the order of their turns.
    private var readyPeers: Deque<UInt64> = []
    private var unflushedPeers: [Peer] = []
    /// Peers of which no message is read.
    private var heldPeers: [UInt64] = []
    /// Deadlines of the first message, in order. Includes peers that have sent one since.
    private var silenceEnds: Deque<(peer: UInt64, at: LoopTime)> = []
    /// Whether the timer for incomplete messages is set. One timer serves all shortages of memory.
    private var checksFrames = false
    private var lastNumber: UInt64 = 0
    /// Number of messages taken since the caller last reset it.
    var takenMessages = 0

    /// Listens at `path`, which only this user can connect to until ``permit(_:)``.
    ///
    /// - Parameters:
    ///   - opened: Socket that listens there already; nil to create one.
    ///   - frameBytes: Maximum length of a frame in bytes.
    ///   - bounds: Bounds for unsent and incoming messages.
    ///   - gateways: Processes of the gateways.
    init(
        _ path: String, opened: Int32? = nil, _ loop: EventLoop, frameBytes: Int, bounds: PortBounds,
        connectionLimit: Int, gateways: GatewayProcesses = GatewayProcesses(), logger: Logger
    ) throws {
        self.loop = loop
        self.frameBytes = frameBytes
        self.bounds = bounds
        memory = ConnectionMemory(frameCapacity: bounds.frameBytes)
        admission = PortAdmission(connectionLimit: connectionLimit)
        self.gateways = gateways
        refusals = RefusedPeers(logger, path)
        listener = try PortListener(path, opened: opened, loop, logger)
        processes = PeerProcesses(loop) { [unowned self] peers in
            // Its last messages may still be unread, and the loss is reported after them. The kernel closes the
            // connection unless a child of the process keeps it open.
            for peer in peers { closeLater(peer) }
        }
        memory.onShortage = { [unowned self] in if !checksFrames { setFrameTimer() } }
    }

    // The end of one connection must not grant memory to another one here.
    deinit { memory.close() }

    /// Sets the other users that may connect. Connections of users that are no longer permitted are closed.
    func permit(_ others: UserList) throws(SystemError) {
        guard others != admission.users.otherUsers else { return }
        admission.users = PermittedUsers(others: others)
        memory.isShared = isShared
        try UnixSocket.setOpen(isShared, listener.path)
        for peer in peers.values where !peer.isRefused && !admission.users.permits(peer.uid, now: loop.now) {
            closeLater(peer.number)
        }
    }

    /// Whether users besides this one may connect.
    var isShared: Bool { admission.users.isShared }

    /// User ID of a peer; nil for this user, for root, and for a lost peer.
    func otherUser(of number: UInt64) -> UInt32? {
        peers[number].flatMap { PortAdmission.otherUser($0.uid) }
    }

    /// Whether a peer is a gateway's process, which has no rights without a proof.
    func isGateway(_ number: UInt64) -> Bool { peers[number]?.isGateway ?? false }

    /// Process ID of a peer according to the kernel; 0 if unknown.
    func pid(of number: UInt64) -> Int32 { peers[number]?.pid ?? 0 }

    /// Returns a separate handle for a peer's process; nil if it has ended.
    func process(of number: UInt64) -> ProcessDescriptor? { peers[number].flatMap { processes?.liveProcess($0.pid) } }

    /// Kills a peer's process.
    func kill(_ number: UInt64) {
        if let pid = peers[number]?.pid { processes?.kill(pid) }
    }

    /// Closes a peer's connection after a delay for its last message. The loss is reported as usual.
    func close(_ number: UInt64) { closeLater(number) }

    private func closeLater(_ number: UInt64) {
        guard peers[number] != nil else { return }
        _ = loop.setTimer(after: .milliseconds(Self.closeMilliseconds)) { [unowned self] in
            if let peer = peers[number] { UnixSocket.shutDown(peer.stream.descriptor) }
        }
    }

    /// Whether the last pass left work.
    var hasPending: Bool { !readyPeers.isEmpty || listener.hasWaitingConnections }

    // MARK: Receiving

    /// Processes available input within this pass's budget.
    ///
    /// - Parameter handle: Returns the number of messages that an event counts in its sender's turn.
    func take(_ handle: (PortEvent) -> Int) {
        accept()
        var pass = PassBudget(isShared: admission.users.isShared)
        // Each peer that is ready now has one turn, so messages to many peers are written once for each.
        for _ in 0..<readyPeers.count {
            guard !pass.isSpent, let number = readyPeers.popFirst() else { break }
            guard let peer = peers[number] else { continue }
            let user = PortAdmission.otherUser(peer.uid)
            guard !pass.isSpent(by: user) else {
                readyPeers.append(number)
                continue
            }
            peer.isReady = false
            let turn = pass.turn
            pass.spend(turn, takeTurn(peer, turn, handle), by: user)
        }
    }

    /// - Returns: The unused part of the turn.
    private func takeTurn(_ peer: Peer, _ share: Turn, _ handle: (PortEvent) -> Int) -> Turn {
        // Backpressure: a peer that does not read its replies is not read, and its messages wait in the kernel.
        let isReading = !peer.isHeld && !hasUnreadReplies(peer.stream)
        if peer.stream.isReading != isReading { peer.stream.isReading = isReading }
        guard isReading else { return share }
        var turn = share
        while !peer.isHeld, let message = peer.stream.next(&turn) {
            let bytes = message.head.count + (message.body?.count ?? 0)
            if peer.isRefused {
                answerRefused(peer)
                continue
            }
            if !peer.isKnown {
                peer.isKnown = true
                _ = handle(.connected(peer: peer.number))
            }
            let event: PortEvent =
                message.isLonger
                ? .surplus(peer: peer.number, head: message.head)
                : .message(peer: peer.number, head: message.head, body: message.body)
            let weight = max(handle(event), 1 + bytes / bounds.bytesPerMessage)
            // The stream has counted one item.
            turn.spend(weight - 1)
            takenMessages += weight
        }
        if peer.isHeld { return turn }
        if peer.stream.isEnded {
            lose(peer, handle)
        } else if peer.stream.hasPending {
            scheduleTurn(peer)
        }
        return turn
    }

    private func answerRefused(_ peer: Peer) {
        guard !peer.isAnswered else { return }
        peer.isAnswered = true
        _ = send(RefusedPeers.answer(to: peer.uid), to: peer.number)
        closeLater(peer.number)
    }

    private func lose(_ peer: Peer, _ handle: (PortEvent) -> Int) {
        peers[peer.number] = nil
        refusals.forget(peer.number)
        admission.disconnected(peer.uid)
        if let violation = peer.stream.violation { refuse(violation) }
        let process = processes?.liveProcess(peer.pid)
        processes?.forget(peer.number, of: peer.pid)
        if peer.isKnown { _ = handle(.lost(peer: peer.number, pid: peer.pid, process: process)) }
    }

    /// Gives a peer a turn in the next pass.
    func scheduleTurn(_ peer: PortPeer) {
        guard !peer.isReady else { return }
        peer.isReady = true
        readyPeers.append(peer.number)
    }

    // MARK: Connections

    /// Whether the path still refers to the listening socket.
    var isInPlace: Bool { listener.isInPlace }

    /// Listens at the path again. The folder must belong to this user alone. Existing connections continue, and those
    /// in the old socket's backlog are accepted.
    func listenAgain() throws {
        try listener.listenAgain(isOpen: isShared) { accept() }
    }

    private func accept() {
        let error = listener.accept { descriptor throws(SystemError) in try admit(descriptor) }
        if let error { refuse("\(error)") }
    }

    private func admit(_ descriptor: Int32) throws(SystemError) {
        guard let credentials = UnixSocket.credentials(of: descriptor) else { return UnixSocket.close(descriptor) }
        var isRefused = false
        switch admission.verdict(
            on: credentials, descriptor, own: peers.values.count { $0.pid == credentials.pid }, now: loop.now)
        {
        case .admitted: break
        case .refused(let reason):
            isRefused = true
            refuse(reason)
            guard refusals.hasRoom else { return UnixSocket.close(descriptor) }
        case .closed(let reason):
            UnixSocket.close(descriptor)
            return refuse(reason)
        }
        lastNumber += 1
        let number = lastNumber
        let stream = try MessageStream(
            descriptor, as: .router, frameBytes: isRefused ? RefusedPeers.frameBytes : frameBytes,
            mostMessages: bounds.messages, memory: isRefused ? refusals.memory : memory,
            owner: .init(process: credentials.pid, user: PortAdmission.otherUser(credentials.uid)), loop: loop
        ) { [unowned self] in
            if let peer = peers[number] { scheduleTurn(peer) }
        }
        let peer = Peer(
            number, stream, credentials, isRefused: isRefused,
            isGateway: gateways.contains(credentials.pid, descriptor))
        if isRefused { refusals.insert(number) }
        admission.connected(credentials.uid)
        peers[number] = peer
        if silenceEnds.isEmpty { setSilenceTimer(after: bounds.silence) }
        silenceEnds.append((number, loop.now.advanced(by: bounds.silence)))
        stream.flush()
        if processes?.watch(peer.pid, for: number, descriptor) == false { closeLater(number) }
    }

    // MARK: Silence

    private func setSilenceTimer(after pause: Duration) {
        _ = loop.setTimer(after: pause) { [unowned self] in endSilence() }
    }

    /// Closes connections that have sent no message in time. One timer serves all of them.
    private func endSilence() {
        while let first = silenceEnds.first, first.at <= loop.now || peers[first.peer]?.isKnown != false {
            silenceEnds.removeFirst()
            if let peer = peers[first.peer], !peer.isKnown { UnixSocket.shutDown(peer.stream.descriptor) }
        }
        if let next = silenceEnds.first { setSilenceTimer(after: next.at.since(loop.now)) }
    }

    // MARK: Half-sent messages

    private func setFrameTimer() {
        checksFrames = true
        _ = loop.setTimer(after: Self.framePause) { [unowned self] in endSlowFrames() }
    }

    /// Closes connections that hold memory for an incomplete message for too long while others wait.
    private func endSlowFrames() {
        checksFrames = false
        guard memory.isShort else { return }
        for peer in peers.values {
            guard let since = peer.stream.reservedAt, loop.now.since(since) >= Self.frameTime else { continue }
            refuse("a large message that took longer than \(Self.frameTime)")
            UnixSocket.shutDown(peer.stream.descriptor)
        }
        setFrameTimer()
    }

    private func refuse(_ reason: String) { refusals.log(reason, now: loop.now) }

    // MARK: Sending

    /// Queues a head and an optional body; ``flush()`` sends them.
    func send(_ head: [UInt8], _ body: [UInt8]? = nil, to number: UInt64, as kind: Kind = .reply) -> Sent {
        guard let peer = peers[number], !peer.stream.isEnded else { return .unreachable }
        guard hasRoom(for: kind, peer) else { return .wouldBlock }
        let message = ZMTP.Message(head: head, body: body)
        guard peer.stream.send(message, isReply: kind == .reply) else { return .wouldBlock }
        noteOutput(peer)
        return .sent
    }

    /// Queues a head and a part of a body; ``flush()`` sends them.
    func send(_ head: [UInt8], _ part: FilePart, to number: UInt64) -> Sent {
        guard let peer = peers[number], !peer.stream.isEnded else { return .unreachable }
        guard hasRoom(for: .data, peer) else { return .wouldBlock }
        if !peer.hasLargeBuffer {
            peer.hasLargeBuffer = true
            UnixSocket.setSendBuffer(peer.stream.descriptor, bytes: Self.dataBufferBytes)
        }
        guard peer.stream.send(head, part) else { return .wouldBlock }
        noteOutput(peer)
        return .sent
    }

    private func hasRoom(for kind: Kind, _ peer: Peer) -> Bool {
        if takes(kind, peer.stream) { return true }
        // Only unread output counts, not the output queued in this pass.
        flush(peer)
        return takes(kind, peer.stream)
    }

    private func noteOutput(_ peer: Peer) {
        if !peer.isDirty {
            peer.isDirty = true
            unflushedPeers.append(peer)
        }
    }

    /// Returns whether a peer accepts messages again after `.wouldBlock`; true for a lost peer. ``flush()`` may change
    /// this, and no event follows from that. The loop wakes up when it changes later.
    func hasRoom(for number: UInt64) -> Bool {
        guard let stream = peers[number]?.stream else { return true }
        // Below the bounds of all kinds, so that such a peer is never refused again at once.
        return stream.unsentBytes < bounds.ownBytes && stream.unsentMessages <= bounds.deliveries / 2
    }

    /// Returns whether a peer accepts a part of a body now; true for a lost peer.
    func takesData(for number: UInt64) -> Bool {
        peers[number].map { hasRoom(for: .data, $0) } ?? true
    }

    private func takes(_ kind: Kind, _ stream: MessageStream) -> Bool {
        switch kind {
        case .reply: true
        case .terminal: isBelow(bounds.terminalBytes, stream)
        case .progress: isBelow(bounds.progressBytes, stream)
        case .data: isBelow(bounds.dataBytes, stream)
        }
    }

    private func isBelow(_ most: Int, _ stream: MessageStream) -> Bool {
        stream.unsentMessages < bounds.deliveries
            && stream.unsentBytes < (memory.unsentBytes < bounds.bytesOfAll ? most : bounds.ownBytes)
    }

    private func hasUnreadReplies(_ stream: MessageStream) -> Bool {
        let most = memory.unsentReplyBytes < bounds.replyBytesOfAll ? bounds.replyBytes : bounds.ownBytes
        return stream.unsentReplyBytes >= most || stream.unsentReplies >= bounds.replies
    }

    /// Sends the messages queued in this pass.
    func flush() {
        for peer in unflushedPeers {
            peer.isDirty = false
            flush(peer)
        }
        unflushedPeers.removeAll(keepingCapacity: true)
    }

    private func flush(_ peer: Peer) {
        peer.stream.flush()
        // If all replies left, no event continues the reading.
        if !peer.stream.isReading, !peer.isHeld, !hasUnreadReplies(peer.stream) { scheduleTurn(peer) }
    }
}

/// Peers with unread messages, and those of which none is read while their last one is carried out in several passes.
extension StreamPort {
    /// Whether a peer may have sent more than its last turn processed.
    func hasUnread(_ number: UInt64) -> Bool { peers[number]?.isReady ?? false }

    /// Reads no further message of a peer, whose last one is still being carried out. Its loss is reported after them.
    func pauseReading(_ number: UInt64) {
        guard let peer = peers[number], !peer.isHeld else { return }
        peer.isHeld = true
        heldPeers.append(number)
    }

    /// Reads messages of held peers again.
    ///
    /// - Parameter isBusy: Whether a peer's last message is still being carried out.
    func releaseHeld(unless isBusy: (UInt64) -> Bool) {
        guard !heldPeers.isEmpty else { return }
        for number in heldPeers where !isBusy(number) {
            guard let peer = peers[number] else { continue }
            peer.isHeld = false
            scheduleTurn(peer)
        }
        heldPeers.removeAll { peers[$0]?.isHeld != true }
    }
}

/// One connection of a `StreamPort`.
final class PortPeer {
    let number: UInt64
    let stream: MessageStream
    let pid: Int32
    let uid: UInt32
    /// Whether its user is not permitted. It gets one answer, and its messages are discarded.
    let isRefused: Bool
    /// Whether its process is a gateway.
    let isGateway: Bool
    /// Whether the port has answered its first message.
    var isAnswered = false
    /// Whether it has sent a message and its connection was reported.
    var isKnown = false
    /// Whether it is queued in `readyPeers`.
    var isReady = false
    /// Whether none of its messages is read until ``StreamPort/releaseHeld(unless:)``.
    var isHeld = false
    /// Whether it is queued in `unflushedPeers`, with unsent output.
    var isDirty = false
    /// Whether its connection has a send buffer for parts of bodies.
    var hasLargeBuffer = false

    init(
        _ number: UInt64, _ stream: MessageStream, _ credentials: UnixSocket.Credentials, isRefused: Bool,
        isGateway: Bool
    ) {
        self.number = number
        self.stream = stream
        pid = credentials.pid
        uid = credentials.uid
        self.isRefused = isRefused
        self.isGateway = isGateway
    }
}

/// Event of a port. For each peer, the messages precede the loss.
enum PortEvent {
    case connected(peer: UInt64)
    case message(peer: UInt64, head: [UInt8], body: [UInt8]?)
    /// A message with more frames than the protocol allows.
    case surplus(peer: UInt64, head: [UInt8])
    /// `pid`: process ID of the peer; 0 if unknown. `process`: handle of the process if it is still alive.
    case lost(peer: UInt64, pid: Int32, process: ProcessDescriptor?)
}
