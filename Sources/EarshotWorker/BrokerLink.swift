internal import DequeModule
internal import EarshotLoop
internal import EarshotWire
internal import Logging
internal import ZeroMQ

/// The worker's connection to whatever broker serves the endpoint.
///
/// `down -> greeting -> waiting -> up`: a socket is made, READY goes out when a broker takes the connection, and its
/// LIMITS open the way for terminals, which wait until then. When the connection ends all begins anew on another
/// socket, so that nothing meant for one broker reaches the next.
final class BrokerLink {
    private enum Phase {
        /// There is no socket; a timer makes the next one.
        case down
        /// READY has not been taken by a connection.
        case greeting
        /// READY is out, LIMITS not in.
        case waiting
        /// The broker has taken this worker in.
        case up
    }

    /// One socket's life.
    private struct Connection: ~Copyable {
        let socket: Socket
        let monitor: Monitor
        let registrations: [EventLoop.Registration]
    }

    private let endpoint: String
    private let loop: EventLoop
    private let logger: Logger
    private let context: Context
    private var phase = Phase.down
    private var connection: Connection?
    private var parts = Multipart(capacity: 2)
    private var terminals: Deque<Outgoing> = []
    /// Heads that this broker is to have before any terminal.
    private var introductions: Deque<[UInt8]> = []
    private var delay = Limits.reconnectDelay.first
    /// Whether the monitor told of an end that has not been dealt with.
    private var isLost = false

    init(_ endpoint: String, loop: EventLoop, logger: Logger) throws(ZeroMQError) {
        self.endpoint = endpoint
        self.loop = loop
        self.logger = logger
        context = try Context.make()
        try connect()
    }

    /// The attempts whose terminals wait to be sent.
    var waiting: some Sequence<AttemptID> { terminals.lazy.map(\.attempt) }

    /// What they are about.
    var waitingHolds: some Sequence<HeldAttempt> { terminals.lazy.map(\.held) }

    /// How many terminals wait to be sent.
    var waitingCount: Int { terminals.count }

    /// Whether a broker has taken this worker in.
    var isUp: Bool { phase == .up }

    /// The broker has answered READY: terminals may go to it, once it has been told of what this worker holds.
    ///
    /// - Parameter holds: asked once for each broker.
    func welcomed(holds: () -> [HeldAttempt]) {
        guard phase == .waiting else { return }
        phase = .up
        introductions = Deque(holds().map { WorkerMessage.holds($0).encoded() })
        delay = Limits.reconnectDelay.first
    }

    // MARK: Messages

    /// The next message of the broker, with the body beside its head if there is one; nil when none waits. What is none
    /// is logged and passed over.
    func next() throws(ZeroMQError) -> (message: PoolMessage, body: [UInt8]?)? {
        while phase != .down, try connection?.socket.receive(into: &parts) == true {
            guard parts.surplus == 0 else {
                logger.warning("a message of the broker has too many frames")
                continue
            }
            do throws(WireError) {
                let message = try PoolMessage(head: parts.bytes(0))
                return (message, parts.count > 1 ? parts.bytes(1) : nil)
            } catch {
                logger.warning("a message of the broker is refused", metadata: ["code": "\(error.code.rawValue)"])
            }
        }
        return nil
    }

    /// Sends a terminal, now or as soon as a broker takes it.
    func send(_ terminal: Outgoing) {
        terminals.append(terminal)
    }

    /// Sends a message that is worth nothing later: dropped when it cannot be sent now.
    ///
    /// - Returns: whether it was sent.
    @discardableResult
    func sendNow(_ message: WorkerMessage) throws(ZeroMQError) -> Bool {
        guard phase == .up else { return false }
        return try connection?.socket.send(message.encoded()) == .sent
    }

    // MARK: The pass

    /// Sends what waits and mends what broke.
    ///
    /// - Parameter ready: what to greet a broker with, asked once for each.
    /// - Returns: whether messages wait to be read: ask before sleeping, since any use of the socket may have eaten the
    ///   wake.
    func settle(ready: () -> Ready) throws(ZeroMQError) -> Bool {
        if isLost { lose() }
        guard phase != .down else { return false }
        if phase == .greeting, try connection?.socket.send(WorkerMessage.ready(ready()).encoded()) == .sent {
            phase = .waiting
        }
        try flush()
        return try connection?.socket.readiness().contains(.readable) == true
    }

    /// Gives up all that was not sent, and the connection, whose last messages may linger.
    func close() {
        for terminal in terminals { terminal.discard?() }
        terminals.removeAll()
        disconnect()
    }

    private func flush() throws(ZeroMQError) {
        while phase == .up, let head = introductions.first {
            guard try connection?.socket.send(head) == .sent else { return }
            introductions.removeFirst()
        }
        while phase == .up, let terminal = terminals.first {
            let hasBody = terminal.body != nil
            guard try connection?.socket.send(terminal.head, more: hasBody) == .sent else { return }
            // Taken at its first frame, it is taken.
            if let body = terminal.body { _ = try connection?.socket.send(body) }
            terminals.removeFirst()
        }
    }

    // MARK: The connection

    private func connect() throws(ZeroMQError) {
        var options = SocketOptions()
        options.lingerMilliseconds = Limits.lingerMilliseconds
        let socket = try context.socket(.dealer, options)
        let monitor = try Monitor.make(of: socket)
        try socket.connect(endpoint)
        do throws(SystemError) {
            // What the socket has to say is asked for at the end of each pass: the wake is enough.
            let registrations = [
                try loop.add(socket.descriptor, .readable) { _ in },
                try loop.add(monitor.descriptor, .readable) { [weak self] _ in self?.monitored() },
            ]
            connection = Connection(socket: socket, monitor: monitor, registrations: registrations)
        } catch {
            logger.error("the broker's socket cannot be watched", metadata: ["error": "\(error)"])
            return reconnectLater()
        }
        phase = .greeting
        // The wake for what happened before the descriptor was watched may be past.
        monitored()
    }

    private func monitored() {
        do throws(ZeroMQError) {
            while let event = try connection?.monitor.next() {
                if event.kind == .disconnected { isLost = true }
            }
        } catch {
            logger.error("the broker's connection cannot be watched", metadata: ["error": "\(error)"])
            isLost = true
        }
    }

    private func lose() {
        logger.info("the broker is gone")
        disconnect()
        reconnectLater()
    }

    private func disconnect() {
        isLost = false
        phase = .down
        introductions.removeAll()
        guard let connection = connection.take() else { return }
        for registration in connection.registrations { loop.remove(registration) }
    }

    private func reconnectLater() {
        loop.setTimer(after: delay) { [weak self] in
            guard let self, phase == .down else { return }
            do throws(ZeroMQError) {
                try connect()
            } catch {
                logger.error("no socket for the broker", metadata: ["error": "\(error)"])
                reconnectLater()
            }
        }
        delay = min(delay * 2, Limits.reconnectDelay.last)
    }
}
