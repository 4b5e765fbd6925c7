package import EarshotLoop
package import EarshotWire
internal import Glibc

/// HTTP door: a forward proxy and an API, whose clients are clients of the bus.
///
/// Each connection with a request has a session of its own at the broker, so the bus treats it as one program: it has
/// its turn in the queue, and its end removes its request.
package final class Door {
    /// Options of a door.
    package struct Options: Sendable {
        package var addresses: [ListenAddress] = []
        /// Addresses of the API, which never share an origin with pages of others.
        package var apiAddresses: [ListenAddress] = []
        /// Pages whose scripts may use the API.
        package var origins: Set<String> = []
        /// Hosts whose indexes are rewritten.
        package var rewrittenHosts: Set<String> = []
        /// Secrets of clients beyond loopback.
        package var tokens: [[UInt8]] = []
        /// Further users that may connect.
        package var permittedUsers: Set<UInt32> = []
        /// Whether the user of the bus needs a token over TCP, because the bus fetches for other principals too: to the
        /// kernel its connections to the door are those of its own user.
        package var ownUserNeedsToken = false
        /// Maximum wait for a cool-down of an origin.
        package var maximumWaitMilliseconds = 10_000
        /// Whether bodies are read by READ, because the door may not open the files of other users.
        package var readsBodiesByMessage = false
        /// Path of the broker's socket for clients.
        package var busPath = ""

        package init() {}
    }

    /// Open connections, and counts of requests and refusals since the start, for status and metrics.
    package struct Counts: Equatable, Sendable {
        package var connections = 0
        package var requests = 0
        /// Connections and requests refused for their user or a bound.
        package var refusedCount = 0
    }

    /// Bounds on all clients. A user other than that of the bus has at most a quarter of each.
    enum Limits {
        static let connections = 10_000
        /// Bytes in memory of bodies of requests, and of responses that no file has.
        static let maximumStoredBodyBytes = 64 << 20
        static let headBytes = 32_768
        /// Bytes that wait in the kernel for one client.
        static let kernelBufferBytes: Int32 = 256 << 10
        static let shareDivisorPerUser = 4
        /// Descriptors of a connection with a request: its own, that of its session, and a file.
        static let descriptorsPerConnection = 3
        static let (minimumReserve, maximumReserve) = (24, 320)
        /// Time without a request after which a session ends.
        static let idleSessionTime = Duration.seconds(1)
        static let writeTime = Duration.seconds(60)
    }

    private let options: Options
    private let loop: EventLoop
    private let owners: SocketOwners?
    private let ownUserID = geteuid()
    private var tokenRule: TokenRule
    private var api: API?
    /// Reads lines of the supervisor, before a request that has no proof is refused.
    package var readSupervisorLines: () -> Void = {}
    /// Secret for the present broker; nil before the supervisor has sent one.
    package var gatewayProof: GatewayProof?
    package private(set) var counts = Counts()
    package var maximumWaitMilliseconds: Int {
        get { proxyRequest.maximumWaitMilliseconds }
        set { proxyRequest.maximumWaitMilliseconds = newValue }
    }
    private var proxyRequest: ProxyRequest
    private let proxyResponse: ProxyResponse
    private let connectionLimit: Int
    private var listeners: [WebListener] = []
    private var clients: [Int32: DoorClient] = [:]
    /// Connections of each user, and bytes of bodies in memory.
    private var connectionCounts: [UInt32: Int] = [:]
    private var storedBodyBytes: [UInt32: Int] = [:]
    private var descriptorsWithMessages: [Int32] = []
    private var lastHandlerNumber = 0
    /// Begins the names of handlers, so that those of an earlier door differ.
    private let handlerPrefix: String

    /// Listens. Precedes the sandbox, in which no socket can be opened that reports the users of peers.
    package init(_ options: Options, loop: EventLoop) throws {
        self.options = options
        self.loop = loop
        let descriptors = try ResourceLimits.raiseDescriptorLimit(
            atLeast: Limits.minimumReserve + 8 * Limits.descriptorsPerConnection)
        let reserve = ResourceLimits.reservedDescriptors(
            ofLimit: descriptors, minimum: Limits.minimumReserve, maximum: Limits.maximumReserve)
        connectionLimit = min(Limits.connections, (descriptors - reserve) / Limits.descriptorsPerConnection)
        let listens = options.addresses.map { ($0, false) } + options.apiAddresses.map { ($0, true) }
        owners = try listens.contains { $0.0.isTCP && $0.0.isLocal } ? SocketOwners() : nil
        tokenRule = TokenRule(tokens: options.tokens)
        var generator = SystemRandomNumberGenerator()
        let pseudonym = "earshot-" + String(generator.next(), radix: 36)
        handlerPrefix = "http-" + String(UInt32.random(in: 0 ... .max, using: &generator), radix: 36)
        proxyRequest = ProxyRequest(pseudonym: pseudonym, maximumWaitMilliseconds: options.maximumWaitMilliseconds)
        proxyRequest.rewrittenHosts = options.rewrittenHosts
        proxyResponse = ProxyResponse(pseudonym: pseudonym)
        for (address, isAPI) in listens {
            let listener = try WebListener(address, isOpen: !options.permittedUsers.isEmpty, loop: loop) {
                [unowned self] descriptor throws(SystemError) in try admit(descriptor, from: address, isAPI: isAPI)
            }
            listeners.append(listener)
            addresses.append(isAPI ? listener.address + (address.isTCP ? "v1/" : ":/v1/") : listener.address)
            if let port = listener.port { proxyRequest.ports.insert(port) }
        }
        if !options.apiAddresses.isEmpty {
            let via = proxyResponse.viaFieldValue
            api = API(origins: options.origins, ownUser: ownUserID, via: via, loop: loop) { [unowned self] in
                openSession($0, window: $1, onReady: $2)
            }
        }
        _ = loop.addHook { [unowned self] in runPass() }
    }

    /// Addresses at which the door listens, as URLs and paths.
    package private(set) var addresses: [String] = []

    /// Closes all connections.
    package func close() {
        for listener in listeners { listener.close() }
        for client in Array(clients.values) { client.peer?.close() }
    }

    // MARK: Connections

    private func admit(_ descriptor: Int32, from address: ListenAddress, isAPI: Bool) throws(SystemError) {
        let isTCP = address.isTCP
        let user =
            !address.isLocal
            ? nil : isTCP ? owners?.userID(atOtherEndOf: descriptor) : UnixSocket.credentials(of: descriptor)?.uid
        let isPermitted = user.map { allowsUser($0) } ?? false
        // A refused connection is charged to no user, and answered with 403.
        let owner = isPermitted ? user : nil
        guard makeRoomForConnection(of: owner) else {
            counts.refusedCount += 1
            return UnixSocket.close(descriptor)
        }
        let needsToken = !address.isLocal || isTCP && user == ownUserID && options.ownUserNeedsToken
        let client = DoorClient(user: owner, needsToken: needsToken, isAPI: isAPI)
        var rules = WebPeer.Rules(
            rejectionResponse: {
                isAPI ? Self.rejectionResponse(status: $0).asProblemDetails : Self.rejectionResponse(status: $0)
            },
            onRequest: { [unowned self] _, head, body in answerRequest(of: client, head: head, body: body) },
            onClose: { [unowned self] _ in connectionClosed(client, descriptor: descriptor) })
        rules.headBytes = Limits.headBytes
        rules.bodyBytes = WireLimits.requestBodyBytes
        rules.writeTime = Limits.writeTime
        rules.abandonsHalfClosedPeer = true
        rules.refusalBeforeBody = { [unowned self] _, head in
            requestRefusal(client, head: head).map { response(to: head, of: client).busResponse($0) }
        }
        if isTCP { TCPSocket.configureConnection(descriptor, maximumUnsentBytes: Limits.kernelBufferBytes) }
        let peer = try WebPeer(descriptor: descriptor, rules: rules, loop: loop)
        peer.onDrained = { [unowned self] in outputDrained(client) }
        client.peer = peer
        clients[descriptor] = client
        if let owner { connectionCounts[owner, default: 0] += 1 }
        counts.connections += 1
    }

    private func allowsUser(_ user: UInt32) -> Bool { user == ownUserID || options.permittedUsers.contains(user) }

    /// Closes the longest idle connection if there are too many. Returns false if all are busy.
    private func makeRoomForConnection(of user: UInt32?) -> Bool {
        let isOwn = user == ownUserID
        let own = user.map { connectionCounts[$0, default: 0] } ?? clients.values.count { $0.peerUser == nil }
        let isFull = clients.count >= connectionLimit
        guard isFull || !isOwn && own >= connectionLimit / Limits.shareDivisorPerUser else { return true }
        let idle = clients.values.filter { client in
            // The kernel has all of its last response.
            (isOwn || client.peerUser == user) && client.peer?.phase == .awaitingRequest
                && client.peer?.isDrained == true
        }
        guard let oldest = idle.min(by: { $0.phaseChangeTime < $1.phaseChangeTime })?.peer else { return false }
        oldest.close()
        return true
    }

    private func connectionClosed(_ client: DoorClient, descriptor: Int32) {
        releaseBodyBytes(of: client)
        client.cancelTimer(loop)
        client.endSession()
        (client.exchange, client.peer) = (nil, nil)
        clients[descriptor] = nil
        counts.connections -= 1
        guard let user = client.peerUser else { return }
        connectionCounts[user, default: 1] -= 1
        if connectionCounts[user] == 0 { connectionCounts[user] = nil }
    }

    // MARK: Requests

    /// Returns the refusal of a client without rights, and finds the user for whom the request is made otherwise.
    private func userRefusal(_ client: DoorClient, head: RequestHead) -> WebResponse? {
        if client.needsToken {
            let isProxy = !client.isAPI && !head.target.hasPrefix("/")
            let field = isProxy ? "proxy-authorization" : "authorization"
            let verdict = tokenRule.checkToken(of: head, now: loop.now, field: field)
            client.requestingUser = verdict == .validToken ? ownUserID : nil
            return TokenRule.refusal(verdict, realm: "earshot", isProxy: isProxy).map { countingRefusal($0) }
        }
        return client.peerUser == nil ? countingRefusal(Self.unknownUser) : nil
    }

    /// Returns the refusal of a request before its body is read.
    private func requestRefusal(_ client: DoorClient, head: RequestHead) -> WebResponse? {
        if let refusal = userRefusal(client, head: head) { return refusal }
        guard let user = client.requestingUser else { return countingRefusal(Self.unknownUser) }
        if client.isAPI {
            if let refusal = api?.refusal(of: head, isProved: client.needsToken) { return refusal }
        } else if case .ownAnswer(let answer) = parseRequest(head, body: [0], client: client) {
            return answer
        }
        let bytes = if case .bytes(let count) = head.bodyLength { count } else { WireLimits.requestBodyBytes }
        guard bytes <= WireLimits.requestBodyBytes else { return Self.rejectionResponse(status: 413) }
        return reserveBodyBytes(bytes, client: client, user: user)
            ? nil : countingRefusal(ProxyResponse.memoryFull(bytes))
    }

    /// Counts bytes of a body in memory. Returns false beyond the bounds on those of all clients and of a user.
    private func reserveBodyBytes(_ bytes: Int, client: DoorClient, user: UInt32) -> Bool {
        let share = user == ownUserID ? 1 : Limits.shareDivisorPerUser
        guard storedBodyBytes.values.reduce(bytes, +) <= Limits.maximumStoredBodyBytes,
            storedBodyBytes[user, default: 0] + bytes <= Limits.maximumStoredBodyBytes / share
        else { return false }
        storedBodyBytes[user, default: 0] += bytes
        client.reservedBytes += bytes
        return true
    }

    private func countingRefusal(_ response: WebResponse) -> WebResponse {
        counts.refusedCount += 1
        return response
    }

    private func releaseBodyBytes(of client: DoorClient) {
        guard let user = client.requestingUser, client.reservedBytes > 0 else { return }
        storedBodyBytes[user, default: 0] -= client.reservedBytes
        if storedBodyBytes[user] == 0 { storedBodyBytes[user] = nil }
        client.reservedBytes = 0
    }

    private func parseRequest(_ head: RequestHead, body: [UInt8], client: DoorClient) -> ProxyRequest.Reading {
        guard let id = RequestID("\(client.lastRequestNumber)"), let handler = handler(of: client) else {
            return .ownAnswer(ProxyResponse.brokerUnavailable)
        }
        return proxyRequest.read(head, body: body, handler: handler, id: id, isProved: client.needsToken)
    }

    /// The handler of a connection, with a root of its own, so that each has its turn in the queue.
    private func handler(of client: DoorClient) -> HandlerID? {
        if client.handlerNumber == 0 {
            lastHandlerNumber += 1
            client.handlerNumber = lastHandlerNumber
        }
        return HandlerID("\(handlerPrefix)-\(client.handlerNumber)")
    }

    private func answerRequest(of client: DoorClient, head: RequestHead, body: [UInt8]) {
        guard let peer = client.peer else { return }
        releaseBodyBytes(of: client)
        counts.requests += 1
        let response = response(to: head, of: client)
        // A browser sends no token with a preflight.
        if client.isAPI, let answer = api?.preflight(head) { return peer.respond(response.busResponse(answer)) }
        // The rights of a request with a body were checked before its body was read.
        if head.bodyLength == .none, let refusal = userRefusal(client, head: head) {
            return peer.respond(response.busResponse(refusal))
        }
        client.lastRequestNumber += 1
        let fetch: Fetch
        if client.isAPI {
            switch answerAPI(client, peer: peer, head: head, body: body, response: response) {
            case .responseToFetch(let read)?: fetch = read
            case .storedResult(let result, let session)?:
                let exchange = Exchange(
                    request: head, terminal: result.terminal, from: peer, response: response,
                    read: options.readsBodiesByMessage ? session.sendBodyRead : nil)
                attachExchange(exchange, to: client)
                return session.answer(exchange, with: result)
            case nil: return
            }
        } else {
            switch parseRequest(head, body: body, client: client) {
            case .ownAnswer(let answer): return peer.respond(answer)
            case .fetchRequest(let read): fetch = read
            }
        }
        guard let session = session(of: client, peer) else {
            return peer.respond(countingRefusal(response.busResponse(ProxyResponse.brokerUnavailable)))
        }
        let read =
            options.readsBodiesByMessage
            ? { [unowned session] in session.send(.readBody($0)) } : nil as ((BodyRead) -> Void)?
        attachExchange(Exchange(request: head, fetch: fetch, from: peer, response: response, read: read), to: client)
        session.send(.fetch(fetch))
    }

    private func attachExchange(_ exchange: Exchange, to client: DoorClient) {
        client.exchange = exchange
        exchange.reserveBodyBytes = { [weak self, weak client] bytes in
            guard let self, let client, let user = client.requestingUser else { return false }
            return reserveBodyBytes(bytes, client: client, user: user)
        }
    }

    private func response(to head: RequestHead, of client: DoorClient) -> ProxyResponse {
        var response = proxyResponse
        if client.isAPI { response.apiFields = api?.crossOriginFields(for: head) }
        return response
    }

    /// Answers a request to the API. Returns a request whose response is the answer.
    private func answerAPI(
        _ client: DoorClient, peer: WebPeer, head: RequestHead, body: [UInt8], response: ProxyResponse
    ) -> API.Reply? {
        guard let api, let user = client.requestingUser, let handler = handler(of: client),
            let id = RequestID("\(client.lastRequestNumber)")
        else { return nil }
        if let refusal = api.refusal(of: head, isProved: client.needsToken) {
            peer.respond(response.busResponse(refusal))
            return nil
        }
        return api.answer(peer, head: head, body: body, user: user, handler: handler, id: id)
    }

    /// The session of a connection, opened if it has none.
    private func session(of client: DoorClient, _ peer: WebPeer) -> DoorSession? {
        client.cancelTimer(loop)
        if let session = client.session, !session.isEnded, !session.isBrokerDraining { return session }
        client.endSession()
        guard let user = client.requestingUser else { return nil }
        client.session = openSession(user, window: 4) { [unowned self, descriptor = peer.descriptor] in
            descriptorsWithMessages.append(descriptor)
        }
        return client.session
    }

    private func openSession(_ user: UInt32, window: Int, onReady: @escaping () -> Void) -> DoorSession? {
        if gatewayProof == nil { readSupervisorLines() }
        guard let gatewayProof else { return nil }
        var hello = Hello(window: window)
        (hello.proof, hello.pullsBodies) = (gatewayProof, options.readsBodiesByMessage)
        if user == ownUserID { hello.hasUserRights = true } else { hello.principal = PrincipalName("uid:\(user)") }
        return try? DoorSession(path: options.busPath, hello: hello, loop: loop, onReady: onReady)
    }

    // MARK: The broker

    private func runPass() -> EventLoop.SleepLimit {
        let descriptors = descriptorsWithMessages
        descriptorsWithMessages = []
        for descriptor in descriptors { if let client = clients[descriptor] { handleBrokerMessages(of: client) } }
        return descriptorsWithMessages.isEmpty ? .untilEvent : .noSleep
    }

    private func handleBrokerMessages(of client: DoorClient) {
        while let session = client.session, let (answer, body) = session.next() {
            receivedBrokerMessage(answer.message, body: body, client: client)
        }
        guard let session = client.session, session.isEnded else {
            if client.session?.hasPendingMessages == true, let peer = client.peer {
                descriptorsWithMessages.append(peer.descriptor)
            }
            return
        }
        client.endSession()
        if let exchange = client.exchange, !exchange.isOver {
            exchange.failWithResponse(ProxyResponse.brokerUnavailable)
            client.exchange = nil
        }
    }

    private func receivedBrokerMessage(_ message: BrokerMessage, body: [UInt8], client: DoorClient) {
        switch message {
        case .progress(let progress):
            if progress.request == client.exchange?.id { client.exchange?.receivedProgress(progress) }
        case .terminal(let terminal):
            guard let exchange = client.exchange, terminal.request == exchange.id, !exchange.isOver else {
                if terminal.sequence > 0 { client.session?.send(.acknowledge(terminal.sequence)) }
                return
            }
            exchange.receivedTerminal(terminal, body: body)
            acknowledgeTerminal(client)
        case .error(let error):
            guard let exchange = client.exchange, !exchange.isOver else { return }
            // The proof of an earlier broker, or a broker that begins.
            let isOfSession = ["not-authorized", "hello-required", "version"].contains(error.code)
            let response =
                isOfSession
                ? ProxyResponse.brokerUnavailable : ProxyResponse.refusalResponse(error, hasBody: exchange.hasBody)
            exchange.failWithResponse(response)
            if isOfSession { client.endSession() }
            acknowledgeTerminal(client)
        case .bodyData(let data): client.exchange?.receivedBodyData(data, bytes: body)
        case .welcome, .fetchAccepted, .handlersRemoved, .requestRemoved, .queryAnswer, .settingChanged, .fileTaken,
            .ok, .goodbye:
            break
        }
    }

    private func outputDrained(_ client: DoorClient) {
        client.exchange?.outputDrained()
        acknowledgeTerminal(client)
    }

    /// Acknowledges the terminal of an exchange whose response the client has, and lets the session end after a while.
    private func acknowledgeTerminal(_ client: DoorClient) {
        guard let exchange = client.exchange, exchange.isOver, client.peer?.isDrained == true else { return }
        if let sequence = exchange.acknowledgeableSequence { client.session?.send(.acknowledge(sequence)) }
        client.exchange = nil
        releaseBodyBytes(of: client)
        guard client.session != nil else { return }
        client.cancelTimer(loop)
        client.idleSessionTimer = loop.setTimer(after: Limits.idleSessionTime) {
            client.idleSessionTimer = nil
            client.endSession()
        }
    }

    // MARK: Refusals

    private static let unknownUser = WebResponse(
        403, text: "the user of this connection may not use the proxy, or is unknown; see the setting http-users")

    private static func rejectionResponse(status: Int) -> WebResponse {
        switch status {
        case 413: WebResponse(413, text: "a request has at most \(WireLimits.requestBodyBytes) bytes of body")
        case 417: WebResponse(417, text: "only 100-continue can be expected")
        case 431: WebResponse(431, text: "the request head exceeds \(Limits.headBytes) bytes")
        case 501: WebResponse(501, text: "only the transfer coding chunked is supported")
        case 505: WebResponse(505, text: "only HTTP/1.1 and HTTP/1.0 are supported")
        default: WebResponse(400, text: "malformed request")
        }
    }
}

/// One connection of a client of the door.
private final class DoorClient {
    /// User of the program at the other end; nil for one that may not use the door.
    let peerUser: UInt32?
    /// Whether each request needs a token, also one of a known user.
    let needsToken: Bool
    let isAPI: Bool
    /// User for whom the present request is made.
    var requestingUser: UInt32?
    var peer: WebPeer?
    var session: DoorSession?
    var exchange: Exchange?
    /// Number in the name of the handler; 0 before the first request.
    var handlerNumber = 0
    var lastRequestNumber: UInt64 = 0
    /// Part of the bound on bodies in memory.
    var reservedBytes = 0
    /// Ends the session when it is not used.
    var idleSessionTimer: TimerID?

    init(user: UInt32?, needsToken: Bool, isAPI: Bool) {
        self.peerUser = user
        self.needsToken = needsToken
        self.isAPI = isAPI
        requestingUser = user
    }

    var phaseChangeTime: LoopTime { peer?.phaseChangeTime ?? LoopTime(nanoseconds: 0) }

    func cancelTimer(_ loop: EventLoop) {
        if let idleSessionTimer { loop.cancelTimer(idleSessionTimer) }
        idleSessionTimer = nil
    }

    func endSession() {
        session?.close()
        session = nil
    }
}
