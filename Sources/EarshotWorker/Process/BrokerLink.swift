internal import DequeModule
internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Logging
internal import ZMTP

/// The worker's connection to the broker that listens on the socket `work`.
///
/// ```
/// disconnected → greeting → awaitingLimits → accepted
/// any          → disconnected     (connection lost; reconnects with exponential backoff)
/// ```
///
/// After the handshake the link sends READY, as soon as its owner has ended all work for an earlier broker. The
/// broker's LIMITS opens it for terminals. Queued terminals are for this broker alone: the link drops them with the
/// connection.
///
/// ZMTP runs inside the event loop. An I/O thread between socket and loop would cost two wake-ups for each message.
final class BrokerLink {
    private enum Phase {
        /// No socket. A timer creates the next one.
        case disconnected
        /// Connected; READY has not been sent.
        case greeting
        /// READY has been sent, LIMITS not received.
        case awaitingLimits
        /// The broker has accepted this worker.
        case accepted
    }

    /// Number of queued terminals at which reading stops. Each message of the broker can cause a terminal; unread
    /// messages stay in the socket and exert backpressure.
    var maximumQueuedTerminals = Int.max

    /// Address of the broker.
    enum BrokerAddress {
        /// Path of its socket `work`.
        case unixSocket(String)
        /// Another machine.
        case tunnel(any BrokerTunnel)
    }

    /// A terminal queued until the broker's socket takes it.
    private struct QueuedTerminal {
        let attempt: AttemptID
        let message: Message
        /// File of the body, deleted if this process ends before the terminal was sent; nil without one.
        var bodyFileName: String?
        var spoolFolder: SpoolFolder?
    }

    private let brokerAddress: BrokerAddress
    private let loop: EventLoop
    private let logger: Logger
    private var phase = Phase.disconnected
    private var stream: MessageStream?
    private var terminals: Deque<QueuedTerminal> = []
    /// Attempts to connect since a broker last answered READY.
    private var connectAttempts = 0
    /// Reason why the runtime folder was not trusted at the last attempt to connect; nil if it was trusted.
    private var runtimeFolderError: FolderError?

    init(_ brokerAddress: BrokerAddress, loop: EventLoop, logger: Logger) {
        self.brokerAddress = brokerAddress
        self.loop = loop
        self.logger = logger
        connect()
    }

    /// Attempts whose terminals are queued.
    var attemptsWithQueuedTerminals: some Sequence<AttemptID> { terminals.lazy.map(\.attempt) }

    /// Number of queued terminals.
    var queuedTerminalCount: Int { terminals.count }

    /// Whether a broker has accepted this worker.
    var isAccepted: Bool { phase == .accepted }

    /// Opens the link for terminals after LIMITS.
    func recordAcceptance() {
        guard phase == .awaitingLimits else { return }
        phase = .accepted
        if case .tunnel(let tunnel) = brokerAddress { tunnel.workerAccepted() }
        connectAttempts = 0
    }

    // MARK: Messages

    /// Returns the next message of the broker and the optional body beside its head; nil if none is available.
    /// Malformed messages are logged and skipped.
    func next() -> (message: PoolMessage, body: [UInt8]?)? {
        while terminals.count < maximumQueuedTerminals, let message = stream?.next() {
            guard !message.hadSurplusFrames else {
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
    func sendCompletion(_ completion: Completion, body: [UInt8]?, spool: SpoolFolder?) {
        let message = Message(head: WorkerMessage.completed(completion).encoded(), body: body)
        sendTerminal(
            QueuedTerminal(
                attempt: completion.attempt, message: message, bodyFileName: completion.fileName, spoolFolder: spool))
    }

    /// Sends the FAILED of a job.
    func sendFailure(_ failure: WorkerMessage, of attempt: AttemptID) {
        sendTerminal(QueuedTerminal(attempt: attempt, message: Message(head: failure.encoded())))
    }

    /// Sends a terminal, or queues it until the socket takes it. Drops it if its broker is gone.
    private func sendTerminal(_ terminal: QueuedTerminal) {
        guard phase == .accepted, let stream else { return }
        guard terminals.isEmpty, !stream.isHungUp, stream.send(terminal.message) else {
            terminals.append(terminal)
            return
        }
    }

    /// Sends a message, or drops it if it cannot be sent immediately.
    ///
    /// - Returns: Whether it was sent.
    @discardableResult
    func sendUnqueued(_ message: WorkerMessage) -> Bool {
        guard phase == .accepted, let stream else { return false }
        return stream.send(Message(head: message.encoded()))
    }

    // MARK: The pass

    /// Sends queued messages and handles a lost connection.
    ///
    /// - Parameters:
    ///   - onLost: Ends all work. Called after the end of each connection.
    ///   - ready: Returns the READY message; nil while work for an earlier broker has not ended.
    /// - Returns: Whether unread messages exist for which the loop will not wake up.
    func runPass(onLost: () -> Void, ready: () -> Ready?) -> Bool {
        guard let stream else { return false }
        // Messages left unread, when the broker hung up and reading is off, are discarded.
        if stream.isEnded || stream.isHungUp && !stream.isReading {
            handleLostConnection(violation: stream.violation)
            onLost()
            return false
        }
        if phase == .greeting, stream.isOpen, let ready = ready(),
            stream.send(Message(head: WorkerMessage.ready(ready).encoded()))
        {
            phase = .awaitingLimits
        }
        flushTerminals(stream)
        stream.isReading = terminals.count < maximumQueuedTerminals
        return stream.isReading && stream.mayHavePendingMessage
    }

    /// Drops all queued terminals and closes the connection. Messages already in the socket may linger.
    func close() {
        for terminal in terminals { if let file = terminal.bodyFileName { terminal.spoolFolder?.delete(file) } }
        terminals.removeAll()
        stream?.linger(milliseconds: Limits.lingerMilliseconds)
        disconnect()
    }

    /// Sends until the queue is empty, the socket is full or the broker has hung up. The loop wakes up when the socket
    /// is writable again.
    private func flushTerminals(_ stream: MessageStream) {
        repeat {
            var count = 0
            while phase == .accepted, !stream.isHungUp, count < terminals.count, stream.send(terminals[count].message) {
                count += 1
            }
            stream.flush()
            terminals.removeFirst(count)
        } while phase == .accepted && queuedTerminalCount > 0 && stream.isIdle && !stream.isHungUp
    }

    // MARK: The connection

    /// Returns whether the runtime folder exists and belongs to this user alone. Checked for each connection, because
    /// the folder can be replaced.
    private func isRuntimeFolderTrusted(_ path: String) -> Bool {
        do throws(FolderError) {
            defer { runtimeFolderError = nil }
            if try PrivateFolder.existsOwned(aroundSocket: path) { return true }
            logger.debug("no broker to connect to: there is no runtime folder")
            return false
        } catch {
            if error != runtimeFolderError {
                logger.error("the runtime folder is not trusted", metadata: ["reason": "\(error)"])
            }
            runtimeFolderError = error
            return false
        }
    }

    private func connect() {
        do throws(SystemError) {
            let descriptor: Int32
            switch brokerAddress {
            case .unixSocket(let path):
                guard isRuntimeFolderTrusted(path) else { return reconnectLater() }
                descriptor = try UnixSocket.connect(to: path)
            case .tunnel(let tunnel): descriptor = try tunnel.connectWorker()
            }
            let stream = try MessageStream(
                descriptor, as: .dealer, frameBytes: Limits.frameBytes,
                maximumMessages: Limits.unsentMessages, loop: loop
            ) {}
            stream.flush()
            self.stream = stream
            phase = .greeting
        } catch {
            logger.debug("no broker to connect to", metadata: ["error": "\(error)"])
            reconnectLater()
        }
    }

    private func handleLostConnection(violation: String?) {
        if let violation {
            logger.error(
                "closed the connection to the broker after a protocol violation", metadata: ["reason": "\(violation)"])
        }
        logger.info("lost the connection to the broker")
        disconnect()
        reconnectLater()
    }

    private func disconnect() {
        phase = .disconnected
        // Files of these terminals stay for the sweep of the next broker.
        terminals.removeAll()
        stream = nil
    }

    private func reconnectLater() {
        connectAttempts += 1
        let delay = Limits.reconnectBackoff.delayNanoseconds(afterFailures: connectAttempts)
        loop.setTimer(after: .nanoseconds(delay)) { [weak self] in
            guard let self, phase == .disconnected else { return }
            connect()
        }
    }
}
