/// Messages of a client to the broker on the socket `bus`: EAR/1, `protocols/1-core.md`.
public enum ClientMessage: Equatable, Sendable {
    /// The first message of a connection.
    case hello(Hello)
    case fetch(Fetch)
    /// Repeats a durable request that has failed and waits for a subscriber.
    case retry(HandlerID, RequestID)
    /// Removes all requests and subscriptions under these handlers.
    case removeHandlers(HandlerPattern)
    /// Removes one request. The subscriptions stay.
    case removeRequest(HandlerID, RequestID)
    case subscribe(HandlerPattern)
    case unsubscribe(HandlerPattern)
    case setPriority(HandlerID, RequestID, PriorityClass)
    /// Stores cookies in the jar of a handler's root, as if the server of the URL had set them. The fields are
    /// `Set-Cookie` fields, separated by LF.
    case storeCookies(HandlerID, url: String, fields: [UInt8])
    /// Acknowledges all terminals up to this sequence number.
    case acknowledge(UInt64)
    case query(Query, QueryPage = QueryPage())
    /// Changes a setting of the broker.
    case changeSetting(SettingWords)
    /// Requests bytes of a body.
    case readBody(BodyRead)
    /// Requests exclusive ownership of the file of the terminal with this sequence number.
    case takeFile(UInt64)
    /// The client leaves and the broker purges its requests immediately.
    case bye

    /// - Throws: `WireError` for bytes that are not a valid message.
    public init(head: [UInt8]) throws(WireError) {
        do throws(WireError) {
            self = try Self.decoded(try HeadReader(head))
        } catch {
            throw Self.addingNumber(to: error, from: head)
        }
    }

    /// Returns the error with the number of the message, if its first field is one. The rest of the head may be
    /// invalid.
    public static func addingNumber(to error: WireError, from head: [UInt8]) -> WireError {
        let verb = head.prefix(longestUnnumberedVerbBytes + 1).prefix { $0 != Ascii.space && $0 != Ascii.lineFeed }
        if unnumberedVerbs.contains(where: { $0.utf8.elementsEqual(verb) }) { return error }
        var error = error
        error.messageNumber = HeadNumber.number(ofField: "number", in: head)
        return error
    }

    /// Verbs without numbers.
    private static let unnumberedVerbs = ["HELLO", "ACK", "READ", "BYE"]
    private static let longestUnnumberedVerbBytes = 5

    static func decoded(_ reader: HeadReader) throws(WireError) -> ClientMessage {
        switch reader.verb {
        case "HELLO": return .hello(try Hello(reader))
        case "FETCH": return .fetch(try .decoded(reader))
        case "RETRY":
            try reader.expectOperands(2)
            return .retry(try reader.handler(at: 0), try reader.request(at: 1))
        case "REMOVE":
            try reader.expectOperands(2)
            guard reader.operandCount == 2 else { return .removeHandlers(try reader.pattern(at: 0)) }
            return .removeRequest(try reader.handler(at: 0), try reader.request(at: 1))
        case "SUBSCRIBE":
            try reader.expectOperands(1)
            return .subscribe(try reader.pattern(at: 0))
        case "UNSUBSCRIBE":
            try reader.expectOperands(1)
            return .unsubscribe(try reader.pattern(at: 0))
        case "PRIORITY":
            try reader.expectOperands(3)
            let priority = try HeadReader.parsePriorityClass(try reader.operand(at: 2, named: "class"))
            return .setPriority(try reader.handler(at: 0), try reader.request(at: 1), priority)
        case "COOKIES":
            try reader.expectOperands(2)
            return .storeCookies(try reader.handler(at: 0), url: try reader.url(at: 1), fields: reader.httpFields)
        case "ACK":
            try reader.expectOperands(1)
            return .acknowledge(try reader.number(at: 0, named: "sequence number"))
        case "QUERY": return .query(try Query(reader), try QueryPage(reader))
        case "SET": return .changeSetting(try SettingWords(reader))
        case "READ": return .readBody(try BodyRead(reader))
        case "TAKE":
            try reader.expectOperands(1)
            return .takeFile(try reader.number(at: 0, named: "sequence number"))
        case "BYE":
            try reader.expectOperands(0)
            return .bye
        default: throw WireError(.unknownVerb, "EAR/1 has no such verb for clients")
        }
    }

    /// The second frame; nil except for a FETCH with a body.
    public var body: [UInt8]? {
        if case .fetch(let fetch) = self { fetch.body } else { nil }
    }

    /// Returns the head frame.
    public func encoded() -> [UInt8] {
        switch self {
        case .hello(let hello): return hello.encoded()
        case .fetch(let fetch): return fetch.encoded()
        case .retry(let handler, let request):
            return Self.headLine(verb: "RETRY", operands: [handler.description, request.description])
        case .removeHandlers(let pattern): return Self.headLine(verb: "REMOVE", operands: [pattern.description])
        case .removeRequest(let handler, let request):
            return Self.headLine(verb: "REMOVE", operands: [handler.description, request.description])
        case .subscribe(let pattern): return Self.headLine(verb: "SUBSCRIBE", operands: [pattern.description])
        case .unsubscribe(let pattern): return Self.headLine(verb: "UNSUBSCRIBE", operands: [pattern.description])
        case .setPriority(let handler, let request, let priority):
            return Self.headLine(verb: "PRIORITY", operands: [handler.description, request.description, priority.name])
        case .storeCookies(let handler, let url, let fields):
            var writer = HeadWriter("COOKIES")
            writer.writeOperand(handler.description)
            writer.writeOperand(url)
            return writer.finished(httpFields: fields)
        case .acknowledge(let sequence): return Self.headLine(verb: "ACK", operands: [String(sequence)])
        case .query(let query, let page):
            var writer = HeadWriter("QUERY")
            for word in query.operands { writer.writeOperand(word) }
            page.write(to: &writer)
            return writer.finished()
        case .changeSetting(let setting): return Self.headLine(verb: "SET", operands: setting.words)
        case .readBody(let read): return read.encoded()
        case .takeFile(let sequence): return Self.headLine(verb: "TAKE", operands: [String(sequence)])
        case .bye: return Self.headLine(verb: "BYE", operands: [])
        }
    }

    private static func headLine(verb: String, operands: [String]) -> [UInt8] {
        var writer = HeadWriter(verb)
        for operand in operands { writer.writeOperand(operand) }
        return writer.finished()
    }
}

/// HELLO: the requested terms of a session.
public struct Hello: Equatable, Sendable {
    /// The protocol's name and version.
    public static let version = "EAR/1"

    /// Requested maximum of unacknowledged terminals, 1 to 4,096.
    public var window: Int
    /// Requested time for which the session is kept after its connection is lost, 0 to `WireLimits.durationSeconds`. A
    /// broker grants at most `WireLimits.leaseSeconds`.
    public var leaseMilliseconds = 0
    /// Secret from the WELCOME of the session to resume; nil for a new session.
    public var token: SessionToken?
    /// Number from which the client lacks answers; nil from one that lacks none.
    public var firstUnansweredNumber: UInt64?
    /// Whether bodies in files are read with READ. The broker then names no paths.
    public var pullsBodies = false
    /// Whether durable failures stay on disk after their acknowledgement, where RETRY repeats them.
    public var keepsFailures = false
    /// Session whose bodies this connection reads, beside the session's own connection. Nil for one that reads its own.
    public var bodySessionToken: SessionToken?
    /// Principal that owns the session; nil for that of the connection.
    public var principal: PrincipalName?
    /// Proof that the sender is the gateway, which may name any principal. Nil from all other clients.
    public var proof: GatewayProof?
    /// Whether a session of the administrator has the rights of a user only.
    public var hasUserRights = false

    public init(window: Int = WireLimits.defaultWindow) {
        self.window = window
    }

    init(_ reader: HeadReader) throws(WireError) {
        try reader.expectVersion(Self.version)
        self.init()
        for (name, value) in reader.fields {
            switch name {
            case "window":
                window = try HeadReader.parseInteger(value, in: 1...WireLimits.maximumWindow, named: "window")
            case "lease": leaseMilliseconds = try HeadReader.parseLeaseMilliseconds(value)
            case "token": token = try HeadReader.parseSessionToken(value)
            case "unanswered":
                firstUnansweredNumber = UInt64(try HeadReader.parseInteger(value, in: 1...Int.max, named: "unanswered"))
            case "bodies": pullsBodies = try HeadReader.parsePulling(value)
            case "failures": keepsFailures = try HeadReader.parseFailureRetention(value)
            case "bodies-of": bodySessionToken = try HeadReader.parseSessionToken(value)
            case "principal": principal = try HeadReader.parsePrincipal(value)
            case "proof": proof = try HeadReader.parseGatewayProof(value)
            case "rights": hasUserRights = try HeadReader.parseUserRights(value)
            default: break
            }
        }
    }

    func encoded() -> [UInt8] {
        var writer = HeadWriter("HELLO")
        writer.writeOperand(Self.version)
        writer.writeField("window", String(window))
        writer.writeField("lease", leaseMilliseconds > 0 ? Decimal.secondsText(milliseconds: leaseMilliseconds) : nil)
        writer.writeField("token", token?.description)
        writer.writeField("unanswered", firstUnansweredNumber.map { String($0) })
        writer.writeField("bodies", if: pullsBodies, "pull")
        writer.writeField("failures", if: keepsFailures, "keep")
        writer.writeField("bodies-of", bodySessionToken?.description)
        writer.writeField("principal", principal?.description)
        writer.writeField("proof", proof?.description)
        writer.writeField("rights", if: hasUserRights, "user")
        return writer.finished()
    }
}
