internal import EarshotClient
internal import EarshotLoop
internal import EarshotWire
internal import EarshotWorker
internal import Glibc

/// Connection to the node gateway of another node, and the requests for bodies on it.
///
/// ```
/// connecting ──WELCOME──→ open ──connection lost, or the node drains──→ reconnecting ──WELCOME──→ open
/// connecting ──2 s──→ ended (requests: unreachable)
/// reconnecting ──2 s──→ ended (requests: lost)
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
        case reconnecting
        case ended
    }

    /// Maximum time for a connection, for its resumption, and for a sign of the other node after requests. A node
    /// without one has died, hangs, or is not reachable.
    private static let responseTimeout = Duration.seconds(2)
    /// Time without requests after which the connection is closed.
    private static let idleTimeout = Duration.seconds(60)
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
    private var requestIDs: [PullRequest: RequestID] = [:]
    /// Requests whose body goes into a file of the receiver.
    private var requestsWithFiles: Set<RequestID> = []
    private var lastRequestNumber: UInt64 = 0
    /// Time of the latest sign of the other node, or of the first request since.
    private var lastActivity: LoopTime
    private var responseTimer: TimerID?
    private var idleTimer: TimerID?

    /// Starts to connect.
    ///
    /// - Parameter onEnd: called when the connection has ended by itself.
    /// - Throws: `ClientError` or `SystemError` if the process cannot open a socket.
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
        lastActivity = loop.now
        let reference = ConnectionReference()
        let connection = try ClientConnection(
            [endpoint], sharing: network, window: Self.window, lease: Self.lease,
            consumerFinishesDeliveries: false, bodies: .pull, loop: loop
        ) { event in reference.connection?.handle(event) }
        self.connection = connection
        reference.connection = self
        connection.bodyStore = self
        awaitResponse()
    }

    /// Late reference for the events of the connection, which is created first.
    private final class ConnectionReference {
        weak var connection: NodeConnection?
    }

    // MARK: Requests

    func request(_ request: PullRequest, for receiver: any PullReceiver) {
        lastRequestNumber += 1
        guard let id = RequestID(String(lastRequestNumber)) else { preconditionFailure("an invalid ID of a request") }
        if let idleTimer { loop.cancelTimer(idleTimer) }
        idleTimer = nil
        if requests.isEmpty { lastActivity = loop.now }
        awaitResponse()
        requests[id] = (request, receiver)
        requestIDs[request] = id
        var fetch = Fetch(handler: handler, request: id, url: request.url)
        fetch.options.method = request.method
        fetch.options.priority = request.priority
        // The puller has its own limits, and the broker of this node decides about retries.
        fetch.options.timeoutMilliseconds = WireLimits.durationSeconds * 1_000
        fetch.options.retries = 0
        do throws(ClientError) {
            try connection?.fetch(fetch)
        } catch {
            loop.setTimer(after: .zero) { [weak self] in self?.endRequest(id, .requestRefused("\(error)")) }
        }
    }

    func cancel(_ request: PullRequest) {
        guard let id = requestIDs[request] else { return }
        _ = removeRequest(id)
        connection?.cancel(RequestKey(handler, id))
    }

    /// Closes the connection. No receiver is called again.
    func close() {
        phase = .ended
        for timer in [responseTimer, idleTimer].compactMap(\.self) { loop.cancelTimer(timer) }
        (responseTimer, idleTimer) = (nil, nil)
        (requests, requestIDs, requestsWithFiles) = ([:], [:], [])
        connection?.close()
        connection = nil
    }

    /// Removes a request, and watches for a time without requests.
    private func removeRequest(_ id: RequestID) -> (any PullReceiver)? {
        requestsWithFiles.remove(id)
        guard let (request, receiver) = requests.removeValue(forKey: id) else { return nil }
        requestIDs[request] = nil
        if requests.isEmpty, idleTimer == nil, phase != .ended {
            idleTimer = loop.setTimer(after: Self.idleTimeout) { [unowned self] in
                endAllRequests(with: .connectionLost("it was idle"))
            }
        }
        return receiver
    }

    private func endRequest(_ id: RequestID, _ ending: PullEnding) { removeRequest(id)?.requestEnded(ending) }

    /// Closes the connection, and ends all requests.
    private func endAllRequests(with ending: PullEnding) {
        let receivers = requests.values.map(\.receiver)
        close()
        onEnd(self)
        for receiver in receivers { receiver.requestEnded(ending) }
    }

    // MARK: Events

    private func handle(_ event: ClientEvent) {
        // Failed attempts to connect again are no sign.
        let isSign = if case .state(.disconnected) = event { phase == .open } else { true }
        if isSign { lastActivity = loop.now }
        switch event {
        case .terminal(let delivery, let body): terminalArrived(delivery, body)
        case .messageRefused(let reply) where reply.subject == .hello:
            endConnectionLater(.nodeUnreachable("it refuses the session (\(Self.refusalText(of: reply)))"))
        case .messageRefused(let reply):
            if let id = reply.key?.request { endRequest(id, .requestRefused(Self.refusalText(of: reply))) }
        case .state(.connected): phase = .open
        case .state(.disconnected), .state(.draining):
            if let failure = connection?.failure { return endConnectionLater(.nodeUnreachable("\(failure)")) }
            if phase == .open { phase = .reconnecting }
            awaitResponse()
        case .state(.incompatible): endConnectionLater(.nodeUnreachable("it speaks another version of the protocol"))
        case .accepted, .progress, .cancelled, .removed, .queryAnswer, .settingChanged: break
        }
    }

    /// Waits for a sign of the other node. Without requests an open connection may be silent.
    private func awaitResponse() {
        guard responseTimer == nil, phase != .ended else { return }
        let delay = max(.zero, Self.responseTimeout - loop.now.since(lastActivity))
        responseTimer = loop.setTimer(after: delay) { [unowned self] in
            responseTimer = nil
            guard phase != .open || !requests.isEmpty else { return }
            guard loop.now.since(lastActivity) >= Self.responseTimeout else { return awaitResponse() }
            switch phase {
            case .connecting:
                endAllRequests(with: .nodeUnreachable(connection?.connectionFaultText ?? "no session within 2 s"))
            case .reconnecting:
                endAllRequests(with: .connectionLost(connection?.connectionFaultText ?? "no session within 2 s"))
            case .open:
                lastActivity = loop.now
                for id in requests.keys where !requestsWithFiles.contains(id) {
                    connection?.cancel(RequestKey(handler, id))
                    endRequest(id, .connectionLost("no answer within 2 s"))
                }
                awaitResponse()
            case .ended: break
            }
        }
    }

    /// Code and detail of a refusal.
    private static func refusalText(of reply: RefusedMessage) -> String {
        [reply.code, reply.detail ?? ""].filter { !$0.isEmpty }.joined(separator: ": ")
    }

    /// Ends the connection outside its own event.
    private func endConnectionLater(_ ending: PullEnding) {
        loop.setTimer(after: .zero) { [weak self] in
            guard let self, phase != .ended else { return }
            endAllRequests(with: ending)
        }
    }

    private func terminalArrived(_ delivery: DeliveredTerminal, _ body: [UInt8]) {
        defer { if delivery.isFile { connection?.finishDelivery(delivery) } }
        let id = delivery.key.request
        guard delivery.key.handler == handler, requests[id] != nil else { return }
        guard let head = PulledHead(delivery.terminal) else {
            guard case .failed(let failure) = delivery.terminal.outcome else {
                return endRequest(id, .requestRefused("no response"))
            }
            return endRequest(id, .requestRefused(failure.code))
        }
        if delivery.isBodyLost { return endRequest(id, .connectionLost("the body was lost")) }
        if let number = delivery.storeFailure { return endRequest(id, .fileUnwritable(number)) }
        endRequest(id, requestsWithFiles.contains(id) ? .bodyInFile(head) : .bodyInMessage(head, body: body))
    }
}

extension NodeConnection: BodyStore {
    func makeFile(for delivery: DeliveredTerminal) -> BodyStoreFile {
        lastActivity = loop.now
        let id = delivery.key.request
        guard let receiver = requests[id]?.receiver, let head = PulledHead(delivery.terminal),
            let descriptor = receiver.makeBodyFile(for: head)
        else { return .unavailable(ECANCELED) }
        requestsWithFiles.insert(id)
        return .open(descriptor)
    }

    func bodyBytesStored(_ bytes: Int, of delivery: DeliveredTerminal) {
        lastActivity = loop.now
        requests[delivery.key.request]?.receiver.bodyGrew(to: bytes)
    }
}

extension PulledHead {
    /// Head of a response, also of an error page; nil for a failure without a response.
    fileprivate init?(_ terminal: Terminal) {
        switch terminal.outcome {
        case .result(let status, let response): self.init(status, response)
        case .failed(let failure):
            guard let status = failure.status, let response = failure.errorPageResponse else { return nil }
            self.init(status, response)
        }
    }

    private init(_ status: Int, _ response: Terminal.Response) {
        self.init(
            status: status, bodyBytes: response.bodyByteCount, bodySHA256: response.sha256,
            httpFields: response.httpFields)
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

    func requestBody(_ request: PullRequest, for receiver: any PullReceiver) {
        do {
            try connection(to: request.node).request(request, for: receiver)
        } catch {
            // Descriptors or memory have run out. The receiver is not called from inside this call.
            loop.setTimer(after: .zero) { receiver.requestEnded(.nodeUnreachable("\(error)")) }
        }
    }

    func cancel(_ request: PullRequest) { connections[request.node]?.cancel(request) }

    func closeConnections() {
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
