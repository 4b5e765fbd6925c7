package import EarshotLoop
package import EarshotWire
internal import Glibc

/// HTTP door: a forward proxy and an API, whose clients are clients of the bus.
///
/// Each connection with a request has a session of its own at the broker, so the bus treats it as one program: it has its turn in
/// the queue, and its end removes its request.
package final class Door {
    /// Options of a door.
    package struct Options: Sendable {
        package var addresses: [ListenAddress] = []
        /// Addresses of the API, which never share an origin with pages of others.
        package var apiAddresses: [ListenAddress] = []
        /// Pages whose scripts may use the API.
        package var origins: Set<String> = []
        /// Hosts whose indexes are rewritten.
        package var rewrites: Set<String> = []
        /// Secrets of clients beyond loopback.
        package var tokens: [[UInt8]] = []
        /// Further users that may connect.
        package var users: Set<UInt32> = []
        /// Whether the user of the bus needs a token over TCP, because the bus fetches for other principals too: to the kernel
        /// its connections to the door are those of its own user.
        package var ownUserNeedsToken = false
        /// Maximum wait for a cool-down of an origin.
        package var waitMilliseconds = 10_000
        /// Whether bodies are read by READ, because the door may not open the files of other users.
        package var isPulling = false
        /// Path of the broker's socket for clients.
        package var busPath = ""

        package init() {}
    }

    /// Numbers since the start, for status and metrics.
    package struct Counts: Equatable, Sendable {
        package var connections = 0
        package var requests = 0
        /// Connections and requests refused for their user or a bound.
        package var refused = 0
    }

    /// Bounds on all clients. A user other than that of the bus has at most a quarter of each.
    enum Limits {
        static let connections = 10_000
        /// Bytes in memory of bodies of requests, and of responses that no file has.
        static let bodyBytes = 64 << 20
        static let headBytes = 32_768
        /// Bytes that wait in the kernel for one client.
        static let kernelBytes: Int32 = 256 << 10
        static let usersShare = 4
        /// Descriptors of a connection with a request: its own, that of its session, and a file.
        static let descriptorsPerConnection = 3
        static let (leastReserve, mostReserve) = (24, 320)
        /// Time without a request after which a session ends.
        static let sessionTime = Duration.seconds(1)
        static let writeTime = Duration.seconds(60)
    }

    private let options: Options
    private let loop: EventLoop
    private let owners: SocketOwners?
    private let ownUser = geteuid()
    private var tokens: TokenRule
    private var api: API?
    /// Reads lines of the supervisor, before a request that has no proof is refused.
    package var readSupervisor: () -> Void = {}
    /// Secret for the present broker; nil before the supervisor has sent one.
    package var proof: GatewayProof?
    package private(set) var counts = Counts()
    package var waitMilliseconds: Int {
        get { proxy.waitMilliseconds }
        set { proxy.waitMilliseconds = newValue }
    }
    private var proxy: ProxyRequest
    private let response: ProxyResponse
    private let connectionLimit: Int
    private var listeners: [WebListener] = []
    private var clients: [Int32: DoorClient] = [:]
    /// Connections of each user, and bytes of bodies in memory.
    private var connections: [UInt32: Int] = [:]
    private var bodyBytes: [UInt32: Int] = [:]
    private var readyDescriptors: [Int32] = []
    private var lastNumber = 0
    /// Begins the names of handlers, so that those of an earlier door differ.
    private let prefix: String

    /// Listens. Precedes the sandbox, in which no socket can be opened that tells the users of peers.
    package init(_ options: Options, loop: EventLoop) throws {
        self.options = options
        self.loop = loop
        let descriptors = try ResourceLimits.raiseDescriptorLimit(
            atLeast: Limits.leastReserve + 8 * Limits.descriptorsPerConnection)
        let reserve = ResourceLimits.reserve(of: descriptors, least: Limits.leastReserve, most: Limits.mostReserve)
        connectionLimit = min(Limits.connections, (descriptors - reserve) / Limits.descriptorsPerConnection)
        let listens = options.addresses.map { ($0, false) } + options.apiAddresses.map { ($0, true) }
        owners = try listens.contains { $0.0.isTCP && $0.0.isLocal } ? SocketOwners() : nil
        tokens = TokenRule(tokens: options.tokens)
        var generator = SystemRandomNumberGenerator()
        let pseudonym = "earshot-" + String(generator.next(), radix: 36)
        prefix = "http-" + String(UInt32.random(in: 0 ... .max, using: &generator), radix: 36)
        proxy = ProxyRequest(pseudonym: pseudonym, waitMilliseconds: options.waitMilliseconds)
        proxy.rewrites = options.rewrites
        response = ProxyResponse(pseudonym: pseudonym)
        for (address, isAPI) in listens {
            let listener = try WebListener(address, isOpen: !options.users.isEmpty, loop: loop) {
                [unowned self] descriptor throws(SystemError) in try admit(descriptor, from: address, isAPI: isAPI)
            }
            listeners.append(listener)
            addresses.append(isAPI ? listener.address + (address.isTCP ? "v1/" : ":/v1/") : listener.address)
            if let port = listener.port { proxy.ports.insert(port) }
        }
        if !options.apiAddresses.isEmpty {
            api = API(origins: options.origins, ownUser: ownUser, via: response.via, loop: loop) { [unowned self] in
                openSession($0, window: $1, onReady: $2)
            }
        }
        _ = loop.addHook { [unowned self] in pass() }
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
            ? nil : isTCP ? owners?.user(atOtherEndOf: descriptor) : UnixSocket.credentials(of: descriptor)?.uid
        let isPermitted = user.map { permits($0) } ?? false
        // A refused connection is charged to no user, and answered with 403.
        let owner = isPermitted ? user : nil
        guard makeRoom(for: owner) else {
            counts.refused += 1
            return UnixSocket.close(descriptor)
        }
        let needsToken = !address.isLocal || isTCP && user == ownUser && options.ownUserNeedsToken
        let client = DoorClient(user: owner, needsToken: needsToken, isAPI: isAPI)
        var rules = WebPeer.Rules(
            reject: { isAPI ? Self.rejection($0).asProblem : Self.rejection($0) },
            request: { [unowned self] _, head, body in answer(client, head, body) },
            closed: { [unowned self] _ in closed(client, descriptor) })
        rules.headBytes = Limits.headBytes
        rules.bodyBytes = WireLimits.requestBodyBytes
        rules.writeTime = Limits.writeTime
        rules.endsWithPeer = true
        rules.refuse = { [unowned self] _, head in
            refusal(of: client, head).map { response(to: head, of: client).busResponse($0) }
        }
        if isTCP { TCPSocket.prepare(descriptor, unsentBytes: Limits.kernelBytes) }
        let peer = try WebPeer(descriptor, rules, loop: loop)
        peer.onDrained = { [unowned self] in outputDrained(client) }
        client.peer = peer
        clients[descriptor] = client
        if let owner { connections[owner, default: 0] += 1 }
        counts.connections += 1
    }

    private func permits(_ user: UInt32) -> Bool { user == ownUser || options.users.contains(user) }

    /// Closes the longest idle connection if there are too many. Returns false if all are busy.
    private func makeRoom(for user: UInt32?) -> Bool {
        let isOwn = user == ownUser
        let own = user.map { connections[$0, default: 0] } ?? clients.values.count { $0.user == nil }
        let isFull = clients.count >= connectionLimit
        guard isFull || !isOwn && own >= connectionLimit / Limits.usersShare else { return true }
        let idle = clients.values.filter { client in
            // The kernel has all of its last response.
            (isOwn || client.user == user) && client.peer?.phase == .reading && client.peer?.isDrained == true
        }
        guard let oldest = idle.min(by: { $0.since < $1.since })?.peer else { return false }
        oldest.close()
        return true
    }

    private func closed(_ client: DoorClient, _ descriptor: Int32) {
        release(client)
        client.cancelTimer(loop)
        client.endSession()
        (client.exchange, client.peer) = (nil, nil)
        clients[descriptor] = nil
        counts.connections -= 1
        guard let user = client.user else { return }
        connections[user, default: 1] -= 1
        if connections[user] == 0 { connections[user] = nil }
    }

    // MARK: Requests

    /// Returns the refusal of a client without rights, and finds the user for whom the request is made otherwise.
    private func refusalOfUser(_ client: DoorClient, _ head: RequestHead) -> WebResponse? {
        if client.needsToken {
            let isProxy = !client.isAPI && !head.target.hasPrefix("/")
            let field = isProxy ? "proxy-authorization" : "authorization"
            let verdict = tokens.verdict(on: head, now: loop.now, field: field)
            client.principal = verdict == .right ? ownUser : nil
            return TokenRule.refusal(verdict, realm: "earshot", isProxy: isProxy).map { countedRefusal($0) }
        }
        return client.user == nil ? countedRefusal(Self.unknownUser) : nil
    }

    /// Returns the refusal of a request before its body is read.
    private func refusal(of client: DoorClient, _ head: RequestHead) -> WebResponse? {
        if let refusal = refusalOfUser(client, head) { return refusal }
        guard let user = client.principal else { return countedRefusal(Self.unknownUser) }
        if client.isAPI {
            if let refusal = api?.refusal(of: head, isProved: client.needsToken) { return refusal }
        } else if case .answer(let answer) = read(head, [0], client) {
            return answer
        }
        let bytes = if case .bytes(let count) = head.bodyLength { count } else { WireLimits.requestBodyBytes }
        guard bytes <= WireLimits.requestBodyBytes else { return Self.rejection(413) }
        return reserve(bytes, client, user) ? nil : countedRefusal(ProxyResponse.memoryFull(bytes))
    }

    /// Counts bytes of a body in memory. Returns false beyond the bounds on those of all clients and of a user.
    private func reserve(_ bytes: Int, _ client: DoorClient, _ user: UInt32) -> Bool {
        let share = user == ownUser ? 1 : Limits.usersShare
        guard bodyBytes.values.reduce(bytes, +) <= Limits.bodyBytes,
            bodyBytes[user, default: 0] + bytes <= Limits.bodyBytes / share
        else { return false }
        bodyBytes[user, default: 0] += bytes
        client.reservedBytes += bytes
        return true
    }

    private func countedRefusal(_ response: WebResponse) -> WebResponse {
        counts.refused += 1
        return response
    }

    private func release(_ client: DoorClient) {
        guard let user = client.principal, client.reservedBytes > 0 else { return }
        bodyBytes[user, default: 0] -= client.reservedBytes
        if bodyBytes[user] == 0 { bodyBytes[user] = nil }
        client.reservedBytes = 0
    }

    private func read(_ head: RequestHead, _ body: [UInt8], _ client: DoorClient) -> ProxyRequest.Reading {
        guard let id = RequestID("\(client.lastRequest)"), let handler = handler(of: client) else {
            return .answer(ProxyResponse.brokerUnavailable)
        }
        return proxy.read(head, body, handler: handler, id: id, isProved: client.needsToken)
    }

    /// The handler of a connection, with a root of its own, so that each has its turn in the queue.
    private func handler(of client: DoorClient) -> HandlerID? {
        if client.number == 0 {
            lastNumber += 1
            client.number = lastNumber
        }
        return HandlerID("\(prefix)-\(client.number)")
    }

    private func answer(_ client: DoorClient, _ head: RequestHead, _ body: [UInt8]) {
        guard let peer = client.peer else { return }
        release(client)
        counts.requests += 1
        let response = response(to: head, of: client)
        // A browser sends no token with it.
        if client.isAPI, let answer = api?.preflight(head) { return peer.respond(response.busResponse(answer)) }
        // That of a request with a body was checked before it.
        if head.bodyLength == .none, let refusal = refusalOfUser(client, head) {
            return peer.respond(response.busResponse(refusal))
        }
        client.lastRequest += 1
        let fetch: Fetch
        if client.isAPI {
            switch answerAPI(client, peer, head, body, response) {
            case .fetch(let read)?: fetch = read
            case .stored(let result, let session)?:
                let exchange = Exchange(
                    head, result.terminal, from: peer, response, read: options.isPulling ? session.read : nil)
                begin(exchange, client)
                return session.answer(exchange, with: result)
            case nil: return
            }
        } else {
            switch read(head, body, client) {
            case .answer(let answer): return peer.respond(answer)
            case .fetch(let read): fetch = read
            }
        }
        guard let session = session(of: client, peer) else {
            return peer.respond(countedRefusal(response.busResponse(ProxyResponse.brokerUnavailable)))
        }
        let read = options.isPulling ? { [unowned session] in session.send(.read($0)) } : nil as ((BodyRead) -> Void)?
        begin(Exchange(head, fetch, from: peer, response, read: read), client)
        session.send(.fetch(fetch))
    }

    private func begin(_ exchange: Exchange, _ client: DoorClient) {
        client.exchange = exchange
        exchange.reserve = { [weak self, weak client] bytes in
            guard let self, let client, let user = client.principal else { return false }
            return reserve(bytes, client, user)
        }
    }

    private func response(to head: RequestHead, of client: DoorClient) -> ProxyResponse {
        var response = response
        if client.isAPI { response.apiFields = api?.fields(for: head) }
        return response
    }

    /// Answers a request to the API. Returns a request whose response is the answer.
    private func answerAPI(
        _ client: DoorClient, _ peer: WebPeer, _ head: RequestHead, _ body: [UInt8], _ response: ProxyResponse
    ) -> API.Reply? {
        guard let api, let user = client.principal, let handler = handler(of: client),
            let id = RequestID("\(client.lastRequest)")
        else { return nil }
        if let refusal = api.refusal(of: head, isProved: client.needsToken) {
            peer.respond(response.busResponse(refusal))
            return nil
        }
        return api.answer(peer, head, body, user: user, handler, id)
    }

    /// The session of a connection, opened if it has none.
    private func session(of client: DoorClient, _ peer: WebPeer) -> DoorSession? {
        client.cancelTimer(loop)
        if let session = client.session, !session.isEnded, !session.isLeaving { return session }
        client.endSession()
        guard let user = client.principal else { return nil }
        client.session = openSession(user, window: 4) { [unowned self, descriptor = peer.descriptor] in
            readyDescriptors.append(descriptor)
        }
        return client.session
    }

    private func openSession(_ user: UInt32, window: Int, onReady: @escaping () -> Void) -> DoorSession? {
        if proof == nil { readSupervisor() }
        guard let proof else { return nil }
        var hello = Hello(window: window)
        (hello.proof, hello.isPulling) = (proof, options.isPulling)
        if user == ownUser { hello.hasUserRights = true } else { hello.principal = PrincipalName("uid:\(user)") }
        return try? DoorSession(options.busPath, hello, loop: loop, onReady: onReady)
    }

    // MARK: The broker

    private func pass() -> EventLoop.Rest {
        let descriptors = readyDescriptors
        readyDescriptors = []
        for descriptor in descriptors { if let client = clients[descriptor] { turn(client) } }
        return readyDescriptors.isEmpty ? .untilEvent : .none
    }

    private func turn(_ client: DoorClient) {
        while let session = client.session, let (answer, body) = session.next() {
            received(answer.message, body, client)
        }
        guard let session = client.session, session.isEnded else {
            if client.session?.hasPending == true, let peer = client.peer { readyDescriptors.append(peer.descriptor) }
            return
        }
        client.endSession()
        if let exchange = client.exchange, !exchange.isOver {
            exchange.fail(ProxyResponse.brokerUnavailable)
            client.exchange = nil
        }
    }

    private func received(_ message: BrokerMessage, _ body: [UInt8], _ client: DoorClient) {
        switch message {
        case .progress(let progress):
            if progress.request == client.exchange?.id { client.exchange?.received(progress) }
        case .terminal(let terminal):
            guard let exchange = client.exchange, terminal.request == exchange.id, !exchange.isOver else {
                if terminal.sequence > 0 { client.session?.send(.acknowledge(terminal.sequence)) }
                return
            }
            exchange.received(terminal, body: body)
            acknowledgeTerminal(client)
        case .error(let error):
            guard let exchange = client.exchange, !exchange.isOver else { return }
            // The proof of an earlier broker, or a broker that begins.
            let isOfSession = ["not-authorized", "hello-required", "version"].contains(error.code)
            exchange.fail(
                isOfSession ? ProxyResponse.brokerUnavailable : ProxyResponse.refusal(error, hasBody: exchange.hasBody))
            if isOfSession { client.endSession() }
            acknowledgeTerminal(client)
        case .data(let data): client.exchange?.received(data, body)
        case .welcome, .accepted, .removed, .requestRemoved, .answer, .changed, .taken, .ok, .goodbye: break
        }
    }

    private func outputDrained(_ client: DoorClient) {
        client.exchange?.outputDrained()
        acknowledgeTerminal(client)
    }

    /// Acknowledges the terminal of an exchange whose response the client has, and lets the session end after a while.
    private func acknowledgeTerminal(_ client: DoorClient) {
        guard let exchange = client.exchange, exchange.isOver, client.peer?.isDrained == true else { return }
        if let sequence = exchange.finished { client.session?.send(.acknowledge(sequence)) }
        client.exchange = nil
        release(client)
        guard client.session != nil else { return }
        client.cancelTimer(loop)
        client.timer = loop.setTimer(after: Limits.sessionTime) {
            client.timer = nil
            client.endSession()
        }
    }

    // MARK: Refusals

    private static let unknownUser = WebResponse(
        403, text: "the user of this connection may not use the proxy, or is unknown; see the setting http-users")

    private static func rejection(_ status: Int) -> WebResponse {
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
    let user: UInt32?
    /// Whether each request needs a token, also one of a known user.
    let needsToken: Bool
    let isAPI: Bool
    /// User for whom the present request is made.
    var principal: UInt32?
    var peer: WebPeer?
    var session: DoorSession?
    var exchange: Exchange?
    /// Number in the name of the handler; 0 before the first request.
    var number = 0
    var lastRequest: UInt64 = 0
    /// Part of the bound on bodies in memory.
    var reservedBytes = 0
    /// Ends the session when it is not used.
    var timer: TimerID?

    init(user: UInt32?, needsToken: Bool, isAPI: Bool) {
        self.user = user
        self.needsToken = needsToken
        self.isAPI = isAPI
        principal = user
    }

    var since: LoopTime { peer?.since ?? LoopTime(nanoseconds: 0) }

    func cancelTimer(_ loop: EventLoop) {
        if let timer { loop.cancelTimer(timer) }
        timer = nil
    }

    func endSession() {
        session?.close()
        session = nil
    }
}
