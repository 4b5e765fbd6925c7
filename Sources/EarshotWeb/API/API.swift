internal import EarshotClient
internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire

/// The API `/v1` of the door: requests to it become messages of sessions at the broker.
final class API {
    private enum Limits {
        static let sessions = 256
        static let shareDivisorPerUser = 4
        /// Requests of one submission, and handlers of a session. The broker accepts 256 messages without an answer.
        static let maximumMessagesPerSubmission = 100
        /// Maximum wait for a result, in seconds.
        static let maximumWaitSeconds = 60
        /// Time without a request or a reader after which a session ends.
        static let idleSessionTime = Duration.seconds(60)
    }

    typealias Send = (WebResponse) -> Void

    /// Request whose response is the answer.
    enum Reply {
        case responseToFetch(Fetch)
        case storedResult(APISession.Result, of: APISession)
    }

    private let loop: EventLoop
    private let accessRule: AccessRule
    private let ownUserID: UInt32
    /// Value of `Via` in requests of other users. The door rejects a request with this value, which would otherwise
    /// count as one of its own user.
    private let viaFieldValue: String
    /// Opens a session at the broker for a user; nil if there is none.
    private let openBrokerSession: (UInt32, Int, @escaping () -> Void) -> DoorSession?
    private var sessionsByToken: [String: APISession] = [:]
    private var readySessions: [APISession] = []
    private var generator = SystemRandomNumberGenerator()

    init(
        origins: Set<String>, ownUser: UInt32, via: String, loop: EventLoop,
        open: @escaping (UInt32, Int, @escaping () -> Void) -> DoorSession?
    ) {
        self.loop = loop
        self.ownUserID = ownUser
        self.viaFieldValue = via
        self.openBrokerSession = open
        accessRule = AccessRule(permittedOrigins: origins)
        _ = loop.addHook { [unowned self] in
            let sessions = readySessions
            readySessions = []
            for session in sessions where session.handleBrokerMessages() { readySessions.append(session) }
            return readySessions.isEmpty ? .untilEvent : .noSleep
        }
    }

    // MARK: Admission

    /// Returns the refusal of a request by its head, or the response to OPTIONS; nil if the request is admitted.
    ///
    /// - Parameter isProved: whether it has a token. Then the name of the server does not matter.
    func refusal(of head: RequestHead, isProved: Bool) -> WebResponse? {
        switch accessRule.refusal(of: head, allowsAnyHost: isProved) {
        case .unknownHost?: return .problemDetails(421, "unknown host name; use localhost or an address")
        case .crossSite?:
            return .problemDetails(403, "requests from pages of other sites are rejected: see http-origins")
        case nil: break
        }
        let operations = Self.operations(at: head)
        guard !operations.isEmpty else { return .problemDetails(404, "no such resource; see /v1/openapi.json") }
        let methods = operations.map(\.method).joined(separator: ", ")
        if head.method == "OPTIONS" { return Self.optionsResponse(methods: methods) }
        guard operations.contains(where: { $0.method == head.method }) else {
            return .problemDetails(405, "the methods here are \(methods)", fields: [("Allow", methods)])
        }
        guard head.method == "POST" else { return nil }
        let type = head.fields.firstValue(named: "content-type")?.prefix { $0 != ";" && $0 != " " }.lowercased()
        guard type == "application/json" else { return .problemDetails(415, "the body must be application/json") }
        guard head.fields.values(named: "earshot-api") == ["1"] else {
            return .problemDetails(400, "the field Earshot-API: 1 is required, which no form can send")
        }
        return nil
    }

    /// Returns the response to the CORS preflight of a page of a named origin; nil for another request.
    func preflight(_ head: RequestHead) -> WebResponse? {
        let operations = Self.operations(at: head)
        guard head.method == "OPTIONS", head.fields.contains("access-control-request-method"), head.bodyLength == .none,
            !crossOriginFields(for: head).isEmpty, accessRule.refusal(of: head, allowsAnyHost: true) == nil,
            !operations.isEmpty
        else { return nil }
        return Self.optionsResponse(methods: operations.map(\.method).joined(separator: ", "))
    }

    private static func operations(at head: RequestHead) -> [APIOperation] {
        APIOperation.allOperations.filter { $0.path == head.path }
    }

    private static func optionsResponse(methods: String) -> WebResponse {
        WebResponse(204, "text/plain", [], fields: [("Allow", methods)])
    }

    /// Fields with which pages of named origins can read a response.
    func crossOriginFields(for head: RequestHead) -> [(name: String, value: String)] {
        guard let origin = head.fields.firstValue(named: "origin"),
            accessRule.permittedOrigins.contains(origin.lowercased())
        else { return [] }
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
        _ peer: WebPeer, head: RequestHead, body: [UInt8], user: UInt32, handler: HandlerID, id: RequestID
    ) -> Reply? {
        let fields = crossOriginFields(for: head)
        let send: Send = { response in
            var response = response
            response.fields += fields
            peer.respond(response)
        }
        let known = APIOperation.allOperations.first { $0.path == head.path && $0.method == head.method }
        guard let operation = known else { return nil }
        do throws(APIInput.Refusal) {
            let input = try Self.parseInput(of: operation, head: head, body: body)
            if operation.name == .fetch {
                var fetch = try makeFetch(of: input, user: user, handler: handler, id: id)
                guard !fetch.options.isDurable else { throw APIInput.Refusal(detail: "submit durable requests") }
                fetch.options.streams = fetch.options.method != "HEAD"
                return .responseToFetch(fetch)
            }
            var session: APISession?
            if let token = try input.parsedText("session", parse: { $0 }) {
                guard let found = sessionsByToken[token], found.user == user, !found.isEnded else {
                    send(.problemDetails(404, "the session has ended, or does not exist", code: "unknown-session"))
                    return nil
                }
                restartSessionExpiry(found)
                session = found
            }
            try performOperation(operation, input: input, session: session, user: user, send: send)
            if let session, operation.name == .events {
                beginEventStream(session, peer: peer, head: head, fields: fields)
            }
            if let session, operation.name == .body {
                let sequence = try input.integerMember("sequence", in: 1...Int.max)
                if let result = session.unacknowledgedResults.first(where: { Int($0.sequence) == sequence }) {
                    return .storedResult(result, of: session)
                }
                send(.problemDetails(404, "no such result, or it was acknowledged", code: "unknown-body"))
            }
        } catch {
            send(.problemDetails(400, error.detail))
        }
        return nil
    }

    private static func parseInput(
        of operation: APIOperation, head: RequestHead, body: [UInt8]
    ) throws(APIInput.Refusal) -> APIInput {
        var members = head.query.map { JSONValue.Member(name: $0, value: .string($1)) }
        if operation.method == "POST" {
            guard case .object(let read)? = JSONValue(body) else {
                throw APIInput.Refusal(detail: "the body is no JSON object")
            }
            members = read
        }
        return try APIInput(members, required: operation.requiredMembers, optional: operation.optionalMembers)
    }

    private func makeFetch(
        of input: APIInput, user: UInt32, handler: HandlerID, id: RequestID
    ) throws(APIInput.Refusal) -> Fetch {
        var fetch = try input.makeFetch(handler: handler, id: id)
        if user != ownUserID {
            fetch.httpFields += Array("\(fetch.httpFields.isEmpty ? "" : "\n")via: \(viaFieldValue)".utf8)
        }
        return fetch
    }

    // MARK: Operations

    private func performOperation(
        _ operation: APIOperation, input: APIInput, session: APISession?, user: UInt32, send: @escaping Send
    ) throws(APIInput.Refusal) {
        let handler = { () throws(APIInput.Refusal) in try input.requiredText("handler") { HandlerID($0) } }
        let id = { () throws(APIInput.Refusal) in try input.requiredText("id") { RequestID($0) } }
        switch operation.name {
        case .fetch, .events, .body: break
        case .document: send(WebResponse(200, "application/json", PackageResources.openapi_json))
        case .open: try openSession(input, user: user, send: send)
        case .close:
            session?.end()
            send(WebResponse(204, "text/plain", []))
        case .submit: try submit(input, session: session, user: user, send: send)
        case .results: if let session { try answerResults(input, session: session, send: send) }
        case .remove:
            let message: ClientMessage =
                input["id"] == nil
                ? .removeHandlers(try input.requiredText("handler") { HandlerPattern($0) })
                : .removeRequest(try handler(), try id())
            sendQuery(message, session: session, user: user, send: send) { message, _ in
                switch message {
                case .handlersRemoved(_, let count): .json(200) { $0.member("removed", count) }
                case .requestRemoved(_, _, let wasOpen): .json(200) { $0.member("removed", wasOpen ? 1 : 0) }
                default: Self.brokerUnavailable
                }
            }
        case .priority:
            let named = try input.requiredText("priority") { PriorityClass(name: $0) }
            sendQuery(.setPriority(try handler(), try id(), named), session: nil, user: user, send: send) { _, _ in
                WebResponse(204, "text/plain", [])
            }
        case .why: sendQuery(.explainRequest(try handler(), try id()), page: QueryPage(), user: user, send: send)
        case .list:
            let after = try input.parsedText("after") { text in
                let isCursor =
                    text.utf8.allSatisfy(\.isVisible) && (1...WireLimits.cursorBytes).contains(text.utf8.count)
                return isCursor ? text : nil
            }
            let page = QueryPage(
                cursor: after, limit: try input.integerMember("limit", in: 1...WireLimits.queryEntries),
                handler: try input.parsedText("handler") { HandlerPattern($0) },
                state: try input.parsedText("state") { RequestState(rawValue: $0) })
            sendQuery(.requests, page: page, user: user, send: send)
        case .status: sendQuery(.status, page: QueryPage(), user: user, send: send)
        }
    }

    private func sendQuery(_ query: Query, page: QueryPage, user: UInt32, send: @escaping Send) {
        self.sendQuery(.query(query, page), session: nil, user: user, send: send) {
            WebResponse(200, "application/json", $1)
        }
    }

    /// Sends one message, and answers with a response that `respond` makes of its answer.
    private func sendQuery(
        _ message: ClientMessage, session: APISession?, user: UInt32, send: @escaping Send,
        respond: @escaping (BrokerMessage, [UInt8]) -> WebResponse
    ) {
        sendMessages([message], session: session, user: user, send: send) { answers in
            guard let answer = answers.first ?? nil else { return send(Self.brokerUnavailable) }
            if case .error(let error) = answer.message { return send(Self.problemResponse(error)) }
            send(respond(answer.message, answer.body))
        }
    }

    private func sendMessages(
        _ messages: [ClientMessage], session: APISession?, user: UInt32, send: @escaping Send,
        finish: @escaping ([APISession.Answer?]) -> Void
    ) {
        // The closure keeps a session of one operation until the answer.
        let performer = session ?? makeSession(user, token: "")
        let isAccepted = performer.perform(messages) { answers in
            if let answers { finish(answers) } else { send(Self.brokerUnavailable) }
            if session == nil { performer.end() }
        }
        if !isAccepted {
            send(.problemDetails(429, "the session has too many requests", fields: [("Retry-After", "1")]))
        }
    }

    private static let brokerUnavailable = ProxyResponse.brokerUnavailable.asProblemDetails

    private static func problemResponse(_ error: ErrorReply) -> WebResponse {
        let statuses = ["unknown-request": 404, "id-in-use": 409, "quota": 429, "too-many-handlers": 429, "limit": 429]
        return .problemDetails(statuses[error.code] ?? 400, error.detail ?? error.code, code: error.code)
    }

    // MARK: Sessions

    private func makeSession(_ user: UInt32, token: String) -> APISession {
        APISession(user: user, token: token) { [openBrokerSession] in
            openBrokerSession(user, APISession.unacknowledgedResultWindow, $0)
        } onReady: { [unowned self] session in
            readySessions.append(session)
        }
    }

    private func openSession(_ input: APIInput, user: UInt32, send: @escaping Send) throws(APIInput.Refusal) {
        let named = input["subscribe"] == nil ? [] : input["subscribe"]?.items
        let messages: [ClientMessage]? = named?.compactMap { item in
            guard case .string(let text) = item else { return nil }
            return HandlerPattern(text).map { .subscribe($0) }
        }
        guard let messages, messages.count == named?.count, messages.count <= Limits.maximumMessagesPerSubmission else {
            throw APIInput.Refusal(
                detail: "subscribe must have at most \(Limits.maximumMessagesPerSubmission) handlers")
        }
        let own = sessionsByToken.values.count { $0.user == user }
        guard sessionsByToken.count < Limits.sessions,
            user == ownUserID || own < Limits.sessions / Limits.shareDivisorPerUser
        else {
            return send(.problemDetails(429, "there are too many sessions; close one", fields: [("Retry-After", "1")]))
        }
        let token = randomToken() + randomToken()
        let session = makeSession(user, token: token)
        sessionsByToken[token] = session
        session.onResult = { [unowned self, unowned session] in
            session.deliverResults(loop)
            guard session.isEnded else { return }
            sessionsByToken[token] = nil
            if let timer = session.expiry { loop.cancelTimer(timer) }
            session.expiry = nil
        }
        restartSessionExpiry(session)
        sendMessages(messages, session: session, user: user, send: send) { answers in
            for case .error(let error)? in answers.map({ $0?.message }) {
                session.end()
                return send(Self.problemResponse(error))
            }
            let response = WebResponse.json(201) { json in
                json.member("session", token)
                json.member("window", APISession.unacknowledgedResultWindow)
            }
            send(response)
        }
    }

    private func randomToken() -> String { String(UInt64.random(in: .min ... .max, using: &generator), radix: 36) }

    /// Restarts the timer that ends a session without requests.
    private func restartSessionExpiry(_ session: APISession) {
        if let timer = session.expiry { loop.cancelTimer(timer) }
        session.expiry = loop.setTimer(after: Limits.idleSessionTime) { [unowned self, unowned session] in
            session.expiry = nil
            if session.hasWaitingRequests { restartSessionExpiry(session) } else { session.end() }
        }
    }

    private func submit(
        _ input: APIInput, session: APISession?, user: UInt32, send: @escaping Send
    ) throws(APIInput.Refusal) {
        guard let handler = HandlerID("api-" + randomToken()), let items = input["requests"]?.items,
            (1...Limits.maximumMessagesPerSubmission).contains(items.count)
        else {
            throw APIInput.Refusal(detail: "requests must have 1 to \(Limits.maximumMessagesPerSubmission) requests")
        }
        var fetches: [Fetch] = []
        for item in items {
            guard case .object(let members) = item else {
                throw APIInput.Refusal(detail: "a request must be an object")
            }
            let request = try APIInput(members, required: ["url"], optional: APIOperation.optionalRequestMembers)
            guard let id = RequestID(randomToken()) else { continue }
            var fetch = try makeFetch(of: request, user: user, handler: handler, id: id)
            fetch.options.subscribes = session != nil
            // Bodies stay on disk, so unread results take little memory.
            fetch.options.delivery = .file
            guard session != nil || fetch.options.isDurable else {
                throw APIInput.Refusal(detail: "a request that is not durable needs a session, which gets its result")
            }
            fetches.append(fetch)
        }
        sendMessages(fetches.map { .fetch($0) }, session: session, user: user, send: send) { answers in
            let response = WebResponse.json(200) { json in
                json.member("requests") { json in
                    json.array(zip(fetches, answers)) { Self.writeSubmissionAnswer($1.0, $1.1?.message, to: &$0) }
                }
            }
            send(response)
        }
    }

    /// Writes whether the broker has accepted a request.
    private static func writeSubmissionAnswer(_ fetch: Fetch, _ answer: BrokerMessage?, to json: inout JSONText) {
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

    private func answerResults(_ input: APIInput, session: APISession, send: @escaping Send) throws(APIInput.Refusal) {
        let acknowledged = try input.integerMember("acknowledge", in: 0...Int.max)
        let wait = try input.integerMember("wait", in: 0...Limits.maximumWaitSeconds) ?? 0
        let count = try input.integerMember("count", in: 1...APISession.unacknowledgedResultWindow) ?? 1
        if let acknowledged, !session.acknowledgeResults(through: UInt64(acknowledged)) {
            throw APIInput.Refusal(detail: "acknowledge must be the sequence of a result")
        }
        let answer = { [unowned session] in
            let results = session.unacknowledgedResults.map(\.terminalJSON).joined(separator: [UInt8(ascii: ",")])
            send(WebResponse(200, "application/json", Array("{\"results\":[".utf8) + results + Array("]}".utf8)))
        }
        guard session.unacknowledgedResults.count < count, wait > 0 else { return answer() }
        session.replaceReader(with: .poll(count, answer: answer), loop)
        session.readerTimer = loop.setTimer(after: .seconds(wait)) { [unowned self, unowned session] in
            session.readerTimer = nil
            session.replaceReader(with: nil, loop)
        }
    }

    private func beginEventStream(
        _ session: APISession, peer: WebPeer, head: RequestHead, fields: [(name: String, value: String)]
    ) {
        peer.beginStream(fields)
        let last = head.fields.firstValue(named: "last-event-id").flatMap { UInt64($0) } ?? 0
        session.replaceReader(with: .stream(peer, after: last), loop)
        session.deliverResults(loop)
    }
}
