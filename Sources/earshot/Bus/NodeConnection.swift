internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire
internal import EarshotWorker
internal import Glibc

/// Connection to the node gateway of another node, and the requests for bodies on it.
///
/// ```
/// connecting ──WELCOME──→ open ──connection lost, or the node drains──→ waiting ──WELCOME──→ open
/// connecting ──2 s──→ ended (requests: unreachable)
/// waiting ──2 s──→ ended (requests: lost)
/// any ──key refused──→ ended (requests: unreachable)
/// open ──a minute without requests──→ ended
/// ```
///
/// An open connection without a sign of the other node for 2 s ends its requests without a response as lost: that node
/// hangs, and another fetch is faster. A body that arrives goes on until the heartbeats of the connection fail.
final class NodeConnection {
    private enum Phase {
        case connecting
        case open
        case waiting
        case ended
    }

    /// Maximum time for a connection, for its resumption, and for a sign of the other node after requests: it has died, hangs,
    /// or is not reachable.
    private static let patience = Duration.seconds(2)
    /// Time without requests after which the connection is closed.
    private static let idleTime = Duration.seconds(60)
    /// Lease of the session, a little longer than the time for its resumption.
    private static let lease = Duration.seconds(5)
    /// Maximum number of terminals without an acknowledgement: those of all slots.
    private static let window = PullerOptions.slots

    private let loop: EventLoop
    private let onEnd: (NodeConnection) -> Void
    private let handler: HandlerID
    private var phase = Phase.connecting
    private var connection: ClientConnection?
    private var requests: [RequestID: (request: PullRequest, receiver: any PullReceiver)] = [:]
    private var ids: [PullRequest: RequestID] = [:]
    /// Requests whose body goes into a file of the receiver.
    private var inFiles: Set<RequestID> = []
    private var lastNumber: UInt64 = 0
    /// Time of the latest sign of the other node, or of the first request since.
    private var signAt: LoopTime
    private var patienceTimer: TimerID?
    private var idleTimer: TimerID?

    /// Starts to connect.
    ///
    /// - Parameter onEnd: called when the connection has ended by itself.
    /// - Throws: `ClientError` or `SystemError` if the process cannot have a socket.
    init(
        _ endpoint: BusEndpoint, _ network: Network, loop: EventLoop, onEnd: @escaping (NodeConnection) -> Void
    ) throws {
        // All nodes have one principal. A common name would share results and IDs of their requests.
        let number = UInt64.random(in: 0 ... .max)
        guard let handler = HandlerID("puller/\(String(number, radix: 16))") else {
            preconditionFailure("an invalid name of a handler")
        }
        self.handler = handler
        self.loop = loop
        self.onEnd = onEnd
        signAt = loop.now
        let door = Door()
        let connection = try ClientConnection(
            [endpoint], sharing: network, window: Self.window, lease: Self.lease,
            finishesNone: false, bodies: .pull, loop: loop
        ) { event in door.connection?.handle(event) }
        self.connection = connection
        door.connection = self
        connection.bodyStore = self
        awaitSign()
    }

    /// Late reference for the events of the connection, which is created first.
    private final class Door {
        weak var connection: NodeConnection?
    }

    // MARK: Requests

    func request(_ request: PullRequest, for receiver: any PullReceiver) {
        lastNumber += 1
        guard let id = RequestID(String(lastNumber)) else { preconditionFailure("an invalid ID of a request") }
        if let idleTimer { loop.cancelTimer(idleTimer) }
        idleTimer = nil
        if requests.isEmpty { signAt = loop.now }
        awaitSign()
        requests[id] = (request, receiver)
        ids[request] = id
        var fetch = Fetch(handler: handler, request: id, url: request.url)
        fetch.options.method = request.method
        fetch.options.priority = request.priority
        // The puller has its own limits, and the broker of this node decides about a repetition.
        fetch.options.timeoutMilliseconds = WireLimits.seconds * 1_000
        fetch.options.retries = 0
        do throws(ClientError) {
            try connection?.fetch(fetch)
        } catch {
            loop.setTimer(after: .zero) { [weak self] in self?.end(id, .refused("\(error)")) }
        }
    }

    func cancel(_ request: PullRequest) {
        guard let id = ids[request] else { return }
        _ = take(id)
        connection?.cancel(RequestKey(handler, id))
    }

    /// Closes the connection. No receiver is called again.
    func close() {
        phase = .ended
        for timer in [patienceTimer, idleTimer].compactMap(\.self) { loop.cancelTimer(timer) }
        (patienceTimer, idleTimer) = (nil, nil)
        (requests, ids, inFiles) = ([:], [:], [])
        connection?.close()
        connection = nil
    }

    /// Removes a request, and watches for a time without requests.
    private func take(_ id: RequestID) -> (any PullReceiver)? {
        inFiles.remove(id)
        guard let (request, receiver) = requests.removeValue(forKey: id) else { return nil }
        ids[request] = nil
        if requests.isEmpty, idleTimer == nil, phase != .ended {
            idleTimer = loop.setTimer(after: Self.idleTime) { [unowned self] in end(all: .lost("it was idle")) }
        }
        return receiver
    }

    private func end(_ id: RequestID, _ ending: PullEnding) { take(id)?.ended(ending) }

    /// Closes the connection, and ends all requests.
    private func end(all ending: PullEnding) {
        let receivers = requests.values.map(\.receiver)
        close()
        onEnd(self)
        for receiver in receivers { receiver.ended(ending) }
    }

    // MARK: Events

    private func handle(_ event: ClientEvent) {
        // Failed attempts to connect again are no sign.
        let isSign = if case .state(.disconnected) = event { phase == .open } else { true }
        if isSign { signAt = loop.now }
        switch event {
        case .terminal(let delivery, let body): ended(delivery, body)
        case .refused(let reply) where reply.subject == .hello:
            endLater(.unreachable("it refuses the session (\(Self.words(of: reply)))"))
        case .refused(let reply): if let id = reply.key?.request { end(id, .refused(Self.words(of: reply))) }
        case .state(.connected): phase = .open
        case .state(.disconnected), .state(.draining):
            if let failure = connection?.failure { return endLater(.unreachable("\(failure)")) }
            if phase == .open { phase = .waiting }
            awaitSign()
        case .state(.incompatible): endLater(.unreachable("it speaks another version of the protocol"))
        case .accepted, .progress, .cancelled, .removed, .answer, .changed: break
        }
    }

    /// Waits for a sign of the other node. Without requests an open connection may be silent.
    private func awaitSign() {
        guard patienceTimer == nil, phase != .ended else { return }
        patienceTimer = loop.setTimer(after: max(.zero, Self.patience - loop.now.since(signAt))) { [unowned self] in
            patienceTimer = nil
            guard phase != .open || !requests.isEmpty else { return }
            guard loop.now.since(signAt) >= Self.patience else { return awaitSign() }
            switch phase {
            case .connecting: end(all: .unreachable(connection?.faultText ?? "no session within 2 s"))
            case .waiting: end(all: .lost(connection?.faultText ?? "no session within 2 s"))
            case .open:
                signAt = loop.now
                for id in requests.keys where !inFiles.contains(id) {
                    connection?.cancel(RequestKey(handler, id))
                    end(id, .lost("no answer within 2 s"))
                }
                awaitSign()
            case .ended: break
            }
        }
    }

    /// Code and detail of a refusal.
    private static func words(of reply: RefusedMessage) -> String {
        [reply.code, reply.detail ?? ""].filter { !$0.isEmpty }.joined(separator: ": ")
    }

    /// Ends the connection outside its own event.
    private func endLater(_ ending: PullEnding) {
        loop.setTimer(after: .zero) { [weak self] in
            guard let self, phase != .ended else { return }
            end(all: ending)
        }
    }

    private func ended(_ delivery: DeliveredTerminal, _ body: [UInt8]) {
        defer { if delivery.isFile { connection?.finish(delivery) } }
        let id = delivery.key.request
        guard delivery.key.handler == handler, requests[id] != nil else { return }
        guard let head = PulledHead(delivery.terminal) else {
            guard case .failed(let failure) = delivery.terminal.outcome else { return end(id, .refused("no response")) }
            return end(id, .refused(failure.code))
        }
        if delivery.isLost { return end(id, .lost("the body was lost")) }
        if let number = delivery.storeFailure { return end(id, .unwritable(number)) }
        end(id, inFiles.contains(id) ? .file(head) : .message(head, body: body))
    }
}

extension NodeConnection: BodyStore {
    func makeFile(for delivery: DeliveredTerminal) -> BodyStoreFile {
        signAt = loop.now
        let id = delivery.key.request
        guard let receiver = requests[id]?.receiver, let head = PulledHead(delivery.terminal),
            let descriptor = receiver.makeFile(for: head)
        else { return .none(ECANCELED) }
        inFiles.insert(id)
        return .open(descriptor)
    }

    func received(_ bytes: Int, of delivery: DeliveredTerminal) {
        signAt = loop.now
        requests[delivery.key.request]?.receiver.received(bytes)
    }
}

extension PulledHead {
    /// Head of a response, also of an error page; nil for a failure without a response.
    fileprivate init?(_ terminal: Terminal) {
        switch terminal.outcome {
        case .result(let status, let response): self.init(status, response)
        case .failed(let failure):
            guard let status = failure.status, let response = failure.response else { return nil }
            self.init(status, response)
        }
    }

    private init(_ status: Int, _ response: Terminal.Response) {
        self.init(
            status: status, length: response.length, sha256: response.sha256, httpFields: response.httpFields)
    }
}

/// Connections of the puller to the node gateways of the other nodes, one for each node. They are opened on demand.
final class NodeConnections: NodeNetwork {
    private let key: BusKey
    private let publicKey: String
    private let network: Network
    private let loop: EventLoop
    private var connections: [NodeAddress: NodeConnection] = [:]

    /// - Parameter cluster: its key pair is that of both ends.
    /// - Throws: `ClientError` if libzmq is missing.
    init(_ cluster: ClusterFile, loop: EventLoop) throws(ClientError) {
        key = try BusKey(name: cluster.name, publicKey: cluster.publicKey, secretKey: cluster.secretKey)
        publicKey = cluster.publicKey
        network = try Network(.short)
        self.loop = loop
    }

    func request(_ request: PullRequest, for receiver: any PullReceiver) {
        do {
            try connection(to: request.node).request(request, for: receiver)
        } catch {
            // Descriptors or memory have run out. The receiver is not called from inside this call.
            loop.setTimer(after: .zero) { receiver.ended(.unreachable("\(error)")) }
        }
    }

    func cancel(_ request: PullRequest) { connections[request.node]?.cancel(request) }

    func close() {
        for connection in connections.values { connection.close() }
        connections = [:]
    }

    private func connection(to node: NodeAddress) throws -> NodeConnection {
        if let connection = connections[node] { return connection }
        let endpoint = try BusEndpoint(node.description, key: key, serverKey: publicKey)
        let connection = try NodeConnection(endpoint, network, loop: loop) { [weak self] ended in
            if self?.connections[node] === ended { self?.connections[node] = nil }
        }
        connections[node] = connection
        return connection
    }
}
