internal import EarshotLoop
internal import EarshotWire
internal import ZMTP

/// Connection of one remote client, and its own connection to the broker.
///
/// ```
/// handshaking ──key accepted──→ greeting ──first message──→ relaying
/// relaying ──client closes──→ flushingToBroker ──rest reaches the broker──→ closed
/// relaying ──broker closes, or a refusal──→ flushingToClient ──rest reaches the client──→ closed
/// any ──key revoked, or a bound exceeded──→ closed
/// ```
///
/// Messages pass unchanged except HELLO and READY: see ``RelayRule``. The end of one connection ends the other, and the
/// broker decides about the session by its lease.
final class RemotePeer {
    enum Phase: Equatable {
        /// The client has proved no key.
        case handshaking
        /// The key is accepted, and no message has arrived.
        case greeting
        case relaying
        /// The client has closed its connection; its last messages go to the broker.
        case flushingToBroker
        /// The broker has closed its connection, or the gateway refused a message; the last messages go to the client.
        case flushingToClient
        case closed
    }

    /// Time for the first message after the handshake.
    static let greetingTimeout = Duration.seconds(10)
    /// Time for the last messages to reach the broker or the client.
    private static let flushToBrokerTimeout = Duration.seconds(5)
    private static let flushToClientTimeout = Duration.seconds(2)
    /// Time for a refused client to learn that its key is refused.
    private static let refusalTimeout = Duration.milliseconds(500)
    /// Maximum number of messages in each direction in one pass.
    private static let maximumMessagesPerTurn = 64
    /// Bytes read from the broker in one pass.
    private static let maximumBytesPerTurn = 1 << 20
    /// Unsent bytes for the broker above which the client's messages wait: the broker does not read this connection.
    private static let maximumUnsentBrokerBytes = 256 << 10
    /// Maximum number of unsent messages for the broker.
    private static let maximumUnsentBrokerMessages = 4_096
    /// Maximum length of a frame from the broker: its longest inline body, or a page of a table.
    private static let maximumBrokerFrameBytes = 64 << 20
    /// Maximum undelivered bytes of a client: head and body of the maximum lengths, and bytes that may follow them.
    private static let maximumUndeliveredBytes =
        CurveEnd.maximumFrameBytes + WireLimits.headBytes + RelayMemory.maximumUnreadBytes
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
    private var retryTimer: TimerID?
    private var retryCount = 0
    /// Whether the broker got a message.
    private var hasSentToBroker = false
    /// Message for the broker that waits for its connection.
    private var waitingBrokerMessage: ZMTP.Message?
    /// Message for the client that libzmq does not accept yet.
    private var heldClientMessage: ZMTP.Message?
    /// Bytes of the client in no complete message, and bytes for the client in libzmq.
    private(set) var undeliveredBytes = 0
    private(set) var unsentBytes = 0
    private var lastFedAt: LoopTime

    init(_ number: UInt64, _ address: TCPSocket.Address, _ pump: BytePump, _ curve: CurveEnd, of gateway: Gateway) {
        self.number = number
        self.address = address
        self.pump = pump
        self.curve = curve
        self.gateway = gateway
        lastFedAt = gateway.loop.now
        pump.onProgress = { [unowned self] in requestTurn() }
    }

    private func requestTurn() { gateway.scheduleTurn(self) }

    // MARK: The handshake

    /// Accepts the client's key.
    func authenticated(as key: ClientKey) {
        self.key = key
        phase = .greeting
        setTimer(Self.greetingTimeout) { [unowned self] in close("no message after the handshake") }
    }

    /// Lets libzmq inform the client that its key is refused, and closes the connection.
    func keyRefused() {
        phase = .flushingToClient
        setTimer(Self.refusalTimeout) { [unowned self] in close(nil) }
    }

    // MARK: The turn

    /// Passes messages on in both directions.
    ///
    /// - Returns: whether more can be passed on without an event.
    func runTurn() -> Bool {
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
            return relayMessages()
        case .flushingToBroker: return relayLastMessages()
        case .flushingToClient:
            if pump.isInnerEnded || pump.isRemoteEnded { close(nil) }
            return false
        case .closed: return false
        }
    }

    private func relayMessages() -> Bool {
        var hasMore = receiveFromClient()
        guard phase != .closed, phase != .flushingToClient else { return false }
        let wasOpen = link?.isOpen == true
        hasMore = receiveFromBroker() || hasMore
        // The broker's handshake is complete: the first message can go.
        if !wasOpen, link?.isOpen == true { hasMore = true }
        guard phase != .closed, phase != .flushingToClient else { return false }
        updateReading()
        guard pump.isRemoteEnded || pump.isInnerEnded else { return hasMore || needsTurn }
        phase = .flushingToBroker
        setTimer(Self.flushToBrokerTimeout) { [unowned self] in close(nil) }
        return true
    }

    /// Passes the last messages to the broker.
    private func relayLastMessages() -> Bool {
        // libzmq ends its side after all messages are in its queue.
        let hasMore = receiveFromClient() || needsTurn
        guard phase == .flushingToBroker else { return false }
        // The client gets nothing more.
        while let link, link.next() != nil {}
        if link?.isEnded == true { close(nil) }
        guard pump.isInnerEnded, !hasMore, waitingBrokerMessage == nil, link?.isIdle ?? true else {
            return hasMore && !isBlocked
        }
        close(nil)
        return false
    }

    /// Whether libzmq has a message, or room for the held one, that its descriptor no longer reports.
    private var needsTurn: Bool {
        curve?.needsTurn(reads: !isBlocked, hasUnsent: heldClientMessage != nil && phase != .flushingToBroker) == true
    }

    /// Whether the broker does not read the client's messages.
    private var isBlocked: Bool {
        guard waitingBrokerMessage == nil, let link else { return waitingBrokerMessage != nil }
        return link.unsentBytes >= Self.maximumUnsentBrokerBytes
            || link.unsentMessages >= Self.maximumUnsentBrokerMessages
    }

    // MARK: From the client

    /// - Returns: whether the turn ended before the messages.
    private func receiveFromClient() -> Bool {
        sendWaitingMessage()
        var hasDelivered = false
        for _ in 0..<Self.maximumMessagesPerTurn {
            guard !isBlocked, phase != .closed, phase != .flushingToClient else { break }
            guard let received = curve?.nextMessage() else {
                // Only bytes of an incomplete message can be left.
                if hasDelivered { setUndeliveredBytes(0) }
                link?.flush()
                return false
            }
            hasDelivered = true
            setUndeliveredBytes(max(0, undeliveredBytes - received.bytes))
            forwardToBroker(received.message)
        }
        link?.flush()
        return phase != .closed && phase != .flushingToClient && !isBlocked
    }

    private func forwardToBroker(_ message: ZMTP.Message) {
        if phase == .greeting {
            phase = .relaying
            if let timer { gateway.loop.cancelTimer(timer) }
            timer = nil
        }
        guard !message.hadSurplusFrames else { return close("a message of more than two frames") }
        waitingBrokerMessage = message
        sendWaitingMessage()
    }

    /// Passes the first message on, once the broker can take it.
    private func sendWaitingMessage() {
        guard let message = waitingBrokerMessage, let key else { return }
        guard let proof = gateway.brokerProof else { return reconnectToBroker() }
        guard let link else { return connectToBroker() }
        guard link.isOpen else { return }
        var forwarded = message
        let rule = RelayRule(role: key.role, principal: key.principal)
        switch rule.verdict(on: message.head, isFirst: !hasSentToBroker, proof: proof) {
        case .forward(let head): forwarded.head = head
        case .refuse(let head):
            waitingBrokerMessage = nil
            if let bytes = curve?.send(ZMTP.Message(head: head)) {
                setUnsentBytes(unsentBytes + bytes)
            }
            return closeAfterFlush("a message that the gateway refuses")
        }
        guard link.send(forwarded) else { return }
        waitingBrokerMessage = nil
        hasSentToBroker = true
    }

    private func connectToBroker() {
        guard retryTimer == nil else { return }
        do {
            guard let role = key?.role else { return }
            let descriptor = try UnixSocket.connect(to: gateway.brokerSocketPath(for: role))
            let stream = try MessageStream(
                descriptor, as: .dealer, frameBytes: Self.maximumBrokerFrameBytes,
                maximumMessages: Self.maximumUnsentBrokerMessages, loop: gateway.loop,
                onReady: { [unowned self] in requestTurn() })
            // A broker that started since the last event has sent its proof before it listened.
            gateway.readSupervisorLines()
            link = stream
            stream.flush()
        } catch {
            reconnectToBroker()
        }
    }

    /// Tries again to reach the broker, which restarts in less than a second.
    private func reconnectToBroker() {
        guard retryTimer == nil else { return }
        guard retryCount < Gateway.maximumRetries else { return close("no broker answers") }
        retryCount += 1
        retryTimer = gateway.loop.setTimer(after: Gateway.retryPause) { [unowned self] in
            retryTimer = nil
            requestTurn()
        }
    }

    // MARK: From the broker

    /// - Returns: whether the turn ended before the messages.
    private func receiveFromBroker() -> Bool {
        guard let link else { return false }
        if link.isHungUp, heldClientMessage != nil || !gateway.relayMemory.maySend(unsent: unsentBytes) {
            // The client gets the rest from the next broker. The kernel would report this end until it is read.
            closeAfterFlush(nil)
            return false
        }
        if let message = heldClientMessage {
            guard sendToClient(message) else { return false }
            heldClientMessage = nil
        }
        var turn = Turn(items: Self.maximumMessagesPerTurn, bytes: Self.maximumBytesPerTurn)
        while gateway.relayMemory.maySend(unsent: unsentBytes) {
            guard let message = link.next(&turn) else {
                guard link.isEnded else { return turn.isOver && link.mayHavePendingMessage }
                // Without an answer the broker has died before it took the HELLO.
                closeAfterFlush(nil)
                return false
            }
            guard sendToClient(message) else {
                heldClientMessage = message
                return false
            }
        }
        return false
    }

    private func sendToClient(_ message: ZMTP.Message) -> Bool {
        guard let bytes = curve?.send(message) else { return false }
        setUnsentBytes(unsentBytes + bytes)
        return true
    }

    // MARK: Bounds

    /// Counts the bytes that have moved.
    private func countMovedBytes() {
        let now = gateway.loop.now
        let fedBytes = pump.takeFedBytes()
        if fedBytes > 0 {
            let isHeartbeat = fedBytes <= Self.heartbeatBytes && now.since(lastFedAt) >= .seconds(1)
            if phase != .handshaking, !isHeartbeat { setUndeliveredBytes(undeliveredBytes + fedBytes) }
            lastFedAt = now
        }
        let drained = pump.takeDrainedBytes()
        if drained > 0, unsentBytes > 0 { setUnsentBytes(max(0, unsentBytes - drained)) }
    }

    /// Reads the client only within the bounds.
    private func updateReading() {
        let isBlocked = isBlocked
        if undeliveredBytes > Self.maximumUndeliveredBytes, !isBlocked, !needsTurn {
            return close("a message longer than any")
        }
        let mayRead = gateway.relayMemory.mayRead(
            number, undelivered: undeliveredBytes, isBlocked: isBlocked, now: gateway.loop.now)
        gateway.setPeerPaused(number, !mayRead)
        pump.readsFromRemote = mayRead
        // libzmq has the rest. The broker's messages wait in its own bounds.
        link?.isReading = heldClientMessage == nil && gateway.relayMemory.maySend(unsent: unsentBytes)
    }

    private func setUndeliveredBytes(_ bytes: Int) {
        gateway.relayMemory.adjustUndelivered(by: bytes - undeliveredBytes)
        undeliveredBytes = bytes
    }

    private func setUnsentBytes(_ bytes: Int) {
        gateway.relayMemory.adjustUnsent(by: bytes - unsentBytes)
        unsentBytes = bytes
    }

    // MARK: The end

    /// Lets the last messages reach the client.
    private func closeAfterFlush(_ reason: String?) {
        closeReason = reason
        phase = .flushingToClient
        link = nil
        if let curve {
            curve.linger(milliseconds: Int32(Self.flushToClientTimeout / .milliseconds(1)))
            self.curve = nil
        }
        setTimer(Self.flushToClientTimeout) { [unowned self] in close(nil) }
    }

    /// Ends both connections at once.
    func close(_ reason: String?) {
        guard phase != .closed else { return }
        phase = .closed
        closeReason = closeReason ?? reason
        setUndeliveredBytes(0)
        setUnsentBytes(0)
        pump.close()
        curve = nil
        link = nil
        waitingBrokerMessage = nil
        heldClientMessage = nil
        for timer in [timer, retryTimer].compactMap(\.self) { gateway.loop.cancelTimer(timer) }
        (timer, retryTimer) = (nil, nil)
        gateway.peerClosed(self)
    }

    private func setTimer(_ time: Duration, _ handler: @escaping () -> Void) {
        if let timer { gateway.loop.cancelTimer(timer) }
        timer = gateway.loop.setTimer(after: time, handler)
    }
}
