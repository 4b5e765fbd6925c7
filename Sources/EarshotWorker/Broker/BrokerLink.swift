internal import DequeModule
internal import EarshotLoop
internal import EarshotWire
internal import Logging
internal import ZMTP

/// The worker's connection to whatever broker listens.
///
/// `down -> greeting -> waiting -> up`: a socket is connected, READY goes out when the broker has shaken hands, and its
/// LIMITS open the way for terminals, which wait until then. When the connection ends all begins anew on another
/// socket, so that nothing meant for one broker reaches the next.
///
/// It speaks ZeroMQ's protocol itself, in the loop: a thread between the socket and the loop would have to be woken for
/// each message, and wake the loop in turn.
final class BrokerLink {
    private enum Phase {
        /// There is no socket; a timer makes the next one.
        case down
        /// The broker has not shaken hands.
        case greeting
        /// READY is out, LIMITS not in.
        case waiting
        /// The broker has taken this worker in.
        case up
    }

    /// Terminals that wait at which nothing more of the broker is read: each of its messages can have an answer, and
    /// what it says then stays in the socket.
    var mostWaiting = Int.max

    private let path: String
    private let loop: EventLoop
    private let logger: Logger
    private var phase = Phase.down
    private var stream: MessageStream?
    private var terminals: Deque<Outgoing> = []
    /// Heads that this broker is to have before any terminal.
    private var introductions: Deque<[UInt8]> = []
    private var delay = Limits.reconnectDelay.first
    /// Why the runtime folder was not trusted at the last attempt to connect; nil if it was.
    private var distrust: FolderError?

    /// - Parameter path: of the broker's socket `work`.
    init(_ path: String, loop: EventLoop, logger: Logger) {
        self.path = path
        self.loop = loop
        self.logger = logger
        connect()
    }

    /// The attempts whose terminals wait to be sent.
    var waiting: some Sequence<AttemptID> { terminals.lazy.map(\.attempt) }

    /// What they are about.
    var waitingHolds: [HeldAttempt] { terminals.map { $0.held(loop.now) } }

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
    func next() -> (message: PoolMessage, body: [UInt8]?)? {
        while terminals.count < mostWaiting, let message = stream?.next() {
            guard !message.isLonger else {
                logger.warning("a message of the broker has too many frames")
                continue
            }
            do throws(WireError) {
                return (try PoolMessage(head: message.head), message.body)
            } catch {
                logger.warning("a message of the broker is refused", metadata: ["code": "\(error.code.rawValue)"])
            }
        }
        return nil
    }

    /// Sends a terminal, now or as soon as a broker takes it.
    ///
    /// - Parameter waiting: makes of it what waits, if it has to.
    func send(_ terminal: Message, waiting: (Message) -> Outgoing) {
        guard phase == .up, introductions.isEmpty, terminals.isEmpty, let stream, !stream.isHungUp,
            stream.send(terminal)
        else {
            terminals.append(waiting(terminal))
            return
        }
    }

    /// Sends a message that is worth nothing later: dropped when it cannot be sent now.
    ///
    /// - Returns: whether it was sent.
    @discardableResult
    func sendNow(_ message: WorkerMessage) -> Bool {
        guard phase == .up, let stream else { return false }
        return stream.send(Message(head: message.encoded()))
    }

    // MARK: The pass

    /// Sends what waits and mends what broke.
    ///
    /// - Parameter ready: what to greet a broker with, asked once for each.
    /// - Returns: whether messages wait to be read that nothing will wake the loop for.
    func settle(ready: () -> Ready) -> Bool {
        guard let stream else { return false }
        // What is not read of a broker that is gone is for nobody.
        if stream.isEnded || stream.isHungUp && !stream.isReading {
            lose(stream.violation)
            return false
        }
        if phase == .greeting, stream.isOpen, stream.send(Message(head: WorkerMessage.ready(ready()).encoded())) {
            phase = .waiting
        }
        flush(stream)
        stream.isReading = terminals.count < mostWaiting
        return stream.isReading && stream.hasPending
    }

    /// Gives up all that was not sent, and the connection, whose last messages may linger.
    func close() {
        for terminal in terminals { terminal.discard?() }
        terminals.removeAll()
        stream?.linger(milliseconds: Limits.lingerMilliseconds)
        disconnect()
    }

    /// Until all is sent, or the socket takes no more: then the loop wakes when it does.
    private func flush(_ stream: MessageStream) {
        repeat {
            while phase == .up, let head = introductions.first, stream.send(Message(head: head)) {
                introductions.removeFirst()
            }
            while phase == .up, introductions.isEmpty, let terminal = terminals.first,
                stream.send(terminal.message)
            {
                terminals.removeFirst()
            }
            stream.flush()
        } while phase == .up && waitingCount + introductions.count > 0 && stream.isIdle
    }

    // MARK: The connection

    /// Whether the runtime folder exists and is this user's alone; it can be another one each time.
    private func isTrusted() -> Bool {
        do throws(FolderError) {
            defer { distrust = nil }
            if try PrivateFolder.isClosed(around: path) { return true }
            logger.debug("no broker to connect to: there is no runtime folder")
            return false
        } catch {
            if error != distrust {
                logger.error("the runtime folder is not trusted", metadata: ["reason": "\(error)"])
            }
            distrust = error
            return false
        }
    }

    private func connect() {
        guard isTrusted() else { return reconnectLater() }
        do throws(SystemError) {
            let descriptor = try UnixSocket.connect(to: path)
            let stream = try MessageStream(
                descriptor, as: .dealer, frameBytes: Limits.frameBytes, mostMessages: Limits.unsentMessages, loop: loop
            ) {}
            stream.flush()
            self.stream = stream
            phase = .greeting
        } catch {
            logger.debug("no broker to connect to", metadata: ["error": "\(error)"])
            reconnectLater()
        }
    }

    private func lose(_ violation: String?) {
        if let violation { logger.error("the broker cannot be understood", metadata: ["reason": "\(violation)"]) }
        logger.info("the broker is gone")
        disconnect()
        reconnectLater()
    }

    private func disconnect() {
        phase = .down
        introductions.removeAll()
        stream = nil
    }

    private func reconnectLater() {
        loop.setTimer(after: delay) { [weak self] in
            guard let self, phase == .down else { return }
            connect()
        }
        delay = min(delay * 2, Limits.reconnectDelay.last)
    }
}
