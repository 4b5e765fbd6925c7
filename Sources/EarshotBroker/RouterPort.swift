internal import DequeModule
internal import EarshotLoop
internal import Glibc
internal import Logging
internal import ZeroMQ

/// A bound ROUTER and the connections on it: who they are, what they say, when they are gone.
///
/// A connection's end is told once, by whatever knows first (its process's end, the socket monitor, a send that finds
/// nobody), and only after what the connection had sent before was handed out.
final class RouterPort {
    /// What a port tells the broker, in this order for each peer: messages, then its loss.
    enum Event {
        case connected(peer: UInt64, isRequestReply: Bool)
        case message(peer: UInt64, head: [UInt8], body: SharedBody?)
        /// A message of more frames than the protocol has.
        case surplus(peer: UInt64, head: [UInt8])
        /// `pid`: its process; 0 if the kernel did not tell. `process`: a hold on that, if it lives on.
        case lost(peer: UInt64, pid: Int32, process: ProcessDescriptor?)
    }

    /// One connection.
    private struct Peer {
        var number: UInt64
        let routing: [UInt8]
        let descriptor: Int32
        /// 0 if the kernel did not tell.
        let pid: Int32
        /// Whether it sends an empty first frame, and wants one.
        let hasEnvelope: Bool
    }

    /// A process with connections, watched for its end.
    private struct WatchedProcess {
        let handle: ProcessDescriptor
        let registration: EventLoop.Registration
        var peers: Set<UInt64> = []
    }

    /// Messages taken in one pass, so that one port never starves the other or the timers.
    private static let messagesPerPass = 512
    /// Messages read after a connection's end before its loss is told even though more wait: a full pipe's worth.
    private static let messagesBeforeLoss = 8_192
    /// How long a connection may take to close by itself after its process's end, which a forked child can outlive, or
    /// to take its last message.
    private static let closeMilliseconds = 100
    /// How long a connection may be silent from its beginning on: each costs a descriptor, and nobody needs a silent
    /// one.
    private static let silence = Duration.seconds(10)

    private let socket: Socket
    private let monitor: Monitor
    private let loop: EventLoop
    private let logger: Logger
    private let connectionLimit: Int
    private var parts = Multipart(capacity: 4)
    private var connections = 0
    /// Whether the monitor has something to tell, or may have.
    private var hasMonitorNews = true
    private var numbers: [[UInt8]: UInt64] = [:]
    private var peers: [UInt64: Peer] = [:]
    /// Whose an open descriptor is; until the monitor tells of its end.
    private var owners: [Int32: UInt64] = [:]
    private var processes: [Int32: WatchedProcess] = [:]
    /// Connections that have said nothing yet, by descriptor, with a number of their own: descriptors are used again.
    private var silent: [Int32: UInt64] = [:]
    /// When each of them is closed, in order; those that spoke since included.
    private var silenceEnds: Deque<(descriptor: Int32, number: UInt64, at: LoopTime)> = []
    private var lastSilent: UInt64 = 0
    /// Peers whose end is known and not yet told, in order.
    private var dying: [UInt64] = []
    private var readSinceDeath = 0
    /// Messages taken since somebody last set this to 0.
    var taken = 0
    /// Connections that were told lost while their last messages waited.
    private var condemned: Set<[UInt8]> = []
    private var lastNumber: UInt64 = 0
    private var refused = 0
    private var nextWarning = LoopTime(nanoseconds: 0)

    /// Binds `endpoint`, whose file only this user can connect to.
    init(
        _ context: borrowing Context, _ endpoint: String, _ options: SocketOptions, _ loop: EventLoop,
        connectionLimit: Int, logger: Logger
    ) throws {
        socket = try context.socket(.router, options)
        monitor = try Monitor.make(of: socket)
        self.loop = loop
        self.logger = logger
        self.connectionLimit = connectionLimit
        // libzmq makes the socket's file 0777 less the mask: 0600.
        let mask = umask(0o177)
        defer { umask(mask) }
        try socket.bind(endpoint)
        // The socket's descriptor only wakes the loop; what there is to do is asked in the pass. Nobody else uses the
        // monitor, so that nothing eats its wake.
        _ = try loop.add(socket.descriptor, .readable) { _ in }
        _ = try loop.add(monitor.descriptor, .readable) { [unowned self] _ in hasMonitorNews = true }
    }

    /// The process of a peer, as the kernel told it; 0 if unknown.
    func pid(of number: UInt64) -> Int32 { peers[number]?.pid ?? 0 }

    /// Ends a peer's process.
    func kill(_ number: UInt64) {
        guard let pid = peers[number]?.pid, let process = processes[pid] else { return }
        process.handle.send(SIGKILL)
    }

    /// Closes a peer's connection, once its last message had time to leave; its loss is told as any other.
    func close(_ number: UInt64) {
        guard let descriptor = peers[number]?.descriptor else { return }
        closeLater(number, descriptor)
    }

    private func closeLater(_ number: UInt64, _ descriptor: Int32) {
        _ = loop.setTimer(after: .milliseconds(Self.closeMilliseconds)) { [unowned self] in
            // The descriptor may be another connection's by now.
            try? drainMonitor()
            if owners[descriptor] == number { shutdown(descriptor, Int32(SHUT_RDWR)) }
        }
    }

    /// Whether there is more to take than one pass did. To be asked after all other use of the socket in a pass:
    /// any call may have eaten the wake.
    func hasPending() throws -> Bool {
        try socket.readiness().contains(.readable) || hasMonitorNews || !dying.isEmpty
    }

    // MARK: Taking

    /// Takes what came, up to this pass's share.
    func take(_ handle: (Event) -> Void) throws {
        if hasMonitorNews { try drainMonitor() }
        var isDrained = false
        for _ in 0..<Self.messagesPerPass {
            guard try socket.receive(into: &parts) else {
                isDrained = true
                break
            }
            taken += 1
            if !dying.isEmpty { readSinceDeath += 1 }
            try takeMessage(handle)
        }
        if isDrained { condemned.removeAll() }
        if isDrained || readSinceDeath > Self.messagesBeforeLoss { tellLosses(handle) }
    }

    private func takeMessage(_ handle: (Event) -> Void) throws {
        let routing = parts.bytes(0)
        let hasEnvelope = parts.count > 2 && parts.byteCount(1) == 0
        let head = hasEnvelope ? 2 : 1
        guard parts.count > head, !condemned.contains(routing) else { return }
        let known = numbers[routing]
        guard let number = try known ?? connect(routing, hasEnvelope: hasEnvelope) else { return }
        if known == nil { handle(.connected(peer: number, isRequestReply: hasEnvelope)) }
        guard parts.surplus == 0, parts.count <= head + 2 else {
            handle(.surplus(peer: number, head: parts.bytes(head)))
            return
        }
        let body = parts.count == head + 2 ? SharedBody(parts.take(head + 1)) : nil
        handle(.message(peer: number, head: parts.bytes(head), body: body))
    }

    /// Makes the record of a connection from its first message.
    private func connect(_ routing: [UInt8], hasEnvelope: Bool) throws -> UInt64? {
        // Ends that lie before this connection's beginning are known first: descriptors are used again.
        try drainMonitor()
        // The first frame carries no metadata (a fault of libzmq 4.3.4), the second does.
        guard let descriptor = parts.sourceDescriptor(of: 1) else { return nil }
        let address = (parts.property("Peer-Address", of: 1) ?? "").split(separator: ":").compactMap { Int32($0) }
        // On ipc: "localhost:UID:GID:PID".
        guard routing.first == 0, address.count == 3, UInt32(bitPattern: address[0]) == getuid() else {
            refuse("another user, or a routing ID of its own")
            condemned.insert(routing)
            shutdown(descriptor, Int32(SHUT_RDWR))
            return nil
        }
        lastNumber += 1
        let pid = address[2]
        peers[lastNumber] = Peer(
            number: lastNumber, routing: routing, descriptor: descriptor, pid: pid, hasEnvelope: hasEnvelope)
        numbers[routing] = lastNumber
        owners[descriptor] = lastNumber
        silent[descriptor] = nil
        watch(pid, for: lastNumber, descriptor)
        return lastNumber
    }

    // MARK: Ends

    private func drainMonitor() throws {
        hasMonitorNews = false
        while let event = try monitor.next() {
            guard let descriptor = event.descriptor else { continue }
            switch event.kind {
            case .accepted:
                connections += 1
                awaitFirstWord(descriptor)
                guard connections > connectionLimit else { continue }
                refuse("more than \(connectionLimit) connections, as many as descriptors allow")
                shutdown(descriptor, Int32(SHUT_RDWR))
            case .disconnected:
                connections -= 1
                silent[descriptor] = nil
                guard let number = owners.removeValue(forKey: descriptor) else { continue }
                condemn(number)
            case .connected, .connectRetried, .handshakeSucceeded, .handshakeFailed, .closed, .acceptFailed: break
            }
        }
    }

    // MARK: Silence

    private func awaitFirstWord(_ descriptor: Int32) {
        lastSilent += 1
        silent[descriptor] = lastSilent
        if silenceEnds.isEmpty { setSilenceTimer(after: Self.silence) }
        silenceEnds.append((descriptor, lastSilent, loop.now.advanced(by: Self.silence)))
    }

    private func setSilenceTimer(after pause: Duration) {
        _ = loop.setTimer(after: pause) { [unowned self] in endSilence() }
    }

    /// Closes the connections whose time to say something is over. One timer for all, while there are some.
    private func endSilence() {
        // What ended before is known first; if that cannot be read, the pass will fail by itself.
        try? drainMonitor()
        while let first = silenceEnds.first, first.at <= loop.now || silent[first.descriptor] != first.number {
            silenceEnds.removeFirst()
            guard silent[first.descriptor] == first.number else { continue }
            silent[first.descriptor] = nil
            shutdown(first.descriptor, Int32(SHUT_RDWR))
        }
        if let next = silenceEnds.first { setSilenceTimer(after: next.at.since(loop.now)) }
    }

    /// Tells of refused connections, of many in a second once: whoever is refused tries again.
    private func refuse(_ reason: String) {
        refused += 1
        guard loop.now >= nextWarning else { return }
        logger.warning("refused \(refused) connections, the last one for: \(reason)")
        refused = 0
        nextWarning = loop.now.advanced(by: .seconds(1))
    }

    private func watch(_ pid: Int32, for number: UInt64, _ connection: Int32) {
        guard pid > 0 else { return }
        // One that has ended and was not told of yet is another process of this number.
        if processes[pid]?.handle.hasEnded == true { processEnded(pid) }
        if processes[pid] != nil {
            processes[pid]?.peers.insert(number)
            return
        }
        do {
            let handle = try ProcessDescriptor(peerOf: connection, pid: pid)
            let registration = try loop.add(handle.descriptor, .readable) { [unowned self] _ in processEnded(pid) }
            processes[pid] = WatchedProcess(handle: handle, registration: registration, peers: [number])
        } catch {
            logger.debug("cannot watch process \(pid): \(error)")
            // It has ended already, and a child of it may hold the connection open. Of others the monitor tells.
            let hasEnded = [ESRCH, EINVAL].contains(error.number)
            if hasEnded { closeLater(number, connection) }
        }
    }

    private func processEnded(_ pid: Int32) {
        guard let process = processes.removeValue(forKey: pid) else { return }
        loop.remove(process.registration)
        for number in process.peers {
            guard let descriptor = peers[number]?.descriptor else { continue }
            guard owners[descriptor] == number else {
                condemn(number)
                continue
            }
            // Its last words may still be on their way through libzmq; the connection's end is told after them. The
            // kernel ends it unless a child of that process holds it open.
            closeLater(number, descriptor)
        }
    }

    private func condemn(_ number: UInt64) {
        guard !dying.contains(number) else { return }
        if dying.isEmpty { readSinceDeath = 0 }
        dying.append(number)
    }

    private func tellLosses(_ handle: (Event) -> Void) {
        for number in dying {
            guard let peer = peers.removeValue(forKey: number) else { continue }
            numbers[peer.routing] = nil
            condemned.insert(peer.routing)
            let process = livingProcess(peer.pid)
            unwatch(peer)
            handle(.lost(peer: number, pid: peer.pid, process: process))
        }
        dying.removeAll()
        readSinceDeath = 0
    }

    /// A hold of its own on a watched process that has not ended.
    private func livingProcess(_ pid: Int32) -> ProcessDescriptor? {
        guard let watched = processes[pid]?.handle, let process = try? ProcessDescriptor(pid: pid) else { return nil }
        // Asked last: while the watched one lives, the number is its own.
        return watched.hasEnded ? nil : process
    }

    private func unwatch(_ peer: Peer) {
        processes[peer.pid]?.peers.remove(peer.number)
        guard let process = processes[peer.pid], process.peers.isEmpty else { return }
        loop.remove(process.registration)
        processes[peer.pid] = nil
    }

    // MARK: Sending

    /// Sends a head, and a body beside it, without waiting.
    func send(_ head: [UInt8], _ body: SharedBody? = nil, to number: UInt64) throws -> SendOutcome {
        guard let peer = peers[number] else { return .unreachable }
        let outcome = try socket.send(peer.routing, more: true)
        guard outcome == .sent else {
            if outcome == .unreachable { condemn(number) }
            return outcome
        }
        if peer.hasEnvelope { _ = try socket.send([], more: true) }
        _ = try socket.send(head, more: body != nil)
        if let body {
            var message = try body.share()
            _ = try socket.send(&message)
        }
        return .sent
    }
}
