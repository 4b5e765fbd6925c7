internal import EarshotLoop
internal import EarshotWire
internal import ZMTP

/// Connection of one remote client, and its own connection to the broker.
///
/// ```
/// handshaking ──key accepted──→ greeting ──first message──→ relaying
/// relaying ──client closes──→ leaving ──rest reaches the broker──→ closed
/// relaying ──broker closes, or a refusal──→ parting ──rest reaches the client──→ closed
/// any ──key revoked, or a bound exceeded──→ closed
/// ```
///
/// Messages pass unchanged except HELLO and READY: see ``RelayRule``. The end of one connection ends the other, and the broker
/// decides about the session by its lease.
final class RemotePeer {
    enum Phase: Equatable {
        /// The client has proved no key.
        case handshaking
        /// The key is accepted, and no message has arrived.
        case greeting
        case relaying
        /// The client has closed its connection; its last messages go to the broker.
        case leaving
        /// The broker has closed its connection, or the gateway refused a message; the last messages go to the client.
        case parting
        case closed
    }

    /// Time for the first message after the handshake.
    static let greetingTime = Duration.seconds(10)
    /// Time for the last messages to reach the broker or the client.
    private static let leavingTime = Duration.seconds(5)
    private static let partingTime = Duration.seconds(2)
    /// Time for a refused client to learn that its key is refused.
    private static let refusalTime = Duration.milliseconds(500)
    /// Maximum number of messages in each direction in one pass.
    private static let messagesPerTurn = 64
    /// Bytes read from the broker in one pass.
    private static let bytesPerTurn = 1 << 20
    /// Unsent bytes for the broker above which the client's messages wait: the broker does not read this connection.
    private static let waitingBytes = 256 << 10
    /// Maximum number of unsent messages for the broker.
    private static let waitingMessages = 4_096
    /// Maximum length of a frame from the broker: its longest inline body, or a page of a table.
    private static let brokerFrameBytes = 64 << 20
    /// Bytes of one message that no client needs: head and body of the maximum lengths, and what may follow them.
    private static let mostUndelivered = CurveEnd.frameBytes + WireLimits.headBytes + RelayMemory.unreadBytes
    /// Bytes within a second that count as a heartbeat and not as a part of a message.
    private static let heartbeatBytes = 128

    let number: UInt64
    let address: TCPSocket.Address
    private(set) var phase = Phase.handshaking
    /// Key that the client has proved; nil before.
    private(set) var key: ClientKey?
    /// Whether the peer waits for its turn in a pass.
    var isReady = false
    /// Reason for which the gateway closed the connection, for the log; nil without one.
    private(set) var closeReason: String?

    private unowned let gateway: Gateway
    private let pump: BytePump
    private var curve: CurveEnd?
    private var link: MessageStream?
    private var timer: TimerID?
    private var retry: TimerID?
    private var retries = 0
    /// Whether the broker got a message.
    private var isIntroduced = false
    /// Message for the broker that waits for its connection.
    private var waiting: ZMTP.Message?
    /// Message for the client that libzmq does not accept yet.
    private var heldMessage: ZMTP.Message?
    /// Bytes of the client in no complete message, and bytes for the client in libzmq.
    private(set) var undelivered = 0
    private(set) var unsent = 0
    private var fedAt: LoopTime

    init(
        _ number: UInt64, _ address: TCPSocket.Address, _ pump: BytePump, _ curve: CurveEnd, of gateway: Gateway
    ) {
        self.number = number
        self.address = address
        self.pump = pump
        self.curve = curve
        self.gateway = gateway
        fedAt = gateway.loop.now
        pump.onProgress = { [unowned self] in requestTurn() }
    }

    private func requestTurn() { gateway.scheduleTurn(self) }

    // MARK: The handshake

    /// Accepts the client's key.
    func authenticated(as key: ClientKey) {
        self.key = key
        phase = .greeting
        setTimer(Self.greetingTime) { [unowned self] in close("no message after the handshake") }
    }

    /// Lets libzmq tell the client that its key is refused, and closes the connection.
    func keyRefused() {
        phase = .parting
        setTimer(Self.refusalTime) { [unowned self] in close(nil) }
    }

    // MARK: The turn

    /// Passes messages on in both directions.
    ///
    /// - Returns: whether more can be passed on without an event.
    func turn() -> Bool {
        countMovedBytes()
        switch phase {
        case .handshaking:
            // A client that ends by itself, such as a health check, is no fault.
            if pump.isRemoteEnded {
                close(nil)
            } else if pump.isInnerEnded {
                close("a handshake with another server key, without CURVE, or not within the time")
            }
            return false
        case .greeting, .relaying:
            return relay()
        case .leaving: return passLastMessages()
        case .parting:
            if pump.isInnerEnded || pump.isRemoteEnded { close(nil) }
            return false
        case .closed: return false
        }
    }

    private func relay() -> Bool {
        var hasMore = takeFromClient()
        guard phase != .closed, phase != .parting else { return false }
        let wasOpen = link?.isOpen == true
        hasMore = takeFromBroker() || hasMore
        // The broker's handshake is complete: the first message can go.
        if !wasOpen, link?.isOpen == true { hasMore = true }
        guard phase != .closed, phase != .parting else { return false }
        setReading()
        guard pump.isRemoteEnded || pump.isInnerEnded else { return hasMore || needsTurn }
        phase = .leaving
        setTimer(Self.leavingTime) { [unowned self] in close(nil) }
        return true
    }

    /// Passes the last messages to the broker.
    private func passLastMessages() -> Bool {
        // libzmq ends its side after all messages are in its queue.
        let hasMore = takeFromClient() || needsTurn
        guard phase == .leaving else { return false }
        // The client gets nothing more.
        while let link, link.next() != nil {}
        if link?.isEnded == true { close(nil) }
        guard pump.isInnerEnded, !hasMore, waiting == nil, link?.isIdle ?? true else { return hasMore && !isBlocked }
        close(nil)
        return false
    }

    /// Whether libzmq has a message, or room for the held one, that its descriptor no longer reports.
    private var needsTurn: Bool {
        curve?.needsTurn(reads: !isBlocked, hasUnsent: heldMessage != nil && phase != .leaving) == true
    }

    /// Whether the broker does not read the client's messages.
    private var isBlocked: Bool {
        guard waiting == nil, let link else { return waiting != nil }
        return link.unsentBytes >= Self.waitingBytes || link.unsentMessages >= Self.waitingMessages
    }

    // MARK: From the client

    /// - Returns: whether the turn ended before the messages.
    private func takeFromClient() -> Bool {
        sendWaiting()
        var hasDelivered = false
        for _ in 0..<Self.messagesPerTurn {
            guard !isBlocked, phase != .closed, phase != .parting else { break }
            guard let received = curve?.next() else {
                // Only bytes of an incomplete message can be left.
                if hasDelivered { change(undelivered: 0) }
                link?.flush()
                return false
            }
            hasDelivered = true
            change(undelivered: max(0, undelivered - received.bytes))
            take(received.message)
        }
        link?.flush()
        return phase != .closed && phase != .parting && !isBlocked
    }

    private func take(_ message: ZMTP.Message) {
        if phase == .greeting {
            phase = .relaying
            if let timer { gateway.loop.cancelTimer(timer) }
            timer = nil
        }
        guard !message.isLonger else { return close("a message of more than two frames") }
        waiting = message
        sendWaiting()
    }

    /// Passes the first message on, once the broker can take it.
    private func sendWaiting() {
        guard let message = waiting, let key else { return }
        guard let proof = gateway.proof else { return reconnect() }
        guard let link else { return connect() }
        guard link.isOpen else { return }
        var forwarded = message
        let rule = RelayRule(role: key.role, principal: key.principal)
        switch rule.verdict(on: message.head, isFirst: !isIntroduced, proof: proof) {
        case .forward(let head): forwarded.head = head
        case .refuse(let head):
            waiting = nil
            if let bytes = curve?.send(ZMTP.Message(head: head)) {
                change(unsent: unsent + bytes)
            }
            return part("a message that the gateway refuses")
        }
        guard link.send(forwarded) else { return }
        waiting = nil
        isIntroduced = true
    }

    private func connect() {
        guard retry == nil else { return }
        do {
            guard let role = key?.role else { return }
            let descriptor = try UnixSocket.connect(to: gateway.path(of: role))
            let stream = try MessageStream(
                descriptor, as: .dealer, frameBytes: Self.brokerFrameBytes, mostMessages: Self.waitingMessages,
                loop: gateway.loop, onReady: { [unowned self] in requestTurn() })
            // A broker that started since the last event has sent its proof before it listened.
            gateway.readProof()
            link = stream
            stream.flush()
        } catch {
            reconnect()
        }
    }

    /// Tries again to reach the broker, which restarts in less than a second.
    private func reconnect() {
        guard retry == nil else { return }
        guard retries < Gateway.mostRetries else { return close("no broker answers") }
        retries += 1
        retry = gateway.loop.setTimer(after: Gateway.retryPause) { [unowned self] in
            retry = nil
            requestTurn()
        }
    }

    // MARK: From the broker

    /// - Returns: whether the turn ended before the messages.
    private func takeFromBroker() -> Bool {
        guard let link else { return false }
        if link.isHungUp, heldMessage != nil || !gateway.memory.maySend(unsent: unsent) {
            // The client gets the rest from the next broker. The kernel would report this end until it is read.
            part(nil)
            return false
        }
        if let message = heldMessage {
            guard send(message) else { return false }
            heldMessage = nil
        }
        var turn = Turn(items: Self.messagesPerTurn, bytes: Self.bytesPerTurn)
        while gateway.memory.maySend(unsent: unsent) {
            guard let message = link.next(&turn) else {
                guard link.isEnded else { return turn.isOver && link.hasPending }
                // Without an answer the broker has died before it took the HELLO.
                part(nil)
                return false
            }
            guard send(message) else {
                heldMessage = message
                return false
            }
        }
        return false
    }

    private func send(_ message: ZMTP.Message) -> Bool {
        guard let bytes = curve?.send(message) else { return false }
        change(unsent: unsent + bytes)
        return true
    }

    // MARK: Bounds

    /// Counts the bytes that have moved.
    private func countMovedBytes() {
        let now = gateway.loop.now
        let fedBytes = pump.takeFed()
        if fedBytes > 0 {
            let isHeartbeat = fedBytes <= Self.heartbeatBytes && now.since(fedAt) >= .seconds(1)
            if phase != .handshaking, !isHeartbeat { change(undelivered: undelivered + fedBytes) }
            fedAt = now
        }
        let drained = pump.takeDrained()
        if drained > 0, unsent > 0 { change(unsent: max(0, unsent - drained)) }
    }

    /// Reads the client only within the bounds.
    private func setReading() {
        let isBlocked = isBlocked
        if undelivered > Self.mostUndelivered, !isBlocked, !needsTurn { return close("a message longer than any") }
        let mayRead = gateway.memory.mayRead(
            number, undelivered: undelivered, isBlocked: isBlocked, now: gateway.loop.now)
        gateway.setPaused(number, !mayRead)
        pump.readsRemote = mayRead
        // libzmq has the rest. The broker's messages wait in its own bounds.
        link?.isReading = heldMessage == nil && gateway.memory.maySend(unsent: unsent)
    }

    private func change(undelivered bytes: Int) {
        gateway.memory.changed(undelivered: bytes - undelivered)
        undelivered = bytes
    }

    private func change(unsent bytes: Int) {
        gateway.memory.changed(unsent: bytes - unsent)
        unsent = bytes
    }

    // MARK: The end

    /// Lets the last messages reach the client.
    private func part(_ reason: String?) {
        closeReason = reason
        phase = .parting
        link = nil
        if let curve {
            curve.linger(milliseconds: Int32(Self.partingTime / .milliseconds(1)))
            self.curve = nil
        }
        setTimer(Self.partingTime) { [unowned self] in close(nil) }
    }

    /// Ends both connections at once.
    func close(_ reason: String?) {
        guard phase != .closed else { return }
        phase = .closed
        closeReason = closeReason ?? reason
        change(undelivered: 0)
        change(unsent: 0)
        pump.close()
        curve = nil
        link = nil
        waiting = nil
        heldMessage = nil
        for timer in [timer, retry].compactMap(\.self) { gateway.loop.cancelTimer(timer) }
        (timer, retry) = (nil, nil)
        gateway.closed(self)
    }

    private func setTimer(_ time: Duration, _ handler: @escaping () -> Void) {
        if let timer { gateway.loop.cancelTimer(timer) }
        timer = gateway.loop.setTimer(after: time, handler)
    }
}
