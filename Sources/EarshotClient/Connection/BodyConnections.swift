internal import DequeModule
internal import EarshotLoop
internal import EarshotWire
internal import ZMTP

/// Further connections of a session over a network, which read its bodies. If packets are lost, one TCP connection
/// carries less than the network.
///
/// ```
/// connecting ──handshake──→ greeting ──WELCOME──→ reading ──lost, or an unexpected message──→ closed
///     └───────────────────────┴──lost, or no permission──────────────────────────────────────↑
/// ```
///
/// A closed connection is not opened again: the others carry its READs. The owner replaces this object with the
/// session, and drops it after a time without bodies.
final class BodyConnections {
    /// Number of connections beside that of the session.
    private static let connectionCount = 3
    /// Maximum number of READs without an answer of each connection.
    private static let maximumOpenReads = 16
    /// Time without bodies after which the connections are closed.
    private static let idleTimeout = Duration.seconds(10)

    private final class Connection {
        let link: CurveLink
        /// Whether WELCOME was received.
        var isReading = false
        var outbox: Deque<[UInt8]>

        init(_ link: CurveLink, hello: [UInt8]) {
            self.link = link
            outbox = [hello]
        }
    }

    let sessionToken: SessionToken
    private let loop: EventLoop
    /// Connections by number from 1; nil for a closed one. Number 0 is the session's.
    private var connections: [Connection?] = [nil]
    private var idleTimer: TimerID?
    /// Whether there was no body for a time.
    private(set) var isIdle = false
    /// Whether reading is paused.
    var isPaused = false {
        didSet { if isPaused != oldValue { for case let each? in connections { each.link.isReading = !isPaused } } }
    }

    /// Starts to connect. Connections that cannot be created are missing.
    ///
    /// - Parameters:
    ///   - token: token of the session.
    ///   - link: creates a connection to the bus of the session.
    init(token: SessionToken, loop: EventLoop, link: () throws -> CurveLink) {
        sessionToken = token
        self.loop = loop
        var hello = Hello(window: 1)
        hello.pullsBodies = true
        hello.bodySessionToken = token
        let head = ClientMessage.hello(hello).encoded()
        for _ in 0..<Self.connectionCount { connections.append((try? link()).map { Connection($0, hello: head) }) }
    }

    deinit { if let idleTimer { loop.cancelTimer(idleTimer) } }

    /// Measures the time without bodies.
    func updateIdleTimer(hasBodies: Bool) {
        if hasBodies, let timer = idleTimer {
            loop.cancelTimer(timer)
            idleTimer = nil
        } else if !hasBodies, idleTimer == nil {
            idleTimer = loop.setTimer(after: Self.idleTimeout) { [unowned self] in isIdle = true }
        }
    }

    /// Handles the next event of a connection.
    ///
    /// - Returns: actions of the core, and the body of the message; nil without an event.
    func handleNextEvent(_ core: inout ClientCore) -> (actions: [ClientAction], body: [UInt8])? {
        for (number, connection) in connections.enumerated() {
            guard let connection else { continue }
            _ = connection.link.readConnectionEvents()
            if let message = connection.link.nextMessage() {
                if let actions = handleMessage(message, number, connection, &core) {
                    return (actions, message.body ?? [])
                }
            } else if connection.link.ending == nil || connection.link.needsPass(hasUnsent: false) {
                continue
            }
            connections[number] = nil
            core.pulls.closeConnection(number)
            return ([], [])
        }
        return nil
    }

    /// - Returns: actions of the core; nil for an unexpected message.
    private func handleMessage(
        _ message: ZMTP.Message, _ number: Int, _ connection: Connection, _ core: inout ClientCore
    ) -> [ClientAction]? {
        let decoded: BrokerMessage
        do throws(WireError) {
            decoded = try BrokerMessage(head: message.head)
        } catch {
            // Verbs of later versions are ignored. A malformed message may have been the answer to a READ.
            return error.code == .unknownVerb ? [] : nil
        }
        switch decoded {
        case .welcome(let welcome) where welcome.readsOtherSession && !connection.isReading:
            connection.isReading = true
            core.pulls.openConnection(number, maximumReads: Self.maximumOpenReads)
            return []
        case .bodyData(let data): return core.dataReceived(data, count: message.body?.count ?? 0, over: number)
        // The broker drains.
        case .goodbye: return []
        // An ERROR names no READ. The open READs take another connection.
        default: return nil
        }
    }

    /// Sends a READ over a connection. It is lost with the connection.
    func send(_ read: BodyRead, over number: Int) {
        connections[number]?.outbox.append(ClientMessage.readBody(read).encoded())
    }

    /// Sends queued messages as far as libzmq takes them.
    ///
    /// - Returns: whether an event is pending that no descriptor reports.
    func flush() -> Bool {
        var isPending = false
        for case let connection? in connections {
            while let head = connection.outbox.first, connection.link.send(ZMTP.Message(head: head)) {
                connection.outbox.removeFirst()
            }
            if connection.link.needsPass(hasUnsent: !connection.outbox.isEmpty) { isPending = true }
        }
        return isPending
    }
}
