import EarshotQueries
import EarshotWire

@testable import EarshotCore

/// A core with a manual clock, and the actions of its last pass.
struct CoreRig {
    var core: BrokerCore
    var now = MonotonicTime(nanoseconds: 0)
    var actions: [Action] = []
    private var lastBody: UInt64 = 0
    /// Whether the rig has numbered a message.
    private var isNumbering = false

    init(
        limits: CoreLimits = CoreLimits(), secret: String? = nil, broker: UInt64 = 1, cluster: ClusterServices? = nil
    ) {
        let workerLimits = WorkerLimits(broker: BrokerInstance(rawValue: broker), spoolPath: "/spool")
        core = BrokerCore(
            workerLimits: workerLimits, secret: secret, limits: limits, answering: Queries.answer, cluster: cluster,
            seed: 7)
    }

    /// Runs one pass: the events of `body`, then assignment. Keeps the actions of this pass only.
    ///
    /// - Parameter unread: clients with unread messages.
    mutating func pass(unread: [ClientID] = [], _ body: (inout CoreRig) -> Void = { _ in }) {
        _ = takeActions()
        actions = []
        body(&self)
        core.timePassed(now: now)
        core.dispatch(now: now) { unread.contains($0) }
        actions += takeActions()
    }

    /// Returns all actions since the last call. The removals of files are the second part.
    mutating func takeActions() -> [Action] { core.takeActions() + core.takeActions() }

    /// Work on files before a message, which the rig does not report.
    func fileWork(before message: WorkerMessage, by worker: WorkerID) -> WorkerFileOperations {
        var core = core
        return core.fileWork(before: message, by: worker)
    }

    /// Work on files before the loss of a worker, which the rig does not report.
    func fileWork(beforeLossOf worker: WorkerID) -> WorkerFileOperations {
        var core = core
        return core.fileWork(beforeLossOf: worker)
    }

    mutating func wait(milliseconds: Int) {
        now = now.advanced(byMilliseconds: milliseconds)
        pass()
    }

    // MARK: Peers

    mutating func client(
        _ number: UInt64, window: Int = 256, _ change: (inout Hello) -> Void = { _ in }
    ) -> ClientID {
        let id = ClientID(rawValue: number)
        connect(id)
        var hello = Hello(window: window)
        change(&hello)
        core.clientMessageReceived(.hello(hello), from: id, now: now)
        return id
    }

    /// - Parameter user: principal of the local user; nil for the administrator.
    mutating func connect(_ id: ClientID, user: PrincipalName? = nil) {
        core.clientConnected(id, token: Self.token(of: id), user: user)
    }

    static func token(of client: ClientID) -> SessionToken { SessionToken(highBits: 7, lowBits: client.rawValue) }

    mutating func worker(
        _ number: UInt64 = 1, slots: Int = 8, schemes: [String] = ["http", "https"], acceptsDrain: Bool = false
    ) -> WorkerID {
        let id = WorkerID(rawValue: number)
        core.workerConnected(id, process: Int32(number), now: now)
        var ready = Ready(slots: slots)
        ready.pid = Int(number)
        ready.schemes = schemes
        ready.acceptsDrain = acceptsDrain
        core.workerMessageReceived(.ready(ready), body: nil, from: id, now: now)
        return id
    }

    /// Passes a message of a client, after its removal that is under way.
    ///
    /// - Parameter handle: its number; nil for the next one if the session has a lease.
    mutating func send(_ message: ClientMessage, number: UInt64? = nil, by client: ClientID) {
        while core.hasPendingRemoval(by: client) { core.dispatch(now: now) }
        let next = number ?? nextNumber(for: message, of: client)
        if number == nil, next != nil { isNumbering = true }
        core.clientMessageReceived(message, number: next, from: client, now: now)
    }

    private func nextNumber(for message: ClientMessage, of client: ClientID) -> UInt64? {
        guard message.canHaveNumber, let session = core.records.clients.handle(of: client),
            core.records.clients[session].leaseMilliseconds > 0
        else { return nil }
        return core.records.clients[session].messageNumbers.lastNumber + 1
    }

    mutating func fetch(
        _ handler: String, _ request: String, _ url: String, by client: ClientID,
        _ change: (inout Fetch) -> Void = { _ in }
    ) {
        var fetch = Fetch(handler: HandlerID(handler)!, request: RequestID(request)!, url: url)
        change(&fetch)
        send(.fetch(fetch), by: client)
    }

    mutating func remove(_ pattern: String, by client: ClientID) {
        send(.removeHandlers(HandlerPattern(pattern)!), by: client)
    }

    mutating func remove(_ handler: String, _ request: String, by client: ClientID) {
        send(.removeRequest(HandlerID(handler)!, RequestID(request)!), by: client)
    }

    /// The body of the next `done`.
    var nextBody: BodyID { BodyID(rawValue: lastBody + 1) }

    mutating func done(_ job: Job, by worker: WorkerID, status: Int = 200, length: Int = 3, fields: String = "") {
        var completion = Completion(attempt: job.attempt, status: status)
        completion.bodyByteCount = length
        completion.sha256 = String(repeating: "ab", count: 32)
        completion.httpFields = Array(fields.utf8)
        lastBody += 1
        core.workerMessageReceived(.completed(completion), body: BodyID(rawValue: lastBody), from: worker, now: now)
    }

    mutating func pong(by worker: WorkerID) { core.workerMessageReceived(.pong, body: nil, from: worker, now: now) }

    mutating func failed(_ job: Job, _ code: String, by worker: WorkerID) {
        core.workerMessageReceived(
            .failed(job.attempt, code: code, detail: nil, receivedBytes: 0), body: nil, from: worker, now: now)
    }

    // MARK: Actions of the last pass

    /// Assigned jobs.
    var jobs: [Job] {
        actions.compactMap { if case .worker(.send(_, .job(let job))) = $0 { job } else { nil } }
    }

    /// Attempts with a CANCEL.
    var cancellations: [AttemptID] {
        actions.compactMap { if case .worker(.send(_, .cancelAttempt(let attempt))) = $0 { attempt } else { nil } }
    }

    /// Terminals for a client, each as `handler request outcome`.
    func terminals(for client: ClientID) -> [String] {
        actions.compactMap {
            if case .client(.deliverTerminal(client, let terminal, _)) = $0 { text(of: terminal) } else { nil }
        }
    }

    /// Details of the failures among those terminals.
    func details(for client: ClientID) -> [String?] {
        actions.compactMap { action in
            guard case .client(.deliverTerminal(client, let terminal, _)) = action,
                case .failed(let failure) = terminal.outcome
            else {
                return nil
            }
            return failure.detail
        }
    }

    /// Failures without a sequence number, as refusals of a client's FETCH, in the same form.
    func refusals(for client: ClientID) -> [String] {
        actions.compactMap { action in
            guard case .client(.send(client, .terminal(let terminal))) = action, terminal.sequence == 0 else {
                return nil
            }
            return text(of: terminal)
        }
    }

    private func text(of terminal: Terminal) -> String {
        let end =
            switch terminal.outcome {
            case .result(let status, _): String(status)
            case .failed(let failure): failure.code
            }
        return "\(terminal.handler) \(terminal.request) \(end)"
    }

    /// Messages to a client other than terminals from its queue, and other than OK.
    func replies(to client: ClientID) -> [BrokerMessage] {
        actions.compactMap { action in
            switch action {
            case .client(.send(client, let message)): message
            case .client(.replyToNumberedMessage(client, let message, _, _)) where isNumbering && message != .ok:
                message
            default: nil
            }
        }
    }

    /// Refusals of a client's durable requests, which are replies: handler, request and code.
    func refusals(to client: ClientID) -> [String] {
        replies(to: client).compactMap { message in
            guard case .terminal(let terminal) = message, case .failed(let failure) = terminal.outcome else {
                return nil
            }
            return "\(terminal.handler) \(terminal.request) \(failure.code)"
        }
    }

    /// Answers to numbered messages of a client, each as the first line with the number before it.
    func answers(to client: ClientID) -> [String] {
        actions.compactMap { action in
            guard case .client(.replyToNumberedMessage(client, let message, _, let number)) = action else { return nil }
            let head = message.encoded().prefix { $0 != UInt8(ascii: "\n") }
            return "\(number) " + String(decoding: head, as: UTF8.self)
        }
    }

    var releasedBodies: Int { actions.count { if case .spool(.releaseBody) = $0 { true } else { false } } }
}
