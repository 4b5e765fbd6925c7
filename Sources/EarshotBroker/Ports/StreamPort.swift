internal import DequeModule
internal import EarshotLoop
internal import Glibc
internal import Logging
internal import ZMTP

/// A Unix socket that ZeroMQ peers connect to, and the connections on it: who they are, what they say, when they are
/// gone.
///
/// A connection's end is told once, and only after what the connection had sent before was handed out.
final class StreamPort {
    /// What became of a message.
    enum Sent {
        case sent
        /// The peer has not read as many as may wait for it.
        case wouldBlock
        /// The peer is gone.
        case unreachable
    }

    /// Kinds of messages, by what happens when a peer does not read them.
    enum Kind {
        /// Answers the peer, which is not read from while too many wait.
        case reply
        /// Waits at the sender.
        case terminal
        /// Is dropped.
        case progress
    }

    /// One connection.
    private final class Peer {
        let number: UInt64
        let stream: MessageStream
        let pid: Int32
        /// Whether it sends an empty first frame, and wants one.
        var hasEnvelope = false
        /// Whether it has said something, and was told of.
        var isKnown = false
        /// Whether it is among those to be looked at.
        var isReady = false
        /// Whether it is among those with something to write.
        var isDirty = false

        init(_ number: UInt64, _ stream: MessageStream, pid: Int32) {
            self.number = number
            self.stream = stream
            self.pid = pid
        }
    }

    /// Messages, commands and discarded frames processed in one pass, so that one port never starves the other or the
    /// timers.
    private static let itemsPerPass = 512
    /// Bytes read in one pass: about 2 ms.
    private static let bytesPerPass = 8 << 20
    /// Items of one peer processed in one pass. Answers to the first of many are sent before the last is read, so
    /// that their receivers work meanwhile.
    static let itemsPerTurn = 32
    /// Bytes read of one peer in one pass: sixteen bodies of 64 KiB within messages.
    private static let bytesPerTurn = 1 << 20
    /// Connections accepted in one pass.
    private static let acceptsPerPass = 256
    /// How long a connection may take to close by itself after its process's end, which a forked child can outlive, or
    /// to take its last message.
    private static let closeMilliseconds = 100
    /// How long a connection may be silent from its beginning on: each costs a descriptor, and nobody needs a silent
    /// one.
    private static let silence = Duration.seconds(10)
    /// How long nobody is accepted when there is no descriptor for one.
    private static let pause = Duration.milliseconds(100)
    /// How long a large message may take to arrive while others wait for its memory: a local sender needs milliseconds.
    private static let frameTime = Duration.seconds(10)
    /// How often that is looked at while somebody waits.
    private static let framePause = Duration.seconds(1)

    private let loop: EventLoop
    private let logger: Logger
    private let path: String
    private var listener: Int32
    /// The socket's file; nil if it was gone at once.
    private var file: FileIdentity?
    private let frameBytes: Int
    private let bounds: PortBounds
    private let memory: ConnectionMemory
    private let connectionLimit: Int
    private var accepting: EventLoop.Registration?
    /// Whether somebody waits to be accepted, or may.
    private var hasCallers = false
    private var peers: [UInt64: Peer] = [:]
    private var processes: PeerProcesses?
    /// Peers that may have something to say, or are gone, in the order in which they get their turn.
    private var ready: Deque<UInt64> = []
    private var dirty: [Peer] = []
    /// When connections that have said nothing are closed, in order; those that spoke since included.
    private var silenceEnds: Deque<(peer: UInt64, at: LoopTime)> = []
    private var lastNumber: UInt64 = 0
    private var refused = 0
    private var nextWarning = LoopTime(nanoseconds: 0)
    /// Messages taken since somebody last set this to 0.
    var taken = 0

    /// Listens at `path`, which only this user can connect to.
    ///
    /// - Parameters:
    ///   - frameBytes: bytes of a frame at most.
    ///   - bounds: of what peers may have waiting, and may make wait.
    init(
        _ path: String, _ loop: EventLoop, frameBytes: Int, bounds: PortBounds, connectionLimit: Int, logger: Logger
    ) throws {
        self.loop = loop
        self.logger = logger
        self.frameBytes = frameBytes
        self.bounds = bounds
        memory = ConnectionMemory(frameCapacity: bounds.frameBytes)
        self.connectionLimit = connectionLimit
        self.path = path
        listener = try UnixSocket.listen(at: path)
        file = FileIdentity(path: path)
        processes = PeerProcesses(loop) { [unowned self] peers in
            // Its last words may still be in the socket; the connection's end is told after them. The kernel ends it
            // unless a child of that process holds it open.
            for peer in peers { closeLater(peer) }
        }
        memory.onShortage = { [unowned self] in setFrameTimer() }
        try listen()
    }

    deinit {
        // The end of one connection must not wake another one here.
        memory.close()
        if let accepting { loop.remove(accepting) }
        UnixSocket.close(listener)
    }

    /// The process of a peer, as the kernel told it; 0 if unknown.
    func pid(of number: UInt64) -> Int32 { peers[number]?.pid ?? 0 }

    /// Ends a peer's process.
    func kill(_ number: UInt64) {
        if let pid = peers[number]?.pid { processes?.kill(pid) }
    }

    /// Closes a peer's connection, once its last message had time to leave; its loss is told as any other.
    func close(_ number: UInt64) { closeLater(number) }

    private func closeLater(_ number: UInt64) {
        guard peers[number] != nil else { return }
        _ = loop.setTimer(after: .milliseconds(Self.closeMilliseconds)) { [unowned self] in
            if let peer = peers[number] { UnixSocket.shutDown(peer.stream.descriptor) }
        }
    }

    /// Whether there is more to take than one pass did.
    var hasPending: Bool { !ready.isEmpty || hasCallers }

    /// Whether a peer may have sent more than its last turn took.
    func hasUnread(_ number: UInt64) -> Bool { peers[number]?.isReady ?? false }

    // MARK: Taking

    /// Takes what came, up to this pass's share.
    ///
    /// - Parameter handle: returns how many messages of the sender's turn an event is worth.
    func take(_ handle: (PortEvent) -> Int) {
        acceptCallers()
        var items = Self.itemsPerPass
        var bytes = Self.bytesPerPass
        // Each of those that are ready now has one turn: what goes to many is written to each of them once.
        for _ in 0..<ready.count {
            guard items > 0, bytes > 0, let number = ready.popFirst() else { break }
            guard let peer = peers[number] else { continue }
            peer.isReady = false
            let share = Turn(items: min(items, Self.itemsPerTurn), bytes: min(bytes, Self.bytesPerTurn))
            let rest = takeTurn(peer, share, handle)
            // A peer without input costs something, too.
            items -= max(1, share.items - rest.items)
            bytes -= share.bytes - rest.bytes
        }
    }

    /// - Returns: the part of the turn that the peer did not use.
    private func takeTurn(_ peer: Peer, _ share: Turn, _ handle: (PortEvent) -> Int) -> Turn {
        // A peer that does not read its replies is not heard: its next messages wait in the kernel.
        let isHeard = !hasUnreadReplies(peer.stream)
        if peer.stream.isReading != isHeard { peer.stream.isReading = isHeard }
        guard isHeard else { return share }
        var turn = share
        while let message = peer.stream.next(&turn) {
            let bytes = message.head.count + (message.body?.count ?? 0)
            if !peer.isKnown {
                peer.isKnown = true
                peer.hasEnvelope = message.hasEnvelope
                _ = handle(.connected(peer: peer.number, isRequestReply: peer.hasEnvelope))
            }
            let event: PortEvent =
                message.isLonger
                ? .surplus(peer: peer.number, head: message.head)
                : .message(peer: peer.number, head: message.head, body: message.body)
            let weight = max(handle(event), 1 + bytes / bounds.bytesPerMessage)
            // The stream has counted one.
            turn.spend(weight - 1)
            taken += weight
        }
        if peer.stream.isEnded {
            lose(peer, handle)
        } else if peer.stream.hasPending {
            note(peer)
        }
        return turn
    }

    private func lose(_ peer: Peer, _ handle: (PortEvent) -> Int) {
        peers[peer.number] = nil
        if let violation = peer.stream.violation { refuse(violation) }
        let process = processes?.living(peer.pid)
        processes?.forget(peer.number, of: peer.pid)
        if peer.isKnown { _ = handle(.lost(peer: peer.number, pid: peer.pid, process: process)) }
    }

    private func note(_ peer: Peer) {
        guard !peer.isReady else { return }
        peer.isReady = true
        ready.append(peer.number)
    }

    // MARK: Connections

    /// Whether the path still names the socket that listens.
    var isInPlace: Bool { file != nil && FileIdentity(path: path) == file }

    /// Listens at the path again, which is this user's alone. Connections go on, and so do those that wait to be
    /// accepted.
    func listenAgain() throws {
        let next = try UnixSocket.listen(at: path)
        hasCallers = true
        while hasCallers { acceptCallers() }
        if let accepting { loop.remove(accepting) }
        UnixSocket.close(listener)
        listener = next
        file = FileIdentity(path: path)
        try listen()
    }

    private func listen() throws {
        accepting = try loop.add(listener, .readable) { [unowned self] _ in hasCallers = true }
    }

    private func acceptCallers() {
        guard hasCallers else { return }
        for _ in 0..<Self.acceptsPerPass {
            do throws(SystemError) {
                guard let descriptor = try UnixSocket.accept(listener) else {
                    hasCallers = false
                    return
                }
                try admit(descriptor)
            } catch {
                hasCallers = false
                stopAccepting(error)
                return
            }
        }
    }

    /// Lets those who call wait for a while: whoever is here is served.
    private func stopAccepting(_ error: SystemError) {
        refuse("\(error)")
        if let accepting { loop.remove(accepting) }
        accepting = nil
        _ = loop.setTimer(after: Self.pause) { [unowned self] in
            guard accepting == nil else { return }
            do { try listen() } catch { logger.error("nobody can connect any more: \(error)") }
        }
    }

    private func admit(_ descriptor: Int32) throws(SystemError) {
        guard let credentials = UnixSocket.credentials(of: descriptor), credentials.uid == getuid() else {
            UnixSocket.close(descriptor)
            refuse("another user")
            return
        }
        guard peers.count < connectionLimit else {
            UnixSocket.close(descriptor)
            refuse("more than \(connectionLimit) connections, as many as descriptors allow")
            return
        }
        lastNumber += 1
        let number = lastNumber
        let stream = try MessageStream(
            descriptor, as: .router, frameBytes: frameBytes, mostMessages: bounds.messages, memory: memory,
            owner: credentials.pid, loop: loop
        ) { [unowned self] in
            if let peer = peers[number] { note(peer) }
        }
        let peer = Peer(number, stream, pid: credentials.pid)
        peers[number] = peer
        if silenceEnds.isEmpty { setSilenceTimer(after: Self.silence) }
        silenceEnds.append((number, loop.now.advanced(by: Self.silence)))
        stream.flush()
        if processes?.watch(peer.pid, for: number, descriptor) == false { closeLater(number) }
    }

    // MARK: Silence

    private func setSilenceTimer(after pause: Duration) {
        _ = loop.setTimer(after: pause) { [unowned self] in endSilence() }
    }

    /// Closes the connections whose time to say something is over. One timer for all, while there are some.
    private func endSilence() {
        while let first = silenceEnds.first, first.at <= loop.now || peers[first.peer]?.isKnown != false {
            silenceEnds.removeFirst()
            if let peer = peers[first.peer], !peer.isKnown { UnixSocket.shutDown(peer.stream.descriptor) }
        }
        if let next = silenceEnds.first { setSilenceTimer(after: next.at.since(loop.now)) }
    }

    // MARK: Half-sent messages

    private func setFrameTimer() {
        _ = loop.setTimer(after: Self.framePause) { [unowned self] in endSlowFrames() }
    }

    /// Closes connections that hold memory for a message too long, as long as others wait for it.
    private func endSlowFrames() {
        guard memory.isShort else { return }
        for peer in peers.values {
            guard let since = peer.stream.reservedAt, loop.now.since(since) >= Self.frameTime else { continue }
            refuse("a large message that took longer than \(Self.frameTime)")
            UnixSocket.shutDown(peer.stream.descriptor)
        }
        setFrameTimer()
    }

    /// Tells of refused connections, of many in a second once: whoever is refused tries again.
    private func refuse(_ reason: String) {
        refused += 1
        guard loop.now >= nextWarning else { return }
        logger.warning("refused \(refused) connections, the last one for: \(reason)")
        refused = 0
        nextWarning = loop.now.advanced(by: .seconds(1))
    }

    // MARK: Sending

    /// Puts a head, and a body beside it, on its way, which ``flush()`` sends.
    func send(_ head: [UInt8], _ body: [UInt8]? = nil, to number: UInt64, as kind: Kind = .reply) -> Sent {
        guard let peer = peers[number], !peer.stream.isEnded else { return .unreachable }
        if !takes(kind, peer.stream) {
            // Only what the peer left unread counts, not what this pass has put together.
            peer.stream.flush()
            guard takes(kind, peer.stream) else { return .wouldBlock }
        }
        let message = ZMTP.Message(head: head, body: body, hasEnvelope: peer.hasEnvelope)
        guard peer.stream.send(message, isReply: kind == .reply) else { return .wouldBlock }
        if !peer.isDirty {
            peer.isDirty = true
            dirty.append(peer)
        }
        return .sent
    }

    /// Whether a peer takes messages again after one that it did not take; true for one that is gone. The loop wakes
    /// when it is so.
    func hasRoom(for number: UInt64) -> Bool {
        guard let stream = peers[number]?.stream else { return true }
        return stream.unsentBytes <= bounds.ownBytes && stream.unsentMessages <= bounds.deliveries / 2
    }

    private func takes(_ kind: Kind, _ stream: MessageStream) -> Bool {
        switch kind {
        case .reply: true
        case .terminal: isBelow(bounds.terminalBytes, stream)
        case .progress: isBelow(bounds.progressBytes, stream)
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

    /// Sends what was put on its way in this pass.
    func flush() {
        for peer in dirty {
            peer.isDirty = false
            peer.stream.flush()
        }
        dirty.removeAll(keepingCapacity: true)
    }
}
