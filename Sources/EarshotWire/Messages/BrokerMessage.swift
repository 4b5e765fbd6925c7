/// Messages of the broker to a client on the socket `bus`: EAR/1, `protocols/1-core.md`.
public enum BrokerMessage: Equatable, Sendable {
    /// Reply to HELLO.
    case welcome(Welcome)
    /// Reply to a durable FETCH: the request is on disk.
    case accepted(HandlerID, RequestID)
    /// RESULT or FAILED.
    case terminal(Terminal)
    case progress(Progress)
    /// Reply to REMOVE of handlers, with the number of removed requests that had not ended.
    case removed(HandlerPattern, count: Int)
    /// Reply to REMOVE of one request; `wasOpen` is false if it had ended or is unknown.
    case requestRemoved(HandlerID, RequestID, wasOpen: Bool)
    /// Reply to QUERY. The second frame is JSON.
    case answer(Query)
    /// Reply to SET, with the setting in normal form.
    case changed(SettingWords)
    /// Answer to READ. The second frame is a part of the body.
    case data(BodyData)
    /// Reply to TAKE, with the new absolute path of the file that the client owns; nil if the client must copy the file.
    case taken(UInt64, path: String?)
    case error(ErrorReply)
    /// Reply to a numbered message whose verb has no other answer: it was carried out.
    case ok
    /// The broker shuts down. The client repeats unanswered requests at the next broker.
    case goodbye(reason: String)

    /// - Throws: `WireError` for bytes that are not a valid message.
    public init(head: [UInt8]) throws(WireError) { self = try Self.decoded(try HeadReader(head)) }

    static func decoded(_ reader: HeadReader) throws(WireError) -> BrokerMessage {
        switch reader.verb {
        case "WELCOME": return .welcome(try Welcome(reader))
        case "ACCEPTED":
            try reader.expectOperands(2)
            return .accepted(try reader.handler(0), try reader.request(1))
        case "RESULT": return .terminal(try .decoded(result: reader))
        case "FAILED": return .terminal(try Terminal(failed: reader))
        case "PROGRESS": return .progress(try Progress(reader))
        case "REMOVED":
            try reader.expectOperands(3)
            if reader.operandCount == 3 {
                let count = try HeadReader.integer(try reader.operand(2, "count"), in: 0...1, "count")
                return .requestRemoved(try reader.handler(0), try reader.request(1), wasOpen: count == 1)
            } else {
                let count = try HeadReader.count(try reader.operand(1, "count"), "count")
                return .removed(try reader.pattern(0), count: count)
            }
        case "ANSWER": return .answer(try Query(reader))
        case "CHANGED": return .changed(try SettingWords(reader))
        case "DATA": return .data(try BodyData(reader))
        case "TAKEN":
            let sequence = try reader.number(0, "sequence number")
            // A path may contain single spaces.
            let path = reader.operands.dropFirst().joined(separator: " ")
            guard path.isEmpty || path.utf8.first == UInt8(ascii: "/") else {
                throw WireError(.badMessage, "the path of TAKEN must be absolute")
            }
            return .taken(sequence, path: path.isEmpty ? nil : path)
        case "ERROR": return .error(try ErrorReply(reader))
        case "OK":
            try reader.expectOperands(0)
            return .ok
        case "GOODBYE":
            try reader.expectOperands(0)
            return .goodbye(reason: reader.fields["reason"]?.string ?? "")
        default: throw WireError(.unknownVerb, "EAR/1 has no such verb for brokers")
        }
    }

    /// Whether the message replies to one message of the client.
    public var isReply: Bool {
        switch self {
        case .accepted, .removed, .requestRemoved, .answer, .changed, .taken, .error, .ok: true
        case .terminal(let terminal): terminal.sequence == 0
        case .welcome, .progress, .data, .goodbye: false
        }
    }

    /// The head frame. A body is sent in the second frame.
    public func encoded() -> [UInt8] {
        switch self {
        case .welcome(let welcome): return welcome.encoded()
        case .accepted(let handler, let request):
            var writer = HeadWriter("ACCEPTED")
            writer.operand(handler.description)
            writer.operand(request.description)
            return writer.finished()
        case .terminal(let terminal): return terminal.encoded()
        case .progress(let progress): return progress.encoded()
        case .removed(let pattern, let count):
            var writer = HeadWriter("REMOVED")
            writer.operand(pattern.description)
            writer.operand(String(count))
            return writer.finished()
        case .requestRemoved(let handler, let request, let wasOpen):
            var writer = HeadWriter("REMOVED")
            writer.operand(handler.description)
            writer.operand(request.description)
            writer.operand(wasOpen ? "1" : "0")
            return writer.finished()
        case .answer(let query):
            var writer = HeadWriter("ANSWER")
            for word in query.words { writer.operand(word) }
            return writer.finished()
        case .changed(let setting):
            var writer = HeadWriter("CHANGED")
            for word in setting.words { writer.operand(word) }
            return writer.finished()
        case .data(let data): return data.encoded()
        case .taken(let sequence, let path):
            var writer = HeadWriter("TAKEN")
            writer.operand(String(sequence))
            if let path { writer.operand(path) }
            return writer.finished()
        case .error(let reply): return reply.encoded()
        case .ok: return HeadWriter("OK").finished()
        case .goodbye(let reason):
            var writer = HeadWriter("GOODBYE")
            writer.field("reason", reason)
            return writer.finished()
        }
    }
}

/// WELCOME: the broker's instance and the granted terms of the session.
public struct Welcome: Equatable, Sendable {
    /// Changes with each start of the broker. After a change the client repeats the requests it still needs.
    public var broker: BrokerInstance
    /// Granted window.
    public var window = WireLimits.defaultWindow
    /// Time for which the session is kept after its connection is lost; 0 if it is not kept.
    public var leaseMilliseconds = 0
    /// Secret for resuming the session; nil without a lease.
    public var token: SessionToken?
    /// If this connection resumes a session: the number of the last message that the broker carries out or has carried
    /// out. Nil for a new session.
    public var lastReceived: UInt64?
    /// Whether bodies in files are read with READ.
    public var isPulling = false
    /// Whether the connection reads the bodies of the session that its HELLO names.
    public var readsOther = false
    /// Absolute path of the folder of body files; nil with pulled bodies, and from an older broker.
    public var spool: String?

    public init(broker: BrokerInstance, window: Int) {
        self.broker = broker
        self.window = window
    }

    init(_ reader: HeadReader) throws(WireError) {
        try reader.version(Hello.version)
        var broker: BrokerInstance?
        for (name, value) in reader.fields {
            switch name {
            case "broker": broker = try HeadReader.instance(value)
            case "window": window = try HeadReader.integer(value, in: 1...WireLimits.window, "window")
            case "lease": leaseMilliseconds = try HeadReader.lease(value)
            case "token": token = try HeadReader.token(value)
            case "resumed": lastReceived = UInt64(try HeadReader.count(value, "resumed"))
            case "bodies": isPulling = try HeadReader.isPulling(value)
            case "bodies-of": readsOther = try HeadReader.flag(value, "bodies-of")
            case "spool": spool = value.string
            default: break
            }
        }
        guard let broker else { throw WireError(.badMessage, "WELCOME lacks its broker instance") }
        self.broker = broker
    }

    func encoded() -> [UInt8] {
        var writer = HeadWriter("WELCOME")
        writer.operand(Hello.version)
        writer.field("broker", broker.description)
        writer.field("window", String(window))
        writer.field("lease", leaseMilliseconds > 0 ? Decimal.seconds(leaseMilliseconds) : nil)
        writer.field("token", token?.description)
        writer.field("resumed", lastReceived.map { String($0) })
        writer.field("bodies", if: isPulling, "pull")
        writer.field("bodies-of", if: readsOther, "yes")
        writer.field("spool", spool)
        return writer.finished()
    }
}

/// PROGRESS: the state of a request's transfer.
public struct Progress: Equatable, Sendable {
    public var handler: HandlerID
    public var request: RequestID
    /// Decoded bytes so far.
    public var received: Int
    /// Decoded bytes in total, if the origin announced them.
    public var total: Int?
    /// Absolute path of the growing body file; nil unless the request streams and the file is readable by its path.
    public var file: String?
    /// Generation of the file's bytes. Bytes reported under another generation do not belong to the body.
    public var generation: Generation?
    /// Status of the response that has this body; nil if the broker does not know its head.
    public var status: Int?
    /// Fields of that response, separated by LF.
    public var httpFields: [UInt8] = []
    /// Whether a later request can resume the body after these bytes, also of another bus.
    public var isResumable = false

    public init(handler: HandlerID, request: RequestID, received: Int, total: Int?) {
        self.handler = handler
        self.request = request
        self.received = received
        self.total = total
    }

    init(_ reader: HeadReader) throws(WireError) {
        try reader.expectOperands(3)
        handler = try reader.handler(0)
        request = try reader.request(1)
        (received, total) = try HeadReader.progress(try reader.operand(2, "progress"))
        for (name, value) in reader.fields {
            switch name {
            case "file": file = value.string
            case "generation": generation = try HeadReader.generation(value)
            case "status": status = try HeadReader.status(value)
            case "resumable": isResumable = try HeadReader.flag(value, "resumable")
            default: break
            }
        }
        httpFields = reader.httpFields
    }

    func encoded() -> [UInt8] {
        var writer = HeadWriter("PROGRESS")
        writer.operand(handler.description)
        writer.operand(request.description)
        writer.operand("\(received)/" + (total.map { String($0) } ?? "-"))
        writer.field("file", file)
        writer.field("generation", generation?.description)
        writer.field("status", status)
        writer.field("resumable", if: isResumable, "yes")
        return writer.finished(httpFields: httpFields)
    }
}

/// ERROR: the rejection of a message.
public struct ErrorReply: Equatable, Sendable {
    /// A code of the table in `protocols/8-codes.md`, section "Errors".
    public var code: String
    /// Sentence that says what to change.
    public var detail: String?

    public init(code: String, detail: String? = nil) {
        self.code = code
        self.detail = detail
    }

    /// Creates the reply to a head that could not be parsed.
    public init(_ error: WireError) {
        self.init(code: error.code.rawValue, detail: error.detail)
    }

    init(_ reader: HeadReader) throws(WireError) {
        try reader.expectOperands(1)
        code = try HeadReader.identifier(try reader.operand(0, "code"), "code")
        detail = reader.fields["detail"]?.string
    }

    func encoded() -> [UInt8] {
        var writer = HeadWriter("ERROR")
        writer.operand(code)
        writer.field("detail", detail)
        return writer.finished()
    }
}

/// Legible parts of a broker message that violates the grammar.
public struct BrokerFragment: Equatable, Sendable {
    /// First word; empty if there is none.
    public let verb: String
    /// First operand, if it is a handler.
    public let handler: HandlerID?
    /// Second operand, if it is a request ID.
    public let request: RequestID?
    /// Value of `seq`; nil if it is absent or illegible.
    public let sequence: UInt64?
    /// Number of the message that it answers; nil if it is absent or illegible.
    public let to: UInt64?

    /// Reads a head of any form.
    public init(head: [UInt8]) {
        let lines = head.prefix(WireLimits.headBytes).split(separator: Ascii.lineFeed, omittingEmptySubsequences: false)
        let words = lines.first?.split(separator: Ascii.space, maxSplits: 3) ?? []
        verb = words.first.map { String(decoding: $0, as: UTF8.self) } ?? ""
        to = HeadNumber.value(of: "to", in: head)
        handler = words.count > 1 ? HandlerID(words[1]) : nil
        request = words.count > 2 ? RequestID(words[2]) : nil
        // The last of several values counts. HTTP fields follow an empty line.
        let field = lines.dropFirst().prefix { !$0.isEmpty }.last { $0.starts(with: "seq:".utf8) }
        let values = field?.dropFirst(4).split(separator: Ascii.space) ?? []
        sequence = values.count == 1 ? Decimal.unsigned(values[0]) : nil
    }
}
