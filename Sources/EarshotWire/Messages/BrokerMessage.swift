/// Messages of the broker to a client on the socket `bus`: EAR/1, `protocols/1-core.md`.
public enum BrokerMessage: Equatable, Sendable {
    /// Reply to HELLO.
    case welcome(Welcome)
    /// Reply to a durable FETCH: the request is on disk.
    case fetchAccepted(HandlerID, RequestID)
    /// RESULT or FAILED.
    case terminal(Terminal)
    case progress(Progress)
    /// Reply to REMOVE of handlers, with the number of removed requests that had not ended.
    case handlersRemoved(HandlerPattern, count: Int)
    /// Reply to REMOVE of one request; `wasOpen` is false if it had ended or is unknown.
    case requestRemoved(HandlerID, RequestID, wasOpen: Bool)
    /// Reply to QUERY. The second frame is JSON.
    case queryAnswer(Query)
    /// Reply to SET, with the setting in normal form.
    case settingChanged(SettingWords)
    /// Answer to READ. The second frame is a part of the body.
    case bodyData(BodyData)
    /// Reply to TAKE, with the new absolute path of the file that the client owns; nil if the client must copy the
    /// file.
    case fileTaken(UInt64, path: String?)
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
            return .fetchAccepted(try reader.handler(at: 0), try reader.request(at: 1))
        case "RESULT": return .terminal(try .decoded(result: reader))
        case "FAILED": return .terminal(try Terminal(failed: reader))
        case "PROGRESS": return .progress(try Progress(reader))
        case "REMOVED":
            try reader.expectOperands(3)
            if reader.operandCount == 3 {
                let count = try HeadReader.parseInteger(
                    try reader.operand(at: 2, named: "count"), in: 0...1, named: "count")
                return .requestRemoved(try reader.handler(at: 0), try reader.request(at: 1), wasOpen: count == 1)
            } else {
                let count = try HeadReader.parseCount(try reader.operand(at: 1, named: "count"), named: "count")
                return .handlersRemoved(try reader.pattern(at: 0), count: count)
            }
        case "ANSWER": return .queryAnswer(try Query(reader))
        case "CHANGED": return .settingChanged(try SettingWords(reader))
        case "DATA": return .bodyData(try BodyData(reader))
        case "TAKEN":
            let sequence = try reader.number(at: 0, named: "sequence number")
            // A path may contain single spaces.
            let path = reader.operands.dropFirst().joined(separator: " ")
            guard path.isEmpty || path.utf8.first == UInt8(ascii: "/") else {
                throw WireError(.badMessage, "the path of TAKEN must be absolute")
            }
            return .fileTaken(sequence, path: path.isEmpty ? nil : path)
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
        case .fetchAccepted, .handlersRemoved, .requestRemoved, .queryAnswer, .settingChanged, .fileTaken, .error, .ok:
            true
        case .terminal(let terminal): terminal.sequence == 0
        case .welcome, .progress, .bodyData, .goodbye: false
        }
    }

    /// Returns the head frame. A body is sent in the second frame.
    public func encoded() -> [UInt8] {
        switch self {
        case .welcome(let welcome): return welcome.encoded()
        case .fetchAccepted(let handler, let request):
            var writer = HeadWriter("ACCEPTED")
            writer.writeOperand(handler.description)
            writer.writeOperand(request.description)
            return writer.finished()
        case .terminal(let terminal): return terminal.encoded()
        case .progress(let progress): return progress.encoded()
        case .handlersRemoved(let pattern, let count):
            var writer = HeadWriter("REMOVED")
            writer.writeOperand(pattern.description)
            writer.writeOperand(String(count))
            return writer.finished()
        case .requestRemoved(let handler, let request, let wasOpen):
            var writer = HeadWriter("REMOVED")
            writer.writeOperand(handler.description)
            writer.writeOperand(request.description)
            writer.writeOperand(wasOpen ? "1" : "0")
            return writer.finished()
        case .queryAnswer(let query):
            var writer = HeadWriter("ANSWER")
            for word in query.operands { writer.writeOperand(word) }
            return writer.finished()
        case .settingChanged(let setting):
            var writer = HeadWriter("CHANGED")
            for word in setting.words { writer.writeOperand(word) }
            return writer.finished()
        case .bodyData(let data): return data.encoded()
        case .fileTaken(let sequence, let path):
            var writer = HeadWriter("TAKEN")
            writer.writeOperand(String(sequence))
            if let path { writer.writeOperand(path) }
            return writer.finished()
        case .error(let reply): return reply.encoded()
        case .ok: return HeadWriter("OK").finished()
        case .goodbye(let reason):
            var writer = HeadWriter("GOODBYE")
            writer.writeField("reason", reason)
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
    public var lastReceivedNumber: UInt64?
    /// Whether bodies in files are read with READ.
    public var pullsBodies = false
    /// Whether the connection reads the bodies of the session that its HELLO names.
    public var readsOtherSession = false
    /// Absolute path of the folder of body files; nil with pulled bodies, and from an older broker.
    public var spoolPath: String?

    public init(broker: BrokerInstance, window: Int) {
        self.broker = broker
        self.window = window
    }

    init(_ reader: HeadReader) throws(WireError) {
        try reader.expectVersion(Hello.version)
        var broker: BrokerInstance?
        for (name, value) in reader.fields {
            switch name {
            case "broker": broker = try HeadReader.parseBrokerInstance(value)
            case "window":
                window = try HeadReader.parseInteger(value, in: 1...WireLimits.maximumWindow, named: "window")
            case "lease": leaseMilliseconds = try HeadReader.parseLeaseMilliseconds(value)
            case "token": token = try HeadReader.parseSessionToken(value)
            case "resumed": lastReceivedNumber = UInt64(try HeadReader.parseCount(value, named: "resumed"))
            case "bodies": pullsBodies = try HeadReader.parsePulling(value)
            case "bodies-of": readsOtherSession = try HeadReader.parseFlag(value, named: "bodies-of")
            case "spool": spoolPath = value.string
            default: break
            }
        }
        guard let broker else { throw WireError(.badMessage, "WELCOME lacks its broker instance") }
        self.broker = broker
    }

    func encoded() -> [UInt8] {
        var writer = HeadWriter("WELCOME")
        writer.writeOperand(Hello.version)
        writer.writeField("broker", broker.description)
        writer.writeField("window", String(window))
        writer.writeField("lease", leaseMilliseconds > 0 ? Decimal.secondsText(milliseconds: leaseMilliseconds) : nil)
        writer.writeField("token", token?.description)
        writer.writeField("resumed", lastReceivedNumber.map { String($0) })
        writer.writeField("bodies", if: pullsBodies, "pull")
        writer.writeField("bodies-of", if: readsOtherSession, "yes")
        writer.writeField("spool", spoolPath)
        return writer.finished()
    }
}

/// PROGRESS: the state of a request's transfer.
public struct Progress: Equatable, Sendable {
    public var handler: HandlerID
    public var request: RequestID
    /// Decoded bytes so far.
    public var receivedBytes: Int
    /// Decoded bytes in total, if the origin announced them.
    public var totalBytes: Int?
    /// Absolute path of the growing body file; nil unless the request streams and the file is readable by its path.
    public var filePath: String?
    /// Generation of the file's bytes. Bytes reported under another generation do not belong to the body.
    public var generation: Generation?
    /// Status of the response that has this body; nil if the broker does not know its head.
    public var status: Int?
    /// Fields of that response, separated by LF.
    public var httpFields: [UInt8] = []
    /// Whether a later request, also on another bus, can resume the body after these bytes.
    public var isResumable = false

    public init(handler: HandlerID, request: RequestID, receivedBytes: Int, totalBytes: Int?) {
        self.handler = handler
        self.request = request
        self.receivedBytes = receivedBytes
        self.totalBytes = totalBytes
    }

    init(_ reader: HeadReader) throws(WireError) {
        try reader.expectOperands(3)
        handler = try reader.handler(at: 0)
        request = try reader.request(at: 1)
        (receivedBytes, totalBytes) = try HeadReader.parseProgress(try reader.operand(at: 2, named: "progress"))
        for (name, value) in reader.fields {
            switch name {
            case "file": filePath = value.string
            case "generation": generation = try HeadReader.parseGeneration(value)
            case "status": status = try HeadReader.parseStatus(value)
            case "resumable": isResumable = try HeadReader.parseFlag(value, named: "resumable")
            default: break
            }
        }
        httpFields = reader.httpFields
    }

    func encoded() -> [UInt8] {
        var writer = HeadWriter("PROGRESS")
        writer.writeOperand(handler.description)
        writer.writeOperand(request.description)
        writer.writeOperand("\(receivedBytes)/" + (totalBytes.map { String($0) } ?? "-"))
        writer.writeField("file", filePath)
        writer.writeField("generation", generation?.description)
        writer.writeField("status", status)
        writer.writeField("resumable", if: isResumable, "yes")
        return writer.finished(httpFields: httpFields)
    }
}

/// ERROR: the rejection of a message.
public struct ErrorReply: Equatable, Sendable {
    /// A code of the table in `protocols/8-codes.md`, section "Errors".
    public var code: String
    /// Sentence with the remedy.
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
        code = try HeadReader.parseIdentifier(try reader.operand(at: 0, named: "code"), named: "code")
        detail = reader.fields["detail"]?.string
    }

    func encoded() -> [UInt8] {
        var writer = HeadWriter("ERROR")
        writer.writeOperand(code)
        writer.writeField("detail", detail)
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
    public let answeredNumber: UInt64?

    /// Reads a head of any form.
    public init(head: [UInt8]) {
        let lines = head.prefix(WireLimits.headBytes).split(separator: Ascii.lineFeed, omittingEmptySubsequences: false)
        let words = lines.first?.split(separator: Ascii.space, maxSplits: 3) ?? []
        verb = words.first.map { String(decoding: $0, as: UTF8.self) } ?? ""
        answeredNumber = HeadNumber.number(ofField: "to", in: head)
        handler = words.count > 1 ? HandlerID(words[1]) : nil
        request = words.count > 2 ? RequestID(words[2]) : nil
        // The last of several values counts. HTTP fields follow an empty line.
        let field = lines.dropFirst().prefix { !$0.isEmpty }.last { $0.starts(with: "seq:".utf8) }
        let values = field?.dropFirst(4).split(separator: Ascii.space) ?? []
        sequence = values.count == 1 ? Decimal.parseUnsigned(values[0]) : nil
    }
}
