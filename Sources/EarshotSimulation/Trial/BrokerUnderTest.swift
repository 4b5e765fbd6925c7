internal import EarshotCore
internal import EarshotQueries
internal import EarshotWire

/// Core behind a single entry point, with an optional canary.
struct BrokerUnderTest {
    private(set) var core: BrokerCore
    private let canary: Canary?
    /// Last terminal of each client and handler, for canaries that need one.
    private var delivered: [RequestOf: Action] = [:]
    /// Latest attempt of each flight, for the canary of stale completions.
    private var latestAttempts: [UInt64: AttemptID] = [:]
    /// Last sequence number of each client.
    private var sequences: [ClientID: UInt64] = [:]
    /// Last message number of each connection.
    private var lastMessageNumbers: [ClientID: UInt64] = [:]
    /// Principals of connections, for the canaries that confuse them.
    private var principals: [ClientID: PrincipalName?] = [:]
    /// Requests that the deadline canary may end.
    private var open: [ClientID: [(HandlerID, RequestID)]] = [:]

    /// File that the shell has renamed before the latest event.
    private(set) var renamed: FileRename?

    private struct RequestOf: Hashable {
        var client: ClientID
        var handler: HandlerID
    }

    init(instance: BrokerInstance, limits: CoreLimits, canary: Canary?) {
        let workerLimits = WorkerLimits(broker: instance, spool: "/spool")
        var features = ShellFeatures()
        features.isSupervised = true
        features.isKeepingParts = true
        core = BrokerCore(
            workerLimits: workerLimits, secret: nil, limits: Self.changedLimits(limits, by: canary), features: features,
            answering: Queries.answer, seed: instance.rawValue)
        core.hasStoredParts = true
        core.expectGateway(Trial.proof)
        self.canary = canary
    }

    /// Starts the core of a new broker, which awaits the workers of a dead one.
    mutating func begin(awaiting processes: Set<Int32>, until limit: Tick, now: Tick) {
        core.brokerDied(awaiting: canary == .unawaitedWorkers ? [] : processes, until: limit, now: now)
        core.awaitOwnWorkers(until: now.advanced(byMilliseconds: Trial.ownWorkersMilliseconds))
    }

    /// Passes an event to the core.
    /// - Returns: Actions of the core.
    mutating func apply(_ event: BrokerEvent, now: Tick) -> [Action] {
        renamed = nil
        guard canary != nil else {
            handle(event, now: now)
            return takeActions()
        }
        let failures = core.ledger.requests.failed["deadline", default: 0]
        if canary == .removedBeforeLease, case .clientLost(let id) = event {
            var other = core
            other.received(.bye, from: id, now: now)
            // A client without requests would not reveal the fault.
            if other.ledger.requests.removed > core.ledger.requests.removed { core = other }
        }
        if let changed = replacedEvent(event) { handle(changed, now: now) }
        if canary == .sharedDeadline, core.ledger.requests.failed["deadline", default: 0] > failures {
            endAnother(now: now)
        }
        return changedActions(takeActions(), after: event)
    }

    /// Returns the work on files before a message of a worker.
    func fileWork(before message: WorkerMessage, by worker: WorkerID) -> FileWork {
        var core = core
        return core.fileWork(before: message, by: worker)
    }

    /// Returns the work on files before the loss of a worker.
    func fileWork(beforeLossOf worker: WorkerID) -> FileWork {
        var core = core
        return core.fileWork(beforeLossOf: worker)
    }

    /// Returns all actions since the last call. The removals of files are the second part.
    private mutating func takeActions() -> [Action] { core.takeActions() + core.takeActions() }

    /// Acts as the shell before a TAKE.
    private mutating func renameFile(toTake sequence: UInt64, by id: ClientID) {
        guard let file = core.fileToTake(sequence, by: id), !Trial.isLinked(sequence) else { return }
        renamed = FileRename(file: file.file, newName: file.newName)
        core.fileTaken(file)
    }

    private mutating func handle(_ event: BrokerEvent, now: Tick) {
        switch event {
        case .clientConnected(let id): core.clientConnected(id, token: Trial.token(of: id))
        case .clientSent(let id, let message, let number):
            if case .take(let sequence) = message { renameFile(toTake: sequence, by: id) }
            core.received(message, number: number, from: id, now: now)
        case .clientSentMalformed(let id, let error): core.receivedMalformed(error, from: id, now: now)
        case .clientLost(let id): core.clientLost(id, now: now)
        case .deliveryRefused(let id, let sequence): core.deliveryRefused(sequence, by: id)
        case .clientWritable(let id): core.clientWritable(id)
        case .progressRefused(let id, let handler, let request): core.progressRefused(handler, request, by: id)
        case .spillFailed(let body): core.spillFailed(body, now: now)
        case .workerConnected(let id, let process): core.workerConnected(id, process: process, now: now)
        case .processEnded(let process): core.processEnded(process, now: now)
        case .workerSent(let id, let message, let body): core.received(message, body: body, from: id, now: now)
        case .workerSentMalformed(let id, let error): core.receivedMalformed(error, from: id, now: now)
        case .workerDisconnected(let id, let isAlive):
            core.workerDisconnected(id, isProcessAlive: isAlive, now: now)
        case .workerLost(let id): core.workerLost(id, now: now)
        case .workerKilled(let id): core.workerLost(id, end: .fromOutside, now: now)
        case .workerBlocked(let id): core.workerBlocked(id, now: now)
        case .partKept(let id, let attempt, let bytes): core.partKept(of: attempt, bytes: bytes, by: id)
        case .partFound(let id, let attempt, let part, let bytes):
            core.partFound(part, bytes: bytes, for: attempt, by: id)
        case .timePassed: core.timePassed(now: now)
        case .dispatch(let unread): core.dispatch(now: now) { unread.contains($0) }
        case .limitsChanged(let limits): core.limitsChanged(Self.changedLimits(limits, by: canary), now: now)
        case .drain: core.drain()
        // The event belongs to another core, which `Trial` has created.
        case .brokerReplaced: break
        }
        // The model ends all requests of a flight at once.
        while core.isEndingRequests { core.continueEnds(now: now) }
    }

    // MARK: Canaries

    private static func changedLimits(_ limits: CoreLimits, by canary: Canary?) -> CoreLimits {
        var limits = limits
        if canary == .originOverLimit {
            // Of four or more slots, one is reserved for `high`, which is another invariant.
            limits.origins.limit += limits.origins.limit < 4 ? 1 : 0
            limits.origins.rules = limits.origins.rules.mapValues {
                OriginRules.Terms(
                    limit: $0.limit.map { $0 < 4 ? $0 + 1 : $0 }, spacingMilliseconds: $0.spacingMilliseconds)
            }
        }
        if canary == .unspacedStarts {
            limits.origins.spacingMilliseconds = 0
            limits.origins.rules = limits.origins.rules.mapValues {
                OriginRules.Terms(limit: $0.limit, spacingMilliseconds: 0)
            }
        }
        if canary == .crowdedSuspect { limits.isolationMilliseconds = 0 }
        if canary == .unboundedClient { limits.requestsPerClient += 1 }
        if canary == .unboundedUser, limits.transfersPerUser > 0 { limits.transfersPerUser += 1 }
        if canary == .starvedUser, limits.transfersPerUser > 1 { limits.transfersPerUser -= 1 }
        if canary == .lostScheme { limits.poolAbsenceMilliseconds *= 1_000 }
        return limits
    }

    /// Returns the event that replaces this one; nil to drop it.
    private mutating func replacedEvent(_ event: BrokerEvent) -> BrokerEvent? {
        switch (canary, event) {
        case (.uncountedAcknowledgement, .clientSent(let id, .acknowledge(let sequence), _)):
            return sequence <= sequences[id, default: 0] ? nil : event
        case (.ignoredFullDisk, .spillFailed): return nil
        case (.cutHandOver, .dispatch): return .dispatch(unread: [])
        case (.wrongClass, .clientSent(let id, .fetch(var fetch), let number)) where fetch.options.priority < .normal:
            fetch.options.priority = .high
            return .clientSent(id, .fetch(fetch), number: number)
        case (.endlessWait, .clientSent(let id, .fetch(var fetch), let number)):
            fetch.options.waitMilliseconds = nil
            return .clientSent(id, .fetch(fetch), number: number)
        case (.needlessRetry, .clientSent(let id, .fetch(var fetch), let number)):
            fetch.options.retries = max(fetch.options.retries, 1)
            return .clientSent(id, .fetch(fetch), number: number)
        case (.undeliveredError, .clientSent(let id, .fetch(var fetch), let number)):
            fetch.options.route.deliversErrors = false
            return .clientSent(id, .fetch(fetch), number: number)
        case (.lostCondition, .clientSent(let id, .fetch(var fetch), let number)):
            fetch.httpFields = JobContent.separated(fetch.httpFields).plain
            return .clientSent(id, .fetch(fetch), number: number)
        case (.repeatedMessage, .clientSent(let id, let message, let number?)):
            let last = lastMessageNumbers[id, default: 0]
            lastMessageNumbers[id] = max(last, number)
            return number > last ? event : .clientSent(id, message, number: last + 1)
        case (.repeatedMessage, .clientSent(let id, .bye, _)):
            lastMessageNumbers[id] = nil
            return event
        case (.sharedDeadline, .clientSent(let id, .fetch(let fetch), _)) where fetch.options.subscribes:
            open[id, default: []].append((fetch.handler, fetch.request))
            return event
        case (.staleCompletion, .workerSent(let id, .done(var completion), let body)):
            if let attempt = latestAttempts[completion.attempt.flight] { completion.attempt = attempt }
            return .workerSent(id, .done(completion), body)
        case (.foreignScheme, .workerSent(let id, .ready(var ready), let body)) where !ready.schemes.contains("https"):
            ready.schemes = (0..<Setting.mostSchemes).map { "own\($0)" }
            return .workerSent(id, .ready(ready), body)
        case (.foreignPool, .workerSent(let id, .ready(var ready), let body)) where ready.principal != nil:
            (ready.principal, ready.proof) = (nil, nil)
            return .workerSent(id, .ready(ready), body)
        case (.unboundedWorker, .workerSent(let id, .ready(var ready), let body)) where !ready.schemes.contains("https"):
            ready.slots += 1
            return .workerSent(id, .ready(ready), body)
        case (.foreignTerminal, .clientSent(let id, .hello(let hello), _)):
            principals[id] = .some(hello.principal)
            return event
        case (.foreignTerminal, .clientLost(let id)):
            principals[id] = nil
            return event
        case (.sharedNamespace, .clientSent(let id, .hello(var hello), _)):
            hello.principal = nil
            return .clientSent(id, .hello(hello))
        default: return event
        }
    }

    /// A connected client of another principal; the same client if there is none.
    private func otherClient(to client: ClientID) -> ClientID {
        let own = principals[client] ?? nil
        let others = principals.filter { $0.value != own }.keys
        return others.min { $0.rawValue < $1.rawValue } ?? client
    }

    /// Cancels other requests together with one that ended by its deadline.
    private mutating func endAnother(now: Tick) {
        for (client, requests) in open {
            for (handler, request) in requests {
                core.received(.removeRequest(handler, request), from: client, now: now)
            }
        }
        open = [:]
    }

    private mutating func changedActions(_ actions: [Action], after event: BrokerEvent) -> [Action] {
        var changed: [Action] = []
        var isGreeting = if case .clientSent(_, .hello, _) = event { true } else { false }
        var isResumed = false
        let invented = "/spool/" + SpoolName.takenFile(1, by: core.instance)
        for action in actions {
            switch (canary, action) {
            case (.lostRedelivery, .client(.deliver)) where isGreeting: isGreeting = false
            case (.lostReply, .client(.send(_, .welcome(let welcome)))):
                isResumed = welcome.lastReceived != nil
                changed.append(action)
            case (.lostReply, .client(.answer)) where isResumed: isResumed = false
            case (.lostReply, .client(.reply)) where isResumed: isResumed = false
            case (.lostReply, .client(.send(_, let message))) where isResumed && message.isReply: isResumed = false
            case (.lostTerminal, .client(.deliver(_, let terminal, _))) where terminal.sequence.isMultiple(of: 5): break
            case (.duplicateTerminal, .client(.deliver)): changed += [action, action]
            case (.terminalAfterRemoval, .client(.deliver(let client, let terminal, _))):
                delivered[RequestOf(client: client, handler: terminal.handler)] = action
                changed.append(action)
            case (.terminalAfterRemoval, .client(.send(let client, .removed(.handler(let handler), _)))):
                changed.append(action)
                if let late = delivered[RequestOf(client: client, handler: handler)] { changed.append(late) }
            case (.terminalAfterRemoval, .client(.reply(let client, .removed(.handler(let handler), _), _, _))):
                changed.append(action)
                if let late = delivered[RequestOf(client: client, handler: handler)] { changed.append(late) }
            case (.uncountedAcknowledgement, .client(.deliver(let client, let terminal, _))):
                sequences[client] = terminal.sequence
                changed.append(action)
            case (.secondAttempt, .worker(.send(let worker, .job(var job)))):
                changed.append(action)
                job.attempt.attempt += 1
                changed.append(.worker(.send(worker, .job(job))))
            case (.splicedBody, .worker(.send(let worker, .job(var job)))):
                job.resume?.bytes += 1
                changed.append(.worker(.send(worker, .job(job))))
            case (.lostCancellation, .worker(.send(_, .cancel(let attempt)))) where attempt.broker == core.instance:
                break
            case (.inheritedCancellation, .client(.deliver(let client, var terminal, _))):
                terminal.outcome = .failed(Terminal.Failure(code: "cancelled"))
                changed.append(.client(.deliver(client, terminal, nil)))
            case (.inventedFullDisk, .client(.deliver(let client, var terminal, let body)))
            where terminal.sequence % 7 == 0:
                if case .result = terminal.outcome { terminal.outcome = .failed(Terminal.Failure(code: "spool-full")) }
                changed.append(.client(.deliver(client, terminal, body)))
            case (.sharedTake, .client(.send(let client, .taken(let sequence, path: nil)))):
                changed.append(.client(.send(client, .taken(sequence, path: invented))))
            case (.sharedTake, .client(.reply(let client, .taken(let sequence, path: nil), _, let number))):
                changed.append(.client(.reply(client, .taken(sequence, path: invented), json: nil, to: number)))
            case (.lostTake, .client(.send(let client, .taken(let sequence, path: _?)))):
                changed.append(.client(.send(client, .taken(sequence, path: nil))))
            case (.lostTake, .client(.reply(let client, .taken(let sequence, path: _?), _, let number))):
                changed.append(.client(.reply(client, .taken(sequence, path: nil), json: nil, to: number)))
            case (.foreignTerminal, .client(.deliver(let client, let terminal, let body))):
                changed.append(.client(.deliver(otherClient(to: client), terminal, body)))
            case (.killedOwnWorker, .worker(.close(let worker))): changed.append(.worker(.kill(worker)))
            case (.staleCompletion, .worker(.send(_, .job(let job)))):
                latestAttempts[job.attempt.flight] = job.attempt
                changed.append(action)
            default: changed.append(action)
            }
        }
        return changed
    }
}
