/// Messages of a client to the broker on the socket `bus`: EAR/1, `protocols/1-core.md`.
public enum ClientMessage: Equatable, Sendable {
    /// The first message of a connection.
    case hello(Hello)
    case fetch(Fetch)
    /// Repeats a durable request that has failed and waits for a subscriber.
    case retry(HandlerID, RequestID)
    /// Removes all requests and subscriptions under these handlers.
    case remove(HandlerPattern)
    /// Removes one request. The subscriptions stay.
    case removeRequest(HandlerID, RequestID)
    case subscribe(HandlerPattern)
    case unsubscribe(HandlerPattern)
    case priority(HandlerID, RequestID, PriorityClass)
    /// Stores cookies in the jar of a handler's root, as if the server of the URL had set them. The fields are
    /// `Set-Cookie` fields, separated by LF.
    case cookies(HandlerID, url: String, fields: [UInt8])
    /// Acknowledges all terminals up to this sequence number.
    case acknowledge(UInt64)
    case query(Query, QueryPage = QueryPage())
    /// Changes a setting of the broker.
    case set(SettingWords)
    /// Asks for bytes of a body.
    case read(BodyRead)
    /// Asks for exclusive ownership of the file of the terminal with this sequence number.
    case take(UInt64)
    /// The client leaves and the broker purges its requests immediately.
    case bye

    /// - Throws: `WireError` for bytes that are not a valid message.
    public init(head: [UInt8]) throws(WireError) {
        do throws(WireError) {
            self = try Self.decoded(try HeadReader(head))
        } catch {
            throw Self.numbered(error, by: head)
        }
    }

    /// Returns the error with the number of the message, if its first field is one. The rest of the head may be invalid.
    public static func numbered(_ error: WireError, by head: [UInt8]) -> WireError {
        let verb = head.prefix(longestUnnumbered + 1).prefix { $0 != Ascii.space && $0 != Ascii.lineFeed }
        if unnumbered.contains(where: { $0.utf8.elementsEqual(verb) }) { return error }
        var error = error
        error.number = HeadNumber.value(of: "number", in: head)
        return error
    }

    /// Verbs without numbers.
    private static let unnumbered = ["HELLO", "ACK", "READ", "BYE"]
    private static let longestUnnumbered = 5

    static func decoded(_ reader: HeadReader) throws(WireError) -> ClientMessage {
        switch reader.verb {
        case "HELLO": return .hello(try Hello(reader))
        case "FETCH": return .fetch(try .decoded(reader))
        case "RETRY":
            try reader.expectOperands(2)
            return .retry(try reader.handler(0), try reader.request(1))
        case "REMOVE":
            try reader.expectOperands(2)
            guard reader.operandCount == 2 else { return .remove(try reader.pattern(0)) }
            return .removeRequest(try reader.handler(0), try reader.request(1))
        case "SUBSCRIBE":
            try reader.expectOperands(1)
            return .subscribe(try reader.pattern(0))
        case "UNSUBSCRIBE":
            try reader.expectOperands(1)
            return .unsubscribe(try reader.pattern(0))
        case "PRIORITY":
            try reader.expectOperands(3)
            let named = try HeadReader.priorityClass(try reader.operand(2, "class"))
            return .priority(try reader.handler(0), try reader.request(1), named)
        case "COOKIES":
            try reader.expectOperands(2)
            return .cookies(try reader.handler(0), url: try reader.url(1), fields: reader.httpFields)
        case "ACK":
            try reader.expectOperands(1)
            return .acknowledge(try reader.number(0, "sequence number"))
        case "QUERY": return .query(try Query(reader), try QueryPage(reader))
        case "SET": return .set(try SettingWords(reader))
        case "READ": return .read(try BodyRead(reader))
        case "TAKE":
            try reader.expectOperands(1)
            return .take(try reader.number(0, "sequence number"))
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

    /// The head frame.
    public func encoded() -> [UInt8] {
        switch self {
        case .hello(let hello): return hello.encoded()
        case .fetch(let fetch): return fetch.encoded()
        case .retry(let handler, let request):
            return Self.line("RETRY", [handler.description, request.description])
        case .remove(let pattern): return Self.line("REMOVE", [pattern.description])
        case .removeRequest(let handler, let request):
            return Self.line("REMOVE", [handler.description, request.description])
        case .subscribe(let pattern): return Self.line("SUBSCRIBE", [pattern.description])
        case .unsubscribe(let pattern): return Self.line("UNSUBSCRIBE", [pattern.description])
        case .priority(let handler, let request, let named):
            return Self.line("PRIORITY", [handler.description, request.description, named.name])
        case .cookies(let handler, let url, let fields):
            var writer = HeadWriter("COOKIES")
            writer.operand(handler.description)
            writer.operand(url)
            return writer.finished(httpFields: fields)
        case .acknowledge(let sequence): return Self.line("ACK", [String(sequence)])
        case .query(let query, let page):
            var writer = HeadWriter("QUERY")
            for word in query.words { writer.operand(word) }
            page.write(to: &writer)
            return writer.finished()
        case .set(let setting): return Self.line("SET", setting.words)
        case .read(let read): return read.encoded()
        case .take(let sequence): return Self.line("TAKE", [String(sequence)])
        case .bye: return Self.line("BYE", [])
        }
    }

    private static func line(_ verb: String, _ operands: [String]) -> [UInt8] {
        var writer = HeadWriter(verb)
        for operand in operands { writer.operand(operand) }
        return writer.finished()
    }
}

/// HELLO: the requested terms of a session.
public struct Hello: Equatable, Sendable {
    /// The protocol's name and version.
    public static let version = "EAR/1"

    /// Requested maximum of unacknowledged terminals, 1 to 4,096.
    public var window: Int
    /// Requested time for which the session is kept after its connection is lost, 0 to `WireLimits.seconds`. A broker
    /// grants at most `WireLimits.leaseSeconds`.
    public var leaseMilliseconds = 0
    /// Secret from the WELCOME of the session to resume; nil for a new session.
    public var token: SessionToken?
    /// Number from which the client lacks answers; nil from one that lacks none.
    public var unanswered: UInt64?
    /// Whether bodies in files are read with READ. The broker then names no paths.
    public var isPulling = false
    /// Whether durable failures stay on disk after their acknowledgement, where RETRY repeats them.
    public var keepsFailures = false
    /// Session whose bodies this connection reads, beside the session's own connection. Nil for one that reads its own.
    public var bodiesOf: SessionToken?
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
        try reader.version(Self.version)
        self.init()
        for (name, value) in reader.fields {
            switch name {
            case "window": window = try HeadReader.integer(value, in: 1...WireLimits.window, "window")
            case "lease": leaseMilliseconds = try HeadReader.lease(value)
            case "token": token = try HeadReader.token(value)
            case "unanswered": unanswered = UInt64(try HeadReader.integer(value, in: 1...Int.max, "unanswered"))
            case "bodies": isPulling = try HeadReader.isPulling(value)
            case "failures": keepsFailures = try HeadReader.keepsFailures(value)
            case "bodies-of": bodiesOf = try HeadReader.token(value)
            case "principal": principal = try HeadReader.principal(value)
            case "proof": proof = try HeadReader.proof(value)
            case "rights": hasUserRights = try HeadReader.hasUserRights(value)
            default: break
            }
        }
    }

    func encoded() -> [UInt8] {
        var writer = HeadWriter("HELLO")
        writer.operand(Self.version)
        writer.field("window", String(window))
        writer.field("lease", leaseMilliseconds > 0 ? Decimal.seconds(leaseMilliseconds) : nil)
        writer.field("token", token?.description)
        writer.field("unanswered", unanswered.map { String($0) })
        writer.field("bodies", if: isPulling, "pull")
        writer.field("failures", if: keepsFailures, "keep")
        writer.field("bodies-of", bodiesOf?.description)
        writer.field("principal", principal?.description)
        writer.field("proof", proof?.description)
        writer.field("rights", if: hasUserRights, "user")
        return writer.finished()
    }
}
