/// Messages of a worker to the broker on the socket `work`: EARW/1, `protocols/6-workers.md`.
public enum WorkerMessage: Equatable, Sendable {
    /// The first message of a connection.
    case ready(Ready)
    /// A whole response with any status. The body is the second frame or a file in the spool.
    case completed(Completion)
    /// - Parameters:
    ///   - unwantedBytes: Bytes of `receivedBytes` that arrived after the CANCEL.
    ///   - repeats: As in `Completion`.
    ///   - retryAfterSeconds: Pause that a proxy requested; nil for none.
    case failed(
        AttemptID, code: String, detail: String?, receivedBytes: Int, unwantedBytes: Int = 0, part: BodyPart? = nil,
        repeats: Int = 0, retryAfterSeconds: Int? = nil)
    /// - Parameter checkpoint: Bytes of `part` that a power failure cannot destroy; nil if there are no more than the
    ///   last PROGRESS reported.
    case progress(AttemptID, received: Int, total: Int?, part: BodyPart? = nil, checkpoint: Checkpoint? = nil)
    /// The new number of slots, 1 to 10,000, in response to the number that the broker requested.
    case slots(Int)
    /// Parts of the sandbox that took effect, after a LIMITS that requires one.
    case sandbox(SandboxParts)
    /// Reply to PING.
    case pong
    /// The worker exits and runs nothing any more.
    case bye

    /// - Throws: `WireError` for bytes that are not a valid message.
    public init(head: [UInt8]) throws(WireError) {
        do throws(WireError) {
            self = try Self.decoded(try HeadReader(head, limit: WireLimits.workerHeadBytes))
        } catch {
            var error = error
            error.attempt = Self.attempt(in: head)
            throw error
        }
    }

    /// Decodes a message with its second frame.
    ///
    /// - Throws: `WireError` also for a DONE whose length is not that of its body.
    public init(head: [UInt8], body: [UInt8]?) throws(WireError) {
        try self.init(head: head)
        guard case .completed(let completion) = self else { return }
        do throws(WireError) {
            try completion.checkLength(bodyBytes: body?.count ?? 0)
        } catch {
            var error = error
            error.attempt = completion.attempt
            throw error
        }
    }

    /// Returns the attempt of a DONE or FAILED, of which only the first line must be valid; nil for other heads.
    public static func attempt(in head: [UInt8]) -> AttemptID? {
        let words = head.prefix(512).prefix { $0 != Ascii.lineFeed }.split(separator: Ascii.space, maxSplits: 2)
        guard words.count >= 2, ["DONE", "FAILED"].contains(String(decoding: words[0], as: UTF8.self)) else {
            return nil
        }
        return AttemptID(words[1])
    }

    private static func decoded(_ reader: HeadReader) throws(WireError) -> WorkerMessage {
        switch reader.verb {
        case "READY": return .ready(try Ready(reader))
        case "DONE": return .completed(try .decoded(reader))
        case "FAILED":
            try reader.expectOperands(2)
            var detail: String?
            var received = 0
            var unwanted = 0
            var repeats = 0
            var retryAfter: Int?
            for (name, value) in reader.fields {
                switch name {
                case "detail": detail = value.string
                case "received": received = try HeadReader.parseCount(value, named: "received")
                case "unwanted": unwanted = try HeadReader.parseCount(value, named: "unwanted")
                case "repeats":
                    repeats = try HeadReader.parseInteger(value, in: 0...WireLimits.repeatsPerAttempt, named: "repeats")
                case "retry-after": retryAfter = try HeadReader.parseCount(value, named: "retry-after")
                default: break
                }
            }
            let code = try HeadReader.parseIdentifier(try reader.operand(at: 1, named: "code"), named: "code")
            var part = try BodyPart(reader)
            // Only PROGRESS names the status: the part of a FAILED can be resumed.
            part?.status = nil
            return .failed(
                try reader.attempt(at: 0), code: code, detail: detail, receivedBytes: received, unwantedBytes: unwanted,
                part: part, repeats: repeats, retryAfterSeconds: retryAfter)
        case "PROGRESS":
            try reader.expectOperands(2)
            let (received, total) = try HeadReader.parseProgress(try reader.operand(at: 1, named: "progress"))
            return .progress(
                try reader.attempt(at: 0), received: received, total: total, part: try BodyPart(reader),
                checkpoint: try Checkpoint(reader, received: received))
        case "SLOTS":
            try reader.expectOperands(1)
            let slots = try reader.operand(at: 0, named: "number")
            return .slots(try HeadReader.parseInteger(slots, in: 1...WireLimits.slotsPerWorker, named: "SLOTS"))
        case "SANDBOX": return .sandbox(try SandboxParts(reader))
        case "PONG": return .pong
        case "BYE": return .bye
        default: throw WireError(.unknownVerb, "EARW/1 has no such verb for workers")
        }
    }

    /// Returns the head frame. The inline body of a completion is sent in the second frame.
    public func encoded() -> [UInt8] {
        switch self {
        case .ready(let ready): return ready.encoded()
        case .completed(let completion): return completion.encoded()
        case .failed(
            let attempt, let code, let detail, let received, let unwanted, let part, let repeats, let retryAfter):
            var writer = HeadWriter("FAILED")
            writer.writeOperand(attempt)
            writer.writeOperand(code)
            writer.writeField("detail", detail)
            writer.writeField("received", received)
            if unwanted > 0 { writer.writeField("unwanted", unwanted) }
            if repeats > 0 { writer.writeField("repeats", repeats) }
            writer.writeField("retry-after", retryAfter)
            writer.writeField("file", part?.fileName)
            return writer.finished(httpFields: part?.httpFields ?? [])
        case .progress(let attempt, let received, let total, let part, let checkpoint):
            var writer = HeadWriter("PROGRESS")
            writer.writeOperand(attempt)
            writer.writeOperand("\(received)/" + (total.map { String($0) } ?? "-"))
            // The optimizer of Swift 6.3.1 fails for `part?.fileName` beside `part?.status`.
            guard let part else { return writer.finished() }
            writer.writeField("file", part.fileName)
            writer.writeField("status", part.status)
            writer.writeField("checkpoint", checkpoint?.description)
            return writer.finished(httpFields: part.httpFields)
        case .slots(let slots):
            var writer = HeadWriter("SLOTS")
            writer.writeOperand(slots)
            return writer.finished()
        case .sandbox(let parts): return parts.encoded()
        case .pong: return HeadWriter("PONG").finished()
        case .bye: return HeadWriter("BYE").finished()
        }
    }
}

/// READY: a worker's slots and capabilities. A worker that sends it runs no attempt of any broker.
public struct Ready: Equatable, Sendable {
    /// The protocol's name and version.
    public static let version = "EARW/1"

    /// Maximum number of schemes of one worker.
    public static let maximumSchemes = 16

    /// Number of concurrent transfers, 1 to 10,000.
    public var slots: Int
    /// Supported schemes.
    public var schemes: [String] = ["http", "https"]
    /// Process ID as the worker knows it, for reports only. Decisions use the kernel's value.
    public var pid: Int = 0
    /// Hexadecimal secret that proves that the worker is a child of the supervisor.
    public var supervisorSecret: String?
    /// Whether a worker of schemes other than http and https accepts DRAIN.
    public var acceptsDrain = false
    /// Whether the worker supports HTTP/2.
    public var speaksHTTP2 = false
    /// Whether the worker opens no files that jobs name, and needs their content by FILE.
    public var needsFileContents = false
    /// Principal whose requests the worker gets, as the gateway states it; nil for the administrator.
    public var principal: PrincipalName?
    /// Secret of the gateway, required with `principal`.
    public var proof: GatewayProof?

    public init(slots: Int) {
        self.slots = slots
    }

    init(_ reader: HeadReader) throws(WireError) {
        try reader.expectVersion(Self.version)
        slots = 0
        for (name, value) in reader.fields {
            switch name {
            case "slots": slots = try HeadReader.parseInteger(value, in: 1...WireLimits.slotsPerWorker, named: "slots")
            case "schemes": schemes = value.string.split(separator: " ").map { String($0) }
            case "pid": pid = try HeadReader.parseInteger(value, in: 0...Int(Int32.max), named: "pid")
            case "secret": supervisorSecret = try HeadReader.parseIdentifier(value, named: "secret")
            case "drain": acceptsDrain = try HeadReader.parseFlag(value, named: "drain")
            case "files": needsFileContents = try HeadReader.parseFlag(value, named: "files")
            case "http2": speaksHTTP2 = try HeadReader.parseFlag(value, named: "http2")
            case "principal": principal = try HeadReader.parsePrincipal(value)
            case "proof": proof = try HeadReader.parseGatewayProof(value)
            default: break
            }
        }
        guard slots > 0 else { throw WireError(.badMessage, "READY lacks its slots") }
        guard schemes.count <= Self.maximumSchemes else {
            throw WireError(.limitExceeded, "READY lists more than \(Self.maximumSchemes) schemes")
        }
        guard schemes.allSatisfy(Self.isScheme) else {
            throw WireError(
                .badMessage, "a scheme must be a lower-case letter, then letters, digits, plus, minus and dot")
        }
    }

    /// Returns whether `name` is a lower-case scheme: RFC 3986, section 3.1.
    public static func isScheme(_ name: String) -> Bool {
        guard name.utf8.count <= WireLimits.schemeBytes, let first = name.utf8.first, first.isLowercase else {
            return false
        }
        return name.utf8.allSatisfy { $0.isLowercase || $0.isDigit || "+-.".utf8.contains($0) }
    }

    func encoded() -> [UInt8] {
        var writer = HeadWriter("READY")
        writer.writeOperand(Self.version)
        writer.writeField("slots", slots)
        writer.writeField("schemes", schemes.joined(separator: " "))
        writer.writeField("pid", pid)
        writer.writeField("secret", supervisorSecret)
        writer.writeField("drain", if: acceptsDrain, "yes")
        writer.writeField("http2", if: speaksHTTP2, "yes")
        writer.writeField("files", if: needsFileContents, "yes")
        writer.writeField("principal", principal?.description)
        writer.writeField("proof", proof?.description)
        return writer.finished()
    }
}

/// DONE: the end of an attempt with a whole response.
public struct Completion: Equatable, Sendable {
    public var attempt: AttemptID
    /// Status code, 200 to 999.
    public var status: Int
    /// Decoded length of the body in bytes, at most `WireLimits.responseBodyBytes`.
    public var bodyByteCount = 0
    /// SHA-256 of the decoded body.
    public var sha256: String?
    /// Base name in the spool; nil if the body is in the second frame or empty.
    public var fileName: String?
    /// Whether the body starts with the partial body of the JOB. The status is then 200. The fields are those of the
    /// 206 that brought the rest, or empty.
    public var isResumed = false
    /// Whether the body was omitted, because it belongs to a redirect or an error page and is not needed or too large.
    public var isBodyOmitted = false
    public var elapsedMilliseconds = 0
    /// Number of times that the worker sent the request again within the attempt, at most
    /// `WireLimits.repeatsPerAttempt`.
    public var repeatCount = 0
    /// Response header fields, separated by LF.
    public var httpFields: [UInt8] = []

    /// Decodes a head. Neither this function nor `setFields` is inlined: the compiler copies a large variable that is
    /// used after a loop with exits.
    @inline(never)
    static func decoded(_ reader: HeadReader) throws(WireError) -> Completion {
        try reader.expectOperands(2)
        let attempt = try reader.attempt(at: 0)
        var completion = Completion(
            attempt: attempt, status: try HeadReader.parseStatus(try reader.operand(at: 1, named: "status")))
        completion.httpFields = reader.httpFields
        try completion.setFields(reader)
        return completion
    }

    @inline(never)
    private mutating func setFields(_ reader: HeadReader) throws(WireError) {
        for (name, value) in reader.fields {
            switch name {
            case "length":
                bodyByteCount = try HeadReader.parseInteger(
                    value, in: 0...WireLimits.responseBodyBytes, named: "length")
            case "sha-256": sha256 = try HeadReader.parseSHA256(value, named: "sha-256")
            case "file": fileName = try Self.checkedBaseName(value.string)
            case "resumed": isResumed = try HeadReader.parseFlag(value, named: "resumed")
            case "cut": isBodyOmitted = try HeadReader.parseFlag(value, named: "cut")
            case "elapsed-ms": elapsedMilliseconds = try HeadReader.parseCount(value, named: "elapsed-ms")
            case "repeats":
                repeatCount = try HeadReader.parseInteger(value, in: 0...WireLimits.repeatsPerAttempt, named: "repeats")
            default: break
            }
        }
    }

    /// Throws an error unless `bodyByteCount` describes the second frame, which has `bodyBytes` bytes. The broker
    /// compares the length of a file with the file.
    fileprivate func checkLength(bodyBytes: Int) throws(WireError) {
        if bodyBytes > 0, fileName != nil { throw WireError(.badMessage, "the body is frame 2 or a file, not both") }
        guard fileName != nil || bodyBytes == bodyByteCount else {
            throw WireError(.badMessage, "length is \(bodyByteCount), and frame 2 has \(bodyBytes) bytes")
        }
    }

    /// Returns a valid base name. No other form may refer to the spool.
    fileprivate static func checkedBaseName(_ text: String) throws(WireError) -> String {
        guard (1...200).contains(text.utf8.count), text.utf8.first != Ascii.dot,
            text.utf8.allSatisfy({ $0.isVisible && $0 != Ascii.slash })
        else {
            throw WireError(.badMessage, "file must be a base name of visible ASCII that does not start with a dot")
        }
        return text
    }

    func encoded() -> [UInt8] {
        var writer = HeadWriter("DONE", capacity: 192 + httpFields.count)
        writer.writeOperand(attempt)
        writer.writeOperand(status)
        writer.writeField("length", bodyByteCount)
        writer.writeField("sha-256", sha256)
        writer.writeField("file", fileName)
        writer.writeField("resumed", if: isResumed, "yes")
        writer.writeField("cut", if: isBodyOmitted, "yes")
        writer.writeField("elapsed-ms", elapsedMilliseconds)
        if repeatCount > 0 { writer.writeField("repeats", repeatCount) }
        return writer.finished(httpFields: httpFields)
    }
}

extension Completion {
    // Uses the memberwise initializer: the compiler would copy a large value that is set field by field.
    public init(attempt: AttemptID, status: Int) {
        self.init(attempt: attempt, status: status, httpFields: [])
    }
}

/// File of a growing body, as reported by a worker.
public struct BodyPart: Equatable, Sendable {
    /// Base name in the spool.
    public var fileName: String
    /// Fields of the response that the body belongs to, separated by LF. Sent once, and only for a 200 whose body a
    /// later attempt may continue, or with `status`.
    public var httpFields: [UInt8] = []
    /// Status of a response whose body no later attempt may continue, for clients that read it while it grows; nil
    /// otherwise.
    public var status: Int?

    public init(fileName: String, httpFields: [UInt8] = [], status: Int? = nil) {
        self.fileName = fileName
        self.httpFields = httpFields
        self.status = status
    }

    init?(_ reader: HeadReader) throws(WireError) {
        guard let name = reader.fields["file"] else { return nil }
        fileName = try Completion.checkedBaseName(name.string)
        status = try reader.fields["status"].map(HeadReader.parseStatus)
        httpFields = reader.httpFields
    }
}

extension Checkpoint {
    /// - Parameter received: Number of bytes of the whole body so far.
    fileprivate init?(_ reader: HeadReader, received: Int) throws(WireError) {
        guard let text = reader.fields["checkpoint"]?.string else { return nil }
        guard reader.fields["file"] != nil else { throw WireError(.badMessage, "a checkpoint needs its file") }
        guard let checkpoint = Checkpoint(text), checkpoint.byteCount <= received else {
            throw WireError(.badMessage, "checkpoint must be a number of received bytes, a space and their SHA-256")
        }
        self = checkpoint
    }
}
