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
    enum SendResult {
        case sent
        /// The peer has reached its bound of unsent messages.
        case wouldBlock
        /// The connection is lost.
        case unreachable
    }

    /// Kinds of messages, by their treatment when a peer does not read.
    enum MessageKind {
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

    /// Send buffer of a connection with pulled bodies, in bytes: two parts, so that the next one is sent while the
    /// client stores the first.
    private static let dataSendBufferBytes: Int32 = 512 << 10
    /// Time for a connection to close by itself after the end of its process, which a forked child can outlive. Also
    /// the time for the last message of a closed connection.
    private static let closeDelayMilliseconds = 100
    /// Time for a large message to arrive while others wait for its memory. A local sender needs milliseconds.
    private static let incompleteFrameTimeout = Duration.seconds(10)
    /// Interval of that check while a connection waits for memory.
    private static let incompleteFrameCheckInterval = Duration.seconds(1)

    private let loop: EventLoop
    private let listener: PortListener
    private let frameBytes: Int
    private let bounds: PortBounds
    private let memory: ConnectionMemory
    var admission: PortAdmission
    private var refusedPeers: RefusedPeers
    private let gateways: GatewayProcesses
    private(set) var peers: [UInt64: Peer] = [:]
    private var processes: PeerProcesses?
    /// Peers with possible input or a lost connection, in the order of their turns.
    private var readyPeers: Deque<UInt64> = []
    private var unflushedPeers: [Peer] = []
    /// Peers of which no message is read.
    private var pausedPeers: [UInt64] = []
    /// Deadlines of the first message, in order. Includes peers that have sent one since.
    private var firstMessageDeadlines: Deque<(peer: UInt64, at: LoopTime)> = []
    /// Whether the timer for incomplete messages is set. One timer serves all shortages of memory.
    private var isFrameTimerSet = false
    private var lastNumber: UInt64 = 0
    /// Number of messages taken since the caller last reset it.
    var processedMessageCount = 0

    /// Listens at `path`, which only this user can connect to until ``permitUsers(_:)``.
    ///
    /// - Parameters:
    ///   - inheritedSocket: Socket that listens there already; nil to create one.
    ///   - frameBytes: Maximum length of a frame in bytes.
    ///   - bounds: Bounds for unsent and incoming messages.
    ///   - gateways: Processes of the gateways.
    init(
        _ path: String, inheritedSocket: Int32? = nil, _ loop: EventLoop, frameBytes: Int, bounds: PortBounds,
        connectionLimit: Int, gateways: GatewayProcesses = GatewayProcesses(), logger: Logger
    ) throws {
        self.loop = loop
        self.frameBytes = frameBytes
        self.bounds = bounds
        memory = ConnectionMemory(frameCapacity: bounds.incompleteFrameBytes)
        admission = PortAdmission(connectionLimit: connectionLimit)
        self.gateways = gateways
        refusedPeers = RefusedPeers(logger, path)
        listener = try PortListener(path, inheritedSocket: inheritedSocket, loop, logger)
        processes = PeerProcesses(loop) { [unowned self] peers in
            // Its last messages may still be unread, and the loss is reported after them. The kernel closes the
            // connection unless a child of the process keeps it open.
            for peer in peers { closeAfterDelay(peer) }
        }
        memory.onMemoryShortage = { [unowned self] in if !isFrameTimerSet { setFrameTimer() } }
    }

    // The end of one connection must not grant memory to another one here.
    deinit { memory.close() }

    /// Sets the other users that may connect. Connections of users that are no longer permitted are closed.
    func permitUsers(_ others: UserList) throws(SystemError) {
        guard others != admission.permittedUsers.otherUsers else { return }
        admission.permittedUsers = PermittedUsers(otherUsers: others)
        memory.hasOtherUsers = permitsOtherUsers
        try UnixSocket.setOpenToAllUsers(permitsOtherUsers, path: listener.socketPath)
        for peer in peers.values where !peer.isRefused && !admission.permittedUsers.permits(peer.uid, now: loop.now) {
            closeAfterDelay(peer.number)
        }
    }

    /// Whether users besides this one may connect.
    var permitsOtherUsers: Bool { admission.permittedUsers.permitsOtherUsers }

    /// User ID of a peer; nil for this user, for root, and for a lost peer.
    func userUnlessAdministrator(of number: UInt64) -> UInt32? {
        peers[number].flatMap { PortAdmission.userUnlessAdministrator($0.uid) }
    }

    /// Whether a peer is a gateway's process, which has no rights without a proof.
    func isGateway(_ number: UInt64) -> Bool { peers[number]?.isGateway ?? false }

    /// Process ID of a peer according to the kernel; 0 if unknown.
    func pid(of number: UInt64) -> Int32 { peers[number]?.pid ?? 0 }

    /// Returns a separate handle for a peer's process; nil if it has ended.
    func liveProcess(of number: UInt64) -> ProcessDescriptor? {
        peers[number].flatMap { processes?.liveProcess(pid: $0.pid) }
    }

    /// Kills a peer's process.
    func kill(_ number: UInt64) {
        if let pid = peers[number]?.pid { processes?.kill(pid) }
    }

    /// Closes a peer's connection after a delay for its last message. The loss is reported as usual.
    func close(_ number: UInt64) { closeAfterDelay(number) }

    private func closeAfterDelay(_ number: UInt64) {
        guard peers[number] != nil else { return }
        _ = loop.setTimer(after: .milliseconds(Self.closeDelayMilliseconds)) { [unowned self] in
            if let peer = peers[number] { UnixSocket.shutDown(peer.stream.descriptor) }
        }
    }

    /// Whether the last pass left work.
    var hasPendingInput: Bool { !readyPeers.isEmpty || listener.mayHavePendingConnections }

    // MARK: Receiving

    /// Processes available input within this pass's budget.
    ///
    /// - Parameter handle: Returns the number of messages that an event counts in its sender's turn.
    func processInput(_ handle: (PortEvent) -> Int) {
        accept()
        var pass = PassBudget(isSharedPort: admission.permittedUsers.permitsOtherUsers)
        // Each peer that is ready now has one turn, so messages to many peers are written once for each.
        for _ in 0..<readyPeers.count {
            guard !pass.isExhausted, let number = readyPeers.popFirst() else { break }
            guard let peer = peers[number] else { continue }
            let user = PortAdmission.userUnlessAdministrator(peer.uid)
            guard !pass.isExhausted(for: user) else {
                readyPeers.append(number)
                continue
            }
            peer.isInReadyQueue = false
            let turn = pass.nextTurn
            pass.spend(turn, unused: takeTurn(peer, turn, handle), by: user)
        }
    }

    /// - Returns: The unused part of the turn.
    private func takeTurn(_ peer: Peer, _ share: Turn, _ handle: (PortEvent) -> Int) -> Turn {
        // Backpressure: a peer that does not read its replies is not read, and its messages wait in the kernel.
        let isReading = !peer.isReadingPaused && !hasUnreadReplies(peer.stream)
        if peer.stream.isReading != isReading { peer.stream.isReading = isReading }
        guard isReading else { return share }
        var turn = share
        while !peer.isReadingPaused, let message = peer.stream.next(&turn) {
            let bytes = message.head.count + (message.body?.count ?? 0)
            if peer.isRefused {
                answerRefused(peer)
                continue
            }
            if !peer.isReported {
                peer.isReported = true
                _ = handle(.connected(peer: peer.number))
            }
            let event: PortEvent =
                message.hadSurplusFrames
                ? .excessFrames(peer: peer.number, head: message.head)
                : .message(peer: peer.number, head: message.head, body: message.body)
            let weight = max(handle(event), 1 + bytes / bounds.bytesPerCountedMessage)
            // The stream has counted one item.
            turn.spendItems(weight - 1)
            processedMessageCount += weight
        }
        if peer.isReadingPaused { return turn }
        if peer.stream.isEnded {
            removeLostPeer(peer, handle)
        } else if peer.stream.mayHavePendingMessage {
            scheduleTurn(peer)
        }
        return turn
    }

    private func answerRefused(_ peer: Peer) {
        guard !peer.hasFirstAnswer else { return }
        peer.hasFirstAnswer = true
        _ = send(RefusedPeers.answerHead(to: peer.uid), to: peer.number)
        closeAfterDelay(peer.number)
    }

    private func removeLostPeer(_ peer: Peer, _ handle: (PortEvent) -> Int) {
        peers[peer.number] = nil
        refusedPeers.forget(peer.number)
        admission.recordDisconnection(of: peer.uid)
        if let violation = peer.stream.violation { logRefusal(violation) }
        let process = processes?.liveProcess(pid: peer.pid)
        processes?.stopWatching(for: peer.number, pid: peer.pid)
        if peer.isReported { _ = handle(.lost(peer: peer.number, pid: peer.pid, process: process)) }
    }

    /// Schedules a turn of a peer in the next pass.
    func scheduleTurn(_ peer: PortPeer) {
        guard !peer.isInReadyQueue else { return }
        peer.isInReadyQueue = true
        readyPeers.append(peer.number)
    }

    // MARK: Connections

    /// Whether the path still refers to the listening socket.
    var isInPlace: Bool { listener.isInPlace }

    /// Listens at the path again. The folder must belong to this user alone. Existing connections continue, and those
    /// in the old socket's backlog are accepted.
    func recreateListener() throws {
        try listener.recreateListener(isOpen: permitsOtherUsers) { accept() }
    }

    private func accept() {
        let error = listener.acceptPendingConnections { descriptor throws(SystemError) in try admit(descriptor) }
        if let error { logRefusal("\(error)") }
    }

    private func admit(_ descriptor: Int32) throws(SystemError) {
        guard let credentials = UnixSocket.credentials(of: descriptor) else { return UnixSocket.close(descriptor) }
        var isRefused = false
        switch admission.verdict(
            on: credentials, descriptor: descriptor, ownConnections: peers.values.count { $0.pid == credentials.pid },
            now: loop.now)
        {
        case .admitted: break
        case .refused(let reason):
            isRefused = true
            logRefusal(reason)
            guard refusedPeers.hasRoom else { return UnixSocket.close(descriptor) }
        case .closedWithoutAnswer(let reason):
            UnixSocket.close(descriptor)
            return logRefusal(reason)
        }
        lastNumber += 1
        let number = lastNumber
        let stream = try MessageStream(
            descriptor, as: .router, frameBytes: isRefused ? RefusedPeers.frameBytes : frameBytes,
            maximumMessages: bounds.maximumUnsentMessages, memory: isRefused ? refusedPeers.memory : memory,
            owner: .init(process: credentials.pid, user: PortAdmission.userUnlessAdministrator(credentials.uid)),
            loop: loop
        ) { [unowned self] in
            if let peer = peers[number] { scheduleTurn(peer) }
        }
        let peer = Peer(
            number, stream, credentials, isRefused: isRefused,
            isGateway: gateways.madeConnection(pid: credentials.pid, socket: descriptor))
        if isRefused { refusedPeers.insert(number) }
        admission.recordConnection(of: credentials.uid)
        peers[number] = peer
        if firstMessageDeadlines.isEmpty { setFirstMessageTimer(after: bounds.firstMessageTimeout) }
        firstMessageDeadlines.append((number, loop.now.advanced(by: bounds.firstMessageTimeout)))
        stream.flush()
        if processes?.watch(pid: peer.pid, for: number, socket: descriptor) == false { closeAfterDelay(number) }
    }

    // MARK: Silence

    private func setFirstMessageTimer(after pause: Duration) {
        _ = loop.setTimer(after: pause) { [unowned self] in closeSilentConnections() }
    }

    /// Closes connections that have sent no message in time. One timer serves all of them.
    private func closeSilentConnections() {
        while let first = firstMessageDeadlines.first, first.at <= loop.now || peers[first.peer]?.isReported != false {
            firstMessageDeadlines.removeFirst()
            if let peer = peers[first.peer], !peer.isReported { UnixSocket.shutDown(peer.stream.descriptor) }
        }
        if let next = firstMessageDeadlines.first { setFirstMessageTimer(after: next.at.since(loop.now)) }
    }

    // MARK: Half-sent messages

    private func setFrameTimer() {
        isFrameTimerSet = true
        _ = loop.setTimer(after: Self.incompleteFrameCheckInterval) { [unowned self] in closeStalledFrames() }
    }

    /// Closes connections that hold memory for an incomplete message for too long while others wait.
    private func closeStalledFrames() {
        isFrameTimerSet = false
        guard memory.isMemoryShort else { return }
        for peer in peers.values {
            guard let since = peer.stream.reservedAt, loop.now.since(since) >= Self.incompleteFrameTimeout else {
                continue
            }
            logRefusal("a large message that took longer than \(Self.incompleteFrameTimeout)")
            UnixSocket.shutDown(peer.stream.descriptor)
        }
        setFrameTimer()
    }

    private func logRefusal(_ reason: String) { refusedPeers.logRefusal(reason, now: loop.now) }

    // MARK: Sending

    /// Queues a head and an optional body; ``flush()`` sends them.
    func send(_ head: [UInt8], _ body: [UInt8]? = nil, to number: UInt64, as kind: MessageKind = .reply) -> SendResult {
        guard let peer = peers[number], !peer.stream.isEnded else { return .unreachable }
        guard hasRoom(for: kind, peer: peer) else { return .wouldBlock }
        let message = ZMTP.Message(head: head, body: body)
        guard peer.stream.send(message, isReply: kind == .reply) else { return .wouldBlock }
        enqueueForFlush(peer)
        return .sent
    }

    /// Queues a head and a part of a body; ``flush()`` sends them.
    func send(_ head: [UInt8], _ part: FilePart, to number: UInt64) -> SendResult {
        guard let peer = peers[number], !peer.stream.isEnded else { return .unreachable }
        guard hasRoom(for: .data, peer: peer) else { return .wouldBlock }
        if !peer.hasLargeSendBuffer {
            peer.hasLargeSendBuffer = true
            UnixSocket.setSendBuffer(peer.stream.descriptor, bytes: Self.dataSendBufferBytes)
        }
        guard peer.stream.send(head, part) else { return .wouldBlock }
        enqueueForFlush(peer)
        return .sent
    }

    private func hasRoom(for kind: MessageKind, peer: Peer) -> Bool {
        if accepts(kind, stream: peer.stream) { return true }
        // Only unread output counts, not the output queued in this pass.
        flush(peer)
        return accepts(kind, stream: peer.stream)
    }

    private func enqueueForFlush(_ peer: Peer) {
        if !peer.isInFlushQueue {
            peer.isInFlushQueue = true
            unflushedPeers.append(peer)
        }
    }

    /// Returns whether a peer accepts messages again after `.wouldBlock`; true for a lost peer. ``flush()`` may change
    /// this, and no event follows from that. The loop wakes up when it changes later.
    func hasRoom(for number: UInt64) -> Bool {
        guard let stream = peers[number]?.stream else { return true }
        // Below the bounds of all kinds, so that such a peer is never refused again at once.
        return stream.unsentBytes < bounds.guaranteedBytesPerPeer
            && stream.unsentMessages <= bounds.maximumUnsentDeliveries / 2
    }

    /// Returns whether a peer accepts a part of a body now; true for a lost peer.
    func acceptsData(for number: UInt64) -> Bool {
        peers[number].map { hasRoom(for: .data, peer: $0) } ?? true
    }

    private func accepts(_ kind: MessageKind, stream: MessageStream) -> Bool {
        switch kind {
        case .reply: true
        case .terminal: isBelowLimit(bounds.maximumTerminalBytes, stream: stream)
        case .progress: isBelowLimit(bounds.maximumProgressBytes, stream: stream)
        case .data: isBelowLimit(bounds.maximumDataBytes, stream: stream)
        }
    }

    private func isBelowLimit(_ maximumBytes: Int, stream: MessageStream) -> Bool {
        let limit = memory.unsentBytes < bounds.maximumTotalBytes ? maximumBytes : bounds.guaranteedBytesPerPeer
        return stream.unsentMessages < bounds.maximumUnsentDeliveries && stream.unsentBytes < limit
    }

    private func hasUnreadReplies(_ stream: MessageStream) -> Bool {
        let maximumBytes =
            memory.unsentReplyBytes < bounds.maximumTotalReplyBytes
            ? bounds.maximumReplyBytes : bounds.guaranteedBytesPerPeer
        return stream.unsentReplyBytes >= maximumBytes || stream.unsentReplies >= bounds.maximumUnreadReplies
    }

    /// Sends the messages queued in this pass.
    func flush() {
        for peer in unflushedPeers {
            peer.isInFlushQueue = false
            flush(peer)
        }
        unflushedPeers.removeAll(keepingCapacity: true)
    }

    private func flush(_ peer: Peer) {
        peer.stream.flush()
        // If all replies left, no event continues the reading.
        if !peer.stream.isReading, !peer.isReadingPaused, !hasUnreadReplies(peer.stream) { scheduleTurn(peer) }
    }
}

/// Peers with unread messages, and those of which none is read while their last one is carried out in several passes.
extension StreamPort {
    /// Whether a peer may have sent more than its last turn processed.
    func mayHaveUnreadInput(_ number: UInt64) -> Bool { peers[number]?.isInReadyQueue ?? false }

    /// Stops reading from a peer whose last message is still being carried out. Its loss is reported after its
    /// messages.
    func pauseReading(_ number: UInt64) {
        guard let peer = peers[number], !peer.isReadingPaused else { return }
        peer.isReadingPaused = true
        pausedPeers.append(number)
    }

    /// Resumes reading from paused peers.
    ///
    /// - Parameter isBusy: Whether a peer's last message is still being carried out.
    func resumeReading(unless isBusy: (UInt64) -> Bool) {
        guard !pausedPeers.isEmpty else { return }
        for number in pausedPeers where !isBusy(number) {
            guard let peer = peers[number] else { continue }
            peer.isReadingPaused = false
            scheduleTurn(peer)
        }
        pausedPeers.removeAll { peers[$0]?.isReadingPaused != true }
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
    var hasFirstAnswer = false
    /// Whether it has sent a message and its connection was reported.
    var isReported = false
    /// Whether it is queued in `readyPeers`.
    var isInReadyQueue = false
    /// Whether none of its messages is read until ``StreamPort/resumeReading(unless:)``.
    var isReadingPaused = false
    /// Whether it is queued in `unflushedPeers`, with unsent output.
    var isInFlushQueue = false
    /// Whether its connection has a send buffer for parts of bodies.
    var hasLargeSendBuffer = false

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
    case excessFrames(peer: UInt64, head: [UInt8])
    /// `pid`: process ID of the peer; 0 if unknown. `process`: handle of the process if it is still alive.
    case lost(peer: UInt64, pid: Int32, process: ProcessDescriptor?)
}
