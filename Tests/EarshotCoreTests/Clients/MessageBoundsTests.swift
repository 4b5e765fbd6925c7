import EarshotWire
import Testing

@testable import EarshotCore

/// Maximum message sizes: the sum of the limits of all parts is below the receiver's limit.
struct MessageBoundsTests {
    private let handler = HandlerID(String(repeating: "h", count: WireLimits.handlerBytes))!
    private let request = RequestID(String(repeating: "r", count: WireLimits.identifierBytes))!
    private let identifier = String(repeating: "i", count: WireLimits.identifierBytes)
    private let url = "http://h/" + String(repeating: "u", count: WireLimits.urlBytes - 9)
    private let path = "/" + String(repeating: "p", count: WireLimits.pathBytes - 1)
    private let digest = String(repeating: "f", count: 64)
    private let attempt = AttemptID(broker: BrokerInstance(rawValue: .max), flight: .max, attempt: .max)
    /// Detail of a worker, longer than the limit and cut inside a character.
    private let detail = String(repeating: "d", count: 203)

    private var response: Terminal.Response {
        var response = Terminal.Response(url: url)
        // The text of ten redirects has 2,039 bytes, and the rest of a longer list is omitted.
        response.redirects = Array(
            repeating: Terminal.Redirect(status: 302, url: "http://h/" + String(repeating: "u", count: 190)), count: 10)
        response.source = .revalidated
        response.bodyByteCount = .max
        response.sha256 = digest
        response.bodyFilePath = path
        response.generation = Generation(attempt)
        response.queuedMilliseconds = .max
        response.elapsedMilliseconds = .max
        response.attempts = .max
        response.httpFields = Self.fields(of: WireLimits.responseFieldBytes)
        return response
    }

    private static func fields(of bytes: Int, name: String = "x") -> [UInt8] {
        Array("\(name): ".utf8) + [UInt8](repeating: UInt8(ascii: "v"), count: bytes - name.utf8.count - 2)
    }

    @Test func `each message to a client is within the bound of a head when all its parts are at theirs`() throws {
        var failure = Terminal.Failure(code: "http-status", detail: detail)
        failure.status = 999
        failure.errorPageResponse = response
        failure.attempts = .max
        var welcome = Welcome(broker: BrokerInstance(rawValue: .max), window: WireLimits.maximumWindow)
        welcome.leaseMilliseconds = 3_599_999
        welcome.token = SessionToken(highBits: .max, lowBits: .max)
        welcome.lastReceivedNumber = UInt64(Int.max)
        welcome.spoolPath = path
        var progress = Progress(handler: handler, request: request, receivedBytes: .max, totalBytes: .max)
        progress.filePath = path
        progress.generation = Generation(attempt)
        let error = ErrorReply(code: identifier, detail: String(repeating: "d", count: 1_000))
        let pattern = String(repeating: "p", count: 300)
        let rule = try #require(SettingWords(["origin", pattern, "limit=10000", "spacing=86399.999"]))
        let messages: [BrokerMessage] = [
            .terminal(terminal(.result(status: 999, response))), .terminal(terminal(.failed(failure))),
            .welcome(welcome), .progress(progress), .error(error), .settingChanged(rule),
            .fetchAccepted(handler, request),
            .handlersRemoved(.handler(handler), count: .max), .requestRemoved(handler, request, wasOpen: false),
            .queryAnswer(.explainRequest(handler, request)), .goodbye(reason: identifier),
        ]
        for message in messages {
            let head = message.encoded()
            #expect(head.count <= WireLimits.headBytes, "\(head.prefix(8)): \(head.count) bytes")
            #expect(throws: Never.self) { try BrokerMessage(head: head) }
        }
    }

    private func terminal(_ outcome: Terminal.Outcome) -> Terminal {
        Terminal(handler: handler, request: request, sequence: UInt64(Int.max), outcome: outcome)
    }

    @Test func `a JOB with everything at its bound is read, and one for a user's own worker is no longer than a FETCH`()
        throws
    {
        var job = Job(attempt: attempt, url: url)
        job.method = identifier
        job.maximumBodyBytes = .max
        job.progressIntervalMilliseconds = 86_399_999
        job.priority = .background
        job.streams = true
        job.route.proxy = url
        (job.route.caFile, job.route.clientCertificate, job.route.clientKey) = (path, path, path)
        job.httpFields = Self.fields(of: 32 << 10)
        #expect(PoolMessage.job(job).encoded().count <= WireLimits.headBytes)

        // Broker-added fields for http and https: cookies, cache conditions, and the validator of a partial body.
        job.httpFields += [0x0a] + Self.fields(of: 16 << 10, name: "cookie")
        job.httpFields += [0x0a] + Self.fields(of: 32 << 10, name: "if-none-match")
        let validator = String(decoding: Self.fields(of: WireLimits.responseFieldBytes), as: UTF8.self)
        job.resume = Job.Resume(availableBytes: .max, totalBytes: .max, validator: validator)
        let head = PoolMessage.job(job).encoded()
        #expect(head.count > WireLimits.headBytes)
        #expect(try PoolMessage(head: head) == .job(job))
    }

    @Test func `an own worker's answer with too many header fields fails, and one at the bound is delivered`() {
        var rig = CoreRig()
        let own = rig.worker(1, schemes: ["thumb"])
        let client = rig.client(1)
        for (number, excess) in [0, 1].enumerated() {
            rig.pass { $0.fetch("h", "\(number)", "thumb:\(number)", by: client) }
            let fields = String(decoding: Self.fields(of: WireLimits.responseFieldBytes + excess), as: UTF8.self)
            let job = rig.jobs[0]
            rig.pass { $0.done(job, by: own, fields: fields) }
            #expect(rig.terminals(for: client) == ["h \(number) \(excess == 0 ? "200" : "protocol-error")"])
            #expect(rig.releasedBodies == excess)
            #expect(rig.actions.compactMap(Self.deliveredBytes).allSatisfy { $0 <= WireLimits.headBytes })
        }
        #expect(rig.core.runningAttemptCount == 0)
        #expect(rig.core.audit() == [])
    }

    private static func deliveredBytes(_ action: Action) -> Int? {
        guard case .client(.deliverTerminal(_, let terminal, _)) = action else { return nil }
        return BrokerMessage.terminal(terminal).encoded().count
    }
}
