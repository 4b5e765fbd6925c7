internal import DequeModule
internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Logging
internal import ZMTP

/// The worker's connection to the broker that listens on the socket `work`.
///
/// ```
/// down → greeting → waiting → up
/// any  → down                        (connection lost; reconnects with exponential backoff)
/// ```
///
/// After the handshake the link sends READY, as soon as its owner has ended all work for an earlier broker. The broker's
/// LIMITS opens it for terminals. They are for the broker of the connection alone: with it, they are dropped.
///
/// ZMTP runs inside the event loop. An I/O thread between socket and loop would cost two wake-ups for each message.
final class BrokerLink {
    private enum Phase {
        /// No socket. A timer creates the next one.
        case down
        /// Connected; READY has not been sent.
        case greeting
        /// READY has been sent, LIMITS not received.
        case waiting
        /// The broker has accepted this worker.
        case up
    }

    /// Number of queued terminals at which reading stops. Each message of the broker can cause a terminal; unread
    /// messages stay in the socket and exert backpressure.
    var mostWaiting = Int.max

    /// Place of the broker.
    enum BrokerAddress {
        /// Path of its socket `work`.
        case socket(String)
        /// Another machine.
        case tunnel(any BrokerTunnel)
    }

    /// A terminal queued until the broker's socket takes it.
    private struct Terminal {
        let attempt: AttemptID
        let message: Message
        /// File of the body, deleted if this process ends before the terminal was sent; nil without one.
        var file: String?
        var spool: SpoolFolder?
    }

    private let place: BrokerAddress
    private let loop: EventLoop
    private let logger: Logger
    private var phase = Phase.down
    private var stream: MessageStream?
    private var terminals: Deque<Terminal> = []
    /// Attempts to connect since a broker last answered READY.
    private var attempts = 0
    /// Reason why the runtime folder was not trusted at the last attempt to connect; nil if it was trusted.
    private var distrust: FolderError?

    init(_ place: BrokerAddress, loop: EventLoop, logger: Logger) {
        self.place = place
        self.loop = loop
        self.logger = logger
        connect()
    }

    /// Attempts whose terminals are queued.
    var waiting: some Sequence<AttemptID> { terminals.lazy.map(\.attempt) }

    /// Number of queued terminals.
    var waitingCount: Int { terminals.count }

    /// Whether a broker has accepted this worker.
    var isUp: Bool { phase == .up }

    /// Opens the link for terminals after LIMITS.
    func welcomed() {
        guard phase == .waiting else { return }
        phase = .up
        if case .tunnel(let tunnel) = place { tunnel.accepted() }
        attempts = 0
    }

    // MARK: Messages

    /// Returns the next message of the broker and the optional body beside its head; nil if none is available.
    /// Malformed messages are logged and skipped.
    func next() -> (message: PoolMessage, body: [UInt8]?)? {
        while terminals.count < mostWaiting, let message = stream?.next() {
            guard !message.isLonger else {
                logger.warning("ignored a message of the broker with too many frames")
                continue
            }
            do throws(WireError) {
                return (try PoolMessage(head: message.head), message.body)
            } catch {
                logger.warning(
                    "ignored a malformed message of the broker", metadata: ["code": "\(error.code.rawValue)"])
            }
        }
        return nil
    }

    /// Sends the DONE of a job. Deletes the file of its body if this process ends before.
    func send(_ completion: Completion, _ body: [UInt8]?, spool: SpoolFolder?) {
        let message = Message(head: WorkerMessage.done(completion).encoded(), body: body)
        send(Terminal(attempt: completion.attempt, message: message, file: completion.file, spool: spool))
    }

    /// Sends the FAILED of a job.
    func send(_ failure: WorkerMessage, of attempt: AttemptID) {
        send(Terminal(attempt: attempt, message: Message(head: failure.encoded())))
    }

    /// Sends a terminal, or queues it until the socket takes it. Drops it if its broker is gone.
    private func send(_ terminal: Terminal) {
        guard phase == .up, let stream else { return }
        guard terminals.isEmpty, !stream.isHungUp, stream.send(terminal.message) else {
            terminals.append(terminal)
            return
        }
    }

    /// Sends a message, or drops it if it cannot be sent immediately.
    ///
    /// - Returns: Whether it was sent.
    @discardableResult
    func sendNow(_ message: WorkerMessage) -> Bool {
        guard phase == .up, let stream else { return false }
        return stream.send(Message(head: message.encoded()))
    }

    // MARK: The pass

    /// Sends queued messages and handles a lost connection.
    ///
    /// - Parameters:
    ///   - lost: Ends all work. Called after the end of each connection.
    ///   - ready: Returns the READY message; nil while work for an earlier broker has not ended.
    /// - Returns: Whether unread messages exist for which the loop will not wake up.
    func runPass(lost: () -> Void, ready: () -> Ready?) -> Bool {
        guard let stream else { return false }
        // Messages left unread, when the broker hung up and reading is off, are discarded.
        if stream.isEnded || stream.isHungUp && !stream.isReading {
            lose(stream.violation)
            lost()
            return false
        }
        if phase == .greeting, stream.isOpen, let ready = ready(),
            stream.send(Message(head: WorkerMessage.ready(ready).encoded()))
        {
            phase = .waiting
        }
        flush(stream)
        stream.isReading = terminals.count < mostWaiting
        return stream.isReading && stream.hasPending
    }

    /// Drops all queued terminals and closes the connection. Messages already in the socket may linger.
    func close() {
        for terminal in terminals { if let file = terminal.file { terminal.spool?.delete(file) } }
        terminals.removeAll()
        stream?.linger(milliseconds: Limits.lingerMilliseconds)
        disconnect()
    }

    /// Sends until the queue is empty, the socket is full or the broker has hung up. The loop wakes up when the socket is
    /// writable again.
    private func flush(_ stream: MessageStream) {
        repeat {
            var count = 0
            while phase == .up, !stream.isHungUp, count < terminals.count, stream.send(terminals[count].message) {
                count += 1
            }
            stream.flush()
            terminals.removeFirst(count)
        } while phase == .up && waitingCount > 0 && stream.isIdle && !stream.isHungUp
    }

    // MARK: The connection

    /// Returns whether the runtime folder exists and belongs to this user alone. Checked for each connection, because
    /// the folder can be replaced.
    private func isTrusted(_ path: String) -> Bool {
        do throws(FolderError) {
            defer { distrust = nil }
            if try PrivateFolder.isOwn(around: path) { return true }
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
        do throws(SystemError) {
            let descriptor: Int32
            switch place {
            case .socket(let path):
                guard isTrusted(path) else { return reconnectLater() }
                descriptor = try UnixSocket.connect(to: path)
            case .tunnel(let tunnel): descriptor = try tunnel.connect()
            }
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
        if let violation {
            logger.error(
                "closed the connection to the broker after a protocol violation", metadata: ["reason": "\(violation)"])
        }
        logger.info("lost the connection to the broker")
        disconnect()
        reconnectLater()
    }

    private func disconnect() {
        phase = .down
        // Files of these terminals stay for the sweep of the next broker.
        terminals.removeAll()
        stream = nil
    }

    private func reconnectLater() {
        attempts += 1
        loop.setTimer(after: .nanoseconds(Limits.reconnecting.pause(afterFailures: attempts))) { [weak self] in
            guard let self, phase == .down else { return }
            connect()
        }
    }
}
