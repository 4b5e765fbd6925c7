internal import EarshotClient
internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// The API `/v1` of the door: requests to it become messages of sessions at the broker.
final class API {
    private enum Limits {
        static let sessions = 256
        static let usersShare = 4
        /// Requests of one submission, and handlers of a session. The broker accepts 256 messages without an answer.
        static let messages = 100
        /// Maximum wait for a result, in seconds.
        static let wait = 60
        /// Time without a request or a reader after which a session ends.
        static let sessionTime = Duration.seconds(60)
    }

    typealias Send = (WebResponse) -> Void

    /// Request whose response is the answer.
    enum Reply {
        case fetch(Fetch)
        case stored(APISession.Result, of: APISession)
    }

    private let loop: EventLoop
    private let access: AccessRule
    private let ownUser: UInt32
    /// Value of `Via` in requests of other users. It ends one that aims at the door, which would take it for one of its own user.
    private let via: String
    /// Opens a session at the broker for a user; nil if there is none.
    private let open: (UInt32, Int, @escaping () -> Void) -> DoorSession?
    private var sessions: [String: APISession] = [:]
    private var readySessions: [APISession] = []
    private var generator = SystemRandomNumberGenerator()

    init(
        origins: Set<String>, ownUser: UInt32, via: String, loop: EventLoop,
        open: @escaping (UInt32, Int, @escaping () -> Void) -> DoorSession?
    ) {
        self.loop = loop
        self.ownUser = ownUser
        self.via = via
        self.open = open
        access = AccessRule(origins: origins)
        _ = loop.addHook { [unowned self] in
            let sessions = readySessions
            readySessions = []
            for session in sessions where session.turn() { readySessions.append(session) }
            return readySessions.isEmpty ? .untilEvent : .none
        }
    }

    // MARK: Admission

    /// Returns the refusal of a request by its head, or the answer to a page that asks what it may send.
    ///
    /// - Parameter isProved: whether it has a token. Then the name of the server does not matter.
    func refusal(of head: RequestHead, isProved: Bool) -> WebResponse? {
        switch access.refusal(of: head, anyHost: isProved) {
        case .unknownHost?: return .problem(421, "unknown host name; use localhost or an address")
        case .crossSite?: return .problem(403, "requests from pages of other sites are rejected: see http-origins")
        case nil: break
        }
        let operations = Self.operations(at: head)
        guard !operations.isEmpty else { return .problem(404, "no such resource; see /v1/openapi.json") }
        let methods = operations.map(\.method).joined(separator: ", ")
        if head.method == "OPTIONS" { return Self.options(methods) }
        guard operations.contains(where: { $0.method == head.method }) else {
            return .problem(405, "the methods here are \(methods)", fields: [("Allow", methods)])
        }
        guard head.method == "POST" else { return nil }
        let type = head.fields.first("content-type")?.prefix { $0 != ";" && $0 != " " }.lowercased()
        guard type == "application/json" else { return .problem(415, "the body must be application/json") }
        guard head.fields.values("earshot-api") == ["1"] else {
            return .problem(400, "the field Earshot-API: 1 is required, which no form can send")
        }
        return nil
    }

    /// Returns the answer to a browser that asks whether a page of a named origin may send a request; nil for another request.
    func preflight(_ head: RequestHead) -> WebResponse? {
        let operations = Self.operations(at: head)
        guard head.method == "OPTIONS", head.fields.contains("access-control-request-method"), head.bodyLength == .none,
            !fields(for: head).isEmpty, access.refusal(of: head, anyHost: true) == nil, !operations.isEmpty
        else { return nil }
        return Self.options(operations.map(\.method).joined(separator: ", "))
    }

    private static func operations(at head: RequestHead) -> [APIOperation] {
        APIOperation.table.filter { $0.path == head.path }
    }

    private static func options(_ methods: String) -> WebResponse {
        WebResponse(204, "text/plain", [], fields: [("Allow", methods)])
    }

    /// Fields with which pages of named origins can read a response.
    func fields(for head: RequestHead) -> [(name: String, value: String)] {
        guard let origin = head.fields.first("origin"), access.origins.contains(origin.lowercased()) else { return [] }
        return [
            ("Access-Control-Allow-Origin", origin), ("Access-Control-Allow-Methods", "GET, POST"),
            ("Access-Control-Allow-Headers", "Authorization, Content-Type, Earshot-API, Last-Event-ID"),
            ("Access-Control-Expose-Headers", "Earshot-Status, Earshot-Type, Earshot-URL, Retry-After"),
            ("Vary", "Origin"),
        ]
    }

    /// Carries out a request that ``refusal(of:isProved:)`` admits.
    ///
    /// - Returns: the request whose response is the answer; nil if it is answered otherwise.
    func answer(
        _ peer: WebPeer, _ head: RequestHead, _ body: [UInt8], user: UInt32, _ handler: HandlerID, _ id: RequestID
    ) -> Reply? {
        let fields = fields(for: head)
        let send: Send = { response in
            var response = response
            response.fields += fields
            peer.respond(response)
        }
        guard let operation = APIOperation.table.first(where: { $0.path == head.path && $0.method == head.method })
        else {
            return nil
        }
        do throws(APIInput.Refusal) {
            let input = try Self.input(of: operation, head, body)
            if operation.name == .fetch {
                var fetch = try fetch(of: input, user, handler, id)
                guard !fetch.options.isDurable else { throw APIInput.Refusal(detail: "submit durable requests") }
                fetch.options.streams = fetch.options.method != "HEAD"
                return .fetch(fetch)
            }
            var session: APISession?
            if let token = try input.text("session", { $0 }) {
                guard let found = sessions[token], found.user == user, !found.isEnded else {
                    send(.problem(404, "the session has ended, or does not exist", code: "unknown-session"))
                    return nil
                }
                keepSession(found)
                session = found
            }
            try carryOut(operation, input, session, user, send)
            if let session, operation.name == .events { beginEvents(session, peer, head, fields) }
            if let session, operation.name == .body {
                let sequence = try input.number("sequence", in: 1...Int.max)
                if let result = session.results.first(where: { Int($0.sequence) == sequence }) {
                    return .stored(result, of: session)
                }
                send(.problem(404, "no such result, or it was acknowledged", code: "unknown-body"))
            }
        } catch {
            send(.problem(400, error.detail))
        }
        return nil
    }

    private static func input(
        of operation: APIOperation, _ head: RequestHead, _ body: [UInt8]
    ) throws(APIInput.Refusal) -> APIInput {
        var members = head.query.map { JSONValue.Member(name: $0, value: .string($1)) }
        if operation.method == "POST" {
            guard case .object(let read)? = JSONValue(body) else {
                throw APIInput.Refusal(detail: "the body is no JSON object")
            }
            members = read
        }
        return try APIInput(members, required: operation.required, optional: operation.optional)
    }

    private func fetch(
        of input: APIInput, _ user: UInt32, _ handler: HandlerID, _ id: RequestID
    ) throws(APIInput.Refusal) -> Fetch {
        var fetch = try input.fetch(handler, id)
        if user != ownUser { fetch.httpFields += Array("\(fetch.httpFields.isEmpty ? "" : "\n")via: \(via)".utf8) }
        return fetch
    }

    // MARK: Operations

    private func carryOut(
        _ operation: APIOperation, _ input: APIInput, _ session: APISession?, _ user: UInt32, _ send: @escaping Send
    ) throws(APIInput.Refusal) {
        let handler = { () throws(APIInput.Refusal) in try input.required("handler") { HandlerID($0) } }
        let id = { () throws(APIInput.Refusal) in try input.required("id") { RequestID($0) } }
        switch operation.name {
        case .fetch, .events, .body: break
        case .document: send(WebResponse(200, "application/json", PackageResources.openapi_json))
        case .open: try openSession(input, user, send)
        case .close:
            session?.end()
            send(WebResponse(204, "text/plain", []))
        case .submit: try submit(input, session, user, send)
        case .results: if let session { try answerResults(input, session, send) }
        case .remove:
            let message: ClientMessage =
                input["id"] == nil
                ? .remove(try input.required("handler") { HandlerPattern($0) })
                : .removeRequest(try handler(), try id())
            query(message, session, user, send) { message, _ in
                switch message {
                case .removed(_, let count): .json(200) { $0.member("removed", count) }
                case .requestRemoved(_, _, let wasOpen): .json(200) { $0.member("removed", wasOpen ? 1 : 0) }
                default: Self.brokerUnavailable
                }
            }
        case .priority:
            let named = try input.required("priority") { PriorityClass(name: $0) }
            query(.priority(try handler(), try id(), named), nil, user, send) { _, _ in
                WebResponse(204, "text/plain", [])
            }
        case .why: query(.why(try handler(), try id()), QueryPage(), user, send)
        case .list:
            let after = try input.text("after") { text in
                let isCursor =
                    text.utf8.allSatisfy(\.isVisible) && (1...WireLimits.cursorBytes).contains(text.utf8.count)
                return isCursor ? text : nil
            }
            let page = QueryPage(
                after: after, limit: try input.number("limit", in: 1...WireLimits.queryEntries),
                handler: try input.text("handler") { HandlerPattern($0) },
                state: try input.text("state") { RequestState(rawValue: $0) })
            query(.requests, page, user, send)
        case .status: query(.status, QueryPage(), user, send)
        }
    }

    private func query(_ query: Query, _ page: QueryPage, _ user: UInt32, _ send: @escaping Send) {
        self.query(.query(query, page), nil, user, send) { WebResponse(200, "application/json", $1) }
    }

    /// Sends one message, and answers with a response that `respond` makes of its answer.
    private func query(
        _ message: ClientMessage, _ session: APISession?, _ user: UInt32, _ send: @escaping Send,
        _ respond: @escaping (BrokerMessage, [UInt8]) -> WebResponse
    ) {
        perform([message], session, user, send) { answers in
            guard let answer = answers.first ?? nil else { return send(Self.brokerUnavailable) }
            if case .error(let error) = answer.message { return send(Self.problem(error)) }
            send(respond(answer.message, answer.body))
        }
    }

    private func perform(
        _ messages: [ClientMessage], _ session: APISession?, _ user: UInt32, _ send: @escaping Send,
        _ finish: @escaping ([APISession.Answer?]) -> Void
    ) {
        // The closure keeps a session of one operation until the answer.
        let performer = session ?? makeSession(user, token: "")
        let isAccepted = performer.perform(messages) { answers in
            if let answers { finish(answers) } else { send(Self.brokerUnavailable) }
            if session == nil { performer.end() }
        }
        if !isAccepted { send(.problem(429, "the session has too many requests", fields: [("Retry-After", "1")])) }
    }

    private static let brokerUnavailable = ProxyResponse.brokerUnavailable.asProblem

    private static func problem(_ error: ErrorReply) -> WebResponse {
        let statuses = ["unknown-request": 404, "id-in-use": 409, "quota": 429, "too-many-handlers": 429, "limit": 429]
        return .problem(statuses[error.code] ?? 400, error.detail ?? error.code, code: error.code)
    }

    // MARK: Sessions

    private func makeSession(_ user: UInt32, token: String) -> APISession {
        APISession(user: user, token: token) { [open] in
            open(user, APISession.window, $0)
        } onReady: {
            [unowned self] in
            readySessions.append($0)
        }
    }

    private func openSession(_ input: APIInput, _ user: UInt32, _ send: @escaping Send) throws(APIInput.Refusal) {
        let named = input["subscribe"] == nil ? [] : input["subscribe"]?.items
        let messages: [ClientMessage]? = named?.compactMap { item in
            guard case .string(let text) = item else { return nil }
            return HandlerPattern(text).map { .subscribe($0) }
        }
        guard let messages, messages.count == named?.count, messages.count <= Limits.messages else {
            throw APIInput.Refusal(detail: "subscribe must have at most \(Limits.messages) handlers")
        }
        let own = sessions.values.count { $0.user == user }
        guard sessions.count < Limits.sessions, user == ownUser || own < Limits.sessions / Limits.usersShare else {
            return send(.problem(429, "there are too many sessions; close one", fields: [("Retry-After", "1")]))
        }
        let token = random() + random()
        let session = makeSession(user, token: token)
        sessions[token] = session
        session.onResult = { [unowned self, unowned session] in
            session.deliver(loop)
            guard session.isEnded else { return }
            sessions[token] = nil
            if let timer = session.expiry { loop.cancelTimer(timer) }
            session.expiry = nil
        }
        keepSession(session)
        perform(messages, session, user, send) { answers in
            for case .error(let error)? in answers.map({ $0?.message }) {
                session.end()
                return send(Self.problem(error))
            }
            send(
                .json(201) {
                    $0.member("session", token)
                    $0.member("window", APISession.window)
                })
        }
    }

    private func random() -> String { String(UInt64.random(in: .min ... .max, using: &generator), radix: 36) }

    /// Begins the time of a session without requests again.
    private func keepSession(_ session: APISession) {
        if let timer = session.expiry { loop.cancelTimer(timer) }
        session.expiry = loop.setTimer(after: Limits.sessionTime) { [unowned self, unowned session] in
            session.expiry = nil
            if session.isUsed { keepSession(session) } else { session.end() }
        }
    }

    private func submit(
        _ input: APIInput, _ session: APISession?, _ user: UInt32, _ send: @escaping Send
    ) throws(APIInput.Refusal) {
        guard let handler = HandlerID("api-" + random()), let items = input["requests"]?.items,
            (1...Limits.messages).contains(items.count)
        else { throw APIInput.Refusal(detail: "requests must have 1 to \(Limits.messages) requests") }
        var fetches: [Fetch] = []
        for item in items {
            guard case .object(let members) = item else {
                throw APIInput.Refusal(detail: "a request must be an object")
            }
            let request = try APIInput(members, required: ["url"], optional: APIOperation.content)
            guard let id = RequestID(random()) else { continue }
            var fetch = try fetch(of: request, user, handler, id)
            fetch.options.subscribes = session != nil
            // Bodies stay on disk, so unread results take little memory.
            fetch.options.delivery = .file
            guard session != nil || fetch.options.isDurable else {
                throw APIInput.Refusal(detail: "a request that is not durable needs a session, which gets its result")
            }
            fetches.append(fetch)
        }
        perform(fetches.map { .fetch($0) }, session, user, send) { answers in
            send(
                .json(200) { json in
                    json.member("requests") { json in
                        json.array(zip(fetches, answers)) { Self.write($1.0, $1.1?.message, to: &$0) }
                    }
                })
        }
    }

    /// Writes whether the broker has accepted a request.
    private static func write(_ fetch: Fetch, _ answer: BrokerMessage?, to json: inout JSONText) {
        var refusal: (code: String, detail: String?)?
        if case .error(let error)? = answer { refusal = (error.code, error.detail) }
        if case .terminal(let terminal)? = answer, case .failed(let failure) = terminal.outcome {
            refusal = (failure.code, failure.detail)
        }
        json.object { json in
            json.member("handler", fetch.handler.description)
            json.member("id", fetch.request.description)
            json.member("accepted", refusal == nil)
            guard let refusal else { return }
            json.member("code", refusal.code)
            json.member("detail", refusal.detail ?? refusal.code)
        }
    }

    // MARK: Results

    private func answerResults(
        _ input: APIInput, _ session: APISession, _ send: @escaping Send
    ) throws(APIInput.Refusal) {
        let acknowledged = try input.number("acknowledge", in: 0...Int.max)
        let wait = try input.number("wait", in: 0...Limits.wait) ?? 0
        let count = try input.number("count", in: 1...APISession.window) ?? 1
        if let acknowledged, !session.acknowledge(UInt64(acknowledged)) {
            throw APIInput.Refusal(detail: "acknowledge must be the sequence of a result")
        }
        let answer = { [unowned session] in
            let results = session.results.map(\.json).joined(separator: [UInt8(ascii: ",")])
            send(WebResponse(200, "application/json", Array("{\"results\":[".utf8) + results + Array("]}".utf8)))
        }
        guard session.results.count < count, wait > 0 else { return answer() }
        session.replaceReader(with: .poll(count, answer: answer), loop)
        session.readerTimer = loop.setTimer(after: .seconds(wait)) { [unowned self, unowned session] in
            session.readerTimer = nil
            session.replaceReader(with: nil, loop)
        }
    }

    private func beginEvents(
        _ session: APISession, _ peer: WebPeer, _ head: RequestHead, _ fields: [(name: String, value: String)]
    ) {
        peer.beginStream(fields)
        let last = head.fields.first("last-event-id").flatMap { UInt64($0) } ?? 0
        session.replaceReader(with: .stream(peer, after: last), loop)
        session.deliver(loop)
    }
}
