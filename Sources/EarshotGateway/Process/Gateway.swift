internal import DequeModule
internal import EarshotLoop
internal import EarshotWire
internal import Glibc
internal import Logging
internal import ZeroMQ

/// Remote clients of a bus: accepts their connections over tcp, lets libzmq check their keys, and relays their messages
/// to the broker.
///
/// ```
/// client ══ tcp, CURVE ══ BytePump ── Unix socket ── libzmq ── RemotePeer ── Unix socket ── broker
/// ```
final class Gateway {
    /// Maximum number of connections: each costs six descriptors.
    private static let maximumConnections = 4_096
    private static let descriptorsPerConnection = 6
    /// Descriptors for everything else: an idle gateway has 14.
    private static let (minimumReserve, maximumReserve) = (24, 64)
    /// Maximum number of connections accepted in one pass, and of those that begin a handshake. Clients have their
    /// turns between passes.
    private static let acceptsPerPass = 64
    private static let admissionsPerPass = 2
    /// Time without accepting connections after descriptors ran out.
    private static let acceptPause = Duration.milliseconds(100)
    /// Bytes of one connection that wait in the kernel unsent. A heartbeat waits behind them.
    private static let kernelUnsentBytes: Int32 = 128 << 10
    /// Pause between two attempts to reach the broker, and their number.
    static let retryPause = Duration.milliseconds(50)
    static let maximumRetries = 200
    /// Interval of the check for long messages while memory is short.
    private static let memoryCheckInterval = Duration.seconds(1)

    let loop: EventLoop
    private let busPath: String
    private let workPath: String
    /// Secret for the present broker; nil before the supervisor has sent one. The broker knows this process by then, so
    /// no connection is accepted before.
    var brokerProof: GatewayProof? {
        didSet { resumeAccepting() }
    }
    var relayMemory = RelayMemory()
    /// Reads pending lines of the supervisor.
    var readSupervisorLines: () -> Void = {}
    /// Reports the principals of all valid keys of clients, at the start and after each change.
    var onPrincipalsChanged: ([PrincipalName]) -> Void = { _ in }

    private let logger: Logger
    private let context: Context
    private var authentication: Authentication
    private let scratchBuffer = BytePump.Scratch()
    /// Prefix of the abstract names of this process.
    private let namePrefix: String
    private let connectionLimit: Int
    private var keys: GatewayKeys
    private let listeners: [ConnectionListener]
    private var hasWaitingConnections = false
    private var admissionGate: AdmissionGate
    private var peers: [UInt64: RemotePeer] = [:]
    /// Connections of each key.
    private var connectionsByKey: [KeyName: Int] = [:]
    private var peersAwaitingTurn: Deque<UInt64> = []
    /// Peers that are not read because of a bound.
    private var pausedPeers: Set<UInt64> = []
    private var checksMemory = false
    private var lastUndeliveredBytes = 0
    private var lastPeerNumber: UInt64 = 0
    private var refusedCount = 0
    private var nextWarningTime = LoopTime(nanoseconds: 0)
    private var expiryTimer: TimerID?
    private var acceptTimer: TimerID?
    private var registration: EventLoop.Registration?

    /// Starts libzmq's threads, and accepts connections.
    init(
        _ keys: GatewayKeys, _ listeners: [ConnectionListener], busPath: String, workPath: String, loop: EventLoop,
        logger: Logger
    ) throws {
        self.keys = keys
        self.listeners = listeners
        self.busPath = busPath
        self.workPath = workPath
        self.loop = loop
        self.logger = logger
        let descriptors = try ResourceLimits.raiseDescriptorLimit(
            atLeast: Self.minimumReserve + 2 * Self.descriptorsPerConnection)
        let reserve = ResourceLimits.reservedDescriptors(
            ofLimit: descriptors, minimum: Self.minimumReserve, maximum: Self.maximumReserve)
        connectionLimit = min(Self.maximumConnections, (descriptors - reserve) / Self.descriptorsPerConnection)
        context = try Context.make(maximumSockets: Int32(connectionLimit) + 16)
        authentication = try Authentication.make(in: context)
        admissionGate = AdmissionGate(now: loop.now)
        var generator = SystemRandomNumberGenerator()
        namePrefix = "earshot-gateway-\(getpid())-\(String(generator.next(), radix: 16))"
        registration = try loop.add(authentication.descriptor, .readable) { _ in }
        _ = loop.addHook { [unowned self] in runPass() }
        for listener in listeners {
            listener.onWaitingConnections = { [unowned self] in hasWaitingConnections = true }
        }
        scheduleExpiryCheck()
    }

    /// Path of the broker's socket for peers of a role.
    func brokerSocketPath(for role: ClientKey.Role) -> String {
        switch role {
        case .client, .node: busPath
        case .worker: workPath
        }
    }

    /// Replaces the keys. Connections of revoked, changed and expired keys are closed.
    func replaceKeys(with keys: GatewayKeys) {
        self.keys = keys
        closePeersWithInvalidKeys()
        reportKeys()
        scheduleExpiryCheck()
    }

    /// Reports the valid keys. The sessions of others end.
    func reportKeys() { onPrincipalsChanged(keys.principals(at: calendarSeconds)) }

    /// Closes all connections. Precedes the end of this object.
    func close() {
        stopAccepting(until: nil)
        for peer in Array(peers.values) { peer.close(nil) }
    }

    // MARK: The pass

    private func runPass() -> EventLoop.SleepLimit {
        answerAuthentication()
        acceptConnections()
        for _ in 0..<peersAwaitingTurn.count {
            guard let number = peersAwaitingTurn.popFirst(), let peer = peers[number] else { continue }
            peer.isReady = false
            if peer.runTurn() { scheduleTurn(peer) }
        }
        if relayMemory.totalUndeliveredBytes < lastUndeliveredBytes {
            for number in pausedPeers { peers[number].map(scheduleTurn) }
        }
        lastUndeliveredBytes = relayMemory.totalUndeliveredBytes
        let isPending =
            !peersAwaitingTurn.isEmpty || hasWaitingConnections || (try? authentication.isReadable()) == true
        return isPending ? .noSleep : .untilEvent
    }

    /// Schedules a turn of a peer in this pass or the next one.
    func scheduleTurn(_ peer: RemotePeer) {
        guard !peer.isReady, peer.phase != .closed else { return }
        peer.isReady = true
        peersAwaitingTurn.append(peer.number)
    }

    // MARK: Keys

    private var calendarSeconds: Int64 { Int64(time(nil)) }

    private func answerAuthentication() {
        while let request = try? authentication.next() {
            let decision = decideAuthentication(request)
            try? authentication.answer(request, decision)
        }
    }

    private func decideAuthentication(_ request: Authentication.Request) -> Authentication.Decision {
        // A socket sends one request: it has one connection.
        guard let number = UInt64(request.domain), let peer = peers[number], peer.phase == .handshaking else {
            return .refused
        }
        admissionGate.handshakeEnded(number)
        resumeAccepting()
        guard let key = request.publicKey.flatMap({ keys.client($0, at: calendarSeconds) }) else {
            logRefusal("a key that is unknown, revoked or expired", peer.address)
            peer.keyRefused()
            return .refused
        }
        let most = key.maximumConnections ?? ClientKey.defaultMaximumConnections
        guard connectionsByKey[key.name, default: 0] < most else {
            logRefusal("more than \(most) connections of key \(key.name)", peer.address)
            peer.keyRefused()
            return .busy
        }
        connectionsByKey[key.name, default: 0] += 1
        peer.authenticated(as: key)
        logger.debug("client connected", metadata: ["key": "\(key.name)", "address": "\(peer.address)"])
        return .accepted
    }

    private func closePeersWithInvalidKeys() {
        let now = calendarSeconds
        for peer in Array(peers.values) {
            guard let key = peer.key else { continue }
            if keys.client(key.publicKey, at: now)?.name != key.name {
                peer.close("its key was revoked or has expired")
            }
        }
    }

    /// Closes connections of keys when they expire. The calendar may be set, so the time is checked each hour.
    private func scheduleExpiryCheck() {
        if let expiryTimer { loop.cancelTimer(expiryTimer) }
        expiryTimer = nil
        let now = calendarSeconds
        guard let next = keys.nextExpiry(after: now) else { return }
        expiryTimer = loop.setTimer(after: .seconds(min(3_600, next - now))) { [unowned self] in
            closePeersWithInvalidKeys()
            reportKeys()
            scheduleExpiryCheck()
        }
    }

    // MARK: Connections

    private func acceptConnections() {
        guard hasWaitingConnections else { return }
        hasWaitingConnections = false
        for listener in listeners where listener.isAccepting {
            var admissions = Self.admissionsPerPass
            for _ in 0..<Self.acceptsPerPass where admissions > 0 {
                guard peers.count < connectionLimit else {
                    logRefusal("more than \(connectionLimit) connections", nil)
                    return stopAccepting(until: nil)
                }
                switch admissionGate.decision(now: loop.now) {
                case .waitUntil(let moment): return stopAccepting(until: moment)
                case .admit: break
                }
                do throws(SystemError) {
                    guard let descriptor = try UnixSocket.accept(listener.descriptor) else { break }
                    hasWaitingConnections = true
                    // Connections that ended while they waited cost only this.
                    guard let address = TCPSocket.peerAddress(of: descriptor) else {
                        UnixSocket.close(descriptor)
                        continue
                    }
                    admissions -= 1
                    admitConnection(descriptor, address)
                } catch {
                    logRefusal("\(error)", nil)
                    return stopAccepting(until: loop.now.advanced(by: Self.acceptPause))
                }
            }
        }
    }

    /// Leaves further connections in the kernel.
    private func stopAccepting(until moment: LoopTime?) {
        hasWaitingConnections = false
        for listener in listeners { listener.isAccepting = false }
        guard let moment, acceptTimer == nil else { return }
        acceptTimer = loop.setTimer(at: moment) { [unowned self] in
            acceptTimer = nil
            resumeAccepting()
        }
    }

    private func resumeAccepting() {
        guard brokerProof != nil, acceptTimer == nil, peers.count < connectionLimit else { return }
        for listener in listeners { listener.isAccepting = true }
    }

    private func admitConnection(_ descriptor: Int32, _ address: TCPSocket.Address) {
        lastPeerNumber += 1
        let number = lastPeerNumber
        TCPSocket.configureConnection(descriptor, maximumUnsentBytes: Self.kernelUnsentBytes)
        do {
            let name = "\(namePrefix)-\(number)"
            let curve = try CurveEnd(number, name: name, secretKey: keys.secretKey, context, loop: loop) {
                [unowned self] in if let peer = peers[number] { scheduleTurn(peer) }
            }
            let inner = try UnixSocket.connect(abstract: name)
            let pump = try BytePump(remote: descriptor, inner: inner, scratchBuffer, loop: loop)
            peers[number] = RemotePeer(number, address, pump, curve, of: self)
        } catch {
            UnixSocket.close(descriptor)
            logRefusal("\(error)", address)
            return stopAccepting(until: loop.now.advanced(by: Self.acceptPause))
        }
        if let oldest = admissionGate.connectionAccepted(number, from: address) {
            logRefusal("too many handshakes of one network", address)
            peers[oldest]?.close(nil)
        }
    }

    /// Handles the end of a peer.
    func peerClosed(_ peer: RemotePeer) {
        peers[peer.number] = nil
        admissionGate.handshakeEnded(peer.number)
        relayMemory.clientLeft(peer.number)
        pausedPeers.remove(peer.number)
        if let name = peer.key?.name {
            connectionsByKey[name, default: 1] -= 1
            if connectionsByKey[name] == 0 { connectionsByKey[name] = nil }
            logger.debug(
                "client disconnected",
                metadata: ["key": "\(name)", "address": "\(peer.address)", "reason": "\(peer.closeReason ?? "closed")"])
        }
        if let fault = peer.closeReason { logRefusal(fault, peer.address) }
        resumeAccepting()
    }

    /// Records whether a peer is not read because of a bound.
    func setPeerPaused(_ number: UInt64, _ isPaused: Bool) {
        guard isPaused else {
            pausedPeers.remove(number)
            return
        }
        pausedPeers.insert(number)
        guard !checksMemory else { return }
        checksMemory = true
        loop.setTimer(after: Self.memoryCheckInterval) { [unowned self] in evictOverdueClient() }
    }

    /// Closes the connection of a client that holds memory for too long, and lets others try.
    private func evictOverdueClient() {
        checksMemory = false
        if let number = relayMemory.overdueClient(now: loop.now) {
            peers[number]?.close("a long message that took too long")
        }
        for number in pausedPeers { peers[number].map(scheduleTurn) }
        guard !pausedPeers.isEmpty else { return }
        checksMemory = true
        loop.setTimer(after: Self.memoryCheckInterval) { [unowned self] in evictOverdueClient() }
    }

    /// Logs refused and closed connections, at most once per second, because refused clients try again.
    private func logRefusal(_ reason: String, _ address: TCPSocket.Address?) {
        refusedCount += 1
        guard loop.now >= nextWarningTime else { return }
        var metadata: Logger.Metadata = ["count": "\(refusedCount)", "reason": "\(reason)"]
        if let address { metadata["address"] = "\(address)" }
        logger.warning("refused or closed connections", metadata: metadata)
        refusedCount = 0
        nextWarningTime = loop.now.advanced(by: .seconds(1))
    }
}
