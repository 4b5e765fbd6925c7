internal import EarshotCore
internal import EarshotQueries
internal import EarshotWire

/// Core behind a single entry point, with an optional canary.
struct BrokerUnderTest {
    private(set) var core: BrokerCore
    private let canary: Canary?
    /// Last terminal of each client and handler, for canaries that need one.
    private var lastDeliveries: [ClientHandler: Action] = [:]
    /// Latest attempt of each flight, for the canary of stale completions.
    private var latestAttempts: [UInt64: AttemptID] = [:]
    /// Last sequence number of each client.
    private var lastSequences: [ClientID: UInt64] = [:]
    /// Last message number of each connection.
    private var lastMessageNumbers: [ClientID: UInt64] = [:]
    /// Principals of connections, for the canaries that confuse them.
    private var principals: [ClientID: PrincipalName?] = [:]
    /// Requests that the deadline canary may end.
    private var openRequests: [ClientID: [(HandlerID, RequestID)]] = [:]

    /// File that the shell has renamed before the latest event.
    private(set) var renamedFile: FileRename?

    private struct ClientHandler: Hashable {
        var client: ClientID
        var handler: HandlerID
    }

    init(instance: BrokerInstance, limits: CoreLimits, canary: Canary?) {
        let workerLimits = WorkerLimits(broker: instance, spoolPath: "/spool")
        var features = ShellFeatures()
        features.isSupervised = true
        features.isKeepingParts = true
        core = BrokerCore(
            workerLimits: workerLimits, secret: nil, limits: Self.faultyLimits(limits, by: canary), features: features,
            answering: Queries.answer, seed: instance.rawValue)
        core.hasStoredParts = true
        core.expectGateway(Trial.gatewayProof)
        self.canary = canary
    }

    /// Starts the core of a new broker, which awaits the workers of a dead one.
    mutating func begin(awaiting processes: Set<Int32>, until limit: MonotonicTime, now: MonotonicTime) {
        core.recoverFromBrokerDeath(awaiting: canary == .unawaitedWorkers ? [] : processes, until: limit, now: now)
        core.awaitOwnWorkers(until: now.advanced(byMilliseconds: Trial.userWorkerWaitMilliseconds))
    }

    /// Passes an event to the core.
    /// - Returns: Actions of the core.
    mutating func passToCore(_ event: BrokerEvent, now: MonotonicTime) -> [Action] {
        renamedFile = nil
        guard canary != nil else {
            handle(event, now: now)
            return takeActions()
        }
        let failures = core.ledger.requests.failed["deadline", default: 0]
        if canary == .removedBeforeLeaseExpiry, case .clientLost(let id) = event {
            var other = core
            other.clientMessageReceived(.bye, from: id, now: now)
            // A client without requests would not reveal the fault.
            if other.ledger.requests.removed > core.ledger.requests.removed { core = other }
        }
        if let changed = replacementEvent(event) { handle(changed, now: now) }
        if canary == .sharedDeadline, core.ledger.requests.failed["deadline", default: 0] > failures {
            endOtherRequests(now: now)
        }
        return faultyActions(takeActions(), after: event)
    }

    /// Returns the work on files before a message of a worker.
    func fileWork(before message: WorkerMessage, by worker: WorkerID) -> WorkerFileOperations {
        var core = core
        return core.fileWork(before: message, by: worker)
    }

    /// Returns the work on files before the loss of a worker.
    func fileWork(beforeLossOf worker: WorkerID) -> WorkerFileOperations {
        var core = core
        return core.fileWork(beforeLossOf: worker)
    }

    /// Returns all actions since the last call. The removals of files are the second part.
    private mutating func takeActions() -> [Action] { core.takeActions() + core.takeActions() }

    /// Acts as the shell before a TAKE.
    private mutating func renameFile(toTake sequence: UInt64, by id: ClientID) {
        guard let file = core.beginFileTake(sequence, by: id), !Trial.isFileLinkedElsewhere(sequence) else { return }
        renamedFile = FileRename(file: file.currentName, newName: file.newName)
        core.fileTaken(file)
    }

    private mutating func handle(_ event: BrokerEvent, now: MonotonicTime) {
        switch event {
        case .clientConnected(let id): core.clientConnected(id, token: Trial.token(of: id))
        case .clientSent(let id, let message, let number):
            if case .takeFile(let sequence) = message { renameFile(toTake: sequence, by: id) }
            core.clientMessageReceived(message, number: number, from: id, now: now)
        case .clientSentMalformed(let id, let error): core.malformedClientMessageReceived(error, from: id, now: now)
        case .clientLost(let id): core.clientLost(id, now: now)
        case .deliveryRefused(let id, let sequence): core.socketRefusedTerminal(sequence, by: id)
        case .clientWritable(let id): core.clientSocketWritable(id)
        case .progressRefused(let id, let handler, let request): core.socketRefusedProgress(handler, request, by: id)
        case .spillFailed(let body): core.bodySpillFailed(body, now: now)
        case .workerConnected(let id, let process): core.workerConnected(id, process: process, now: now)
        case .processEnded(let process): core.formerProcessEnded(process, now: now)
        case .workerSent(let id, let message, let body):
            core.workerMessageReceived(message, body: body, from: id, now: now)
        case .workerSentMalformed(let id, let error): core.malformedWorkerMessageReceived(error, from: id, now: now)
        case .workerDisconnected(let id, let isAlive):
            core.workerDisconnected(id, isProcessAlive: isAlive, now: now)
        case .workerLost(let id): core.workerLost(id, now: now)
        case .workerKilled(let id): core.workerLost(id, end: .killedFromOutsideExample, now: now)
        case .workerBlocked(let id): core.workerSocketFull(id, now: now)
        case .partKept(let id, let attempt, let bytes): core.partFileKept(of: attempt, bytes: bytes, by: id)
        case .partFound(let id, let attempt, let part, let bytes):
            core.storedPartFound(part, bytes: bytes, for: attempt, by: id)
        case .timePassed: core.timePassed(now: now)
        case .dispatch(let unread): core.dispatch(now: now) { unread.contains($0) }
        case .limitsChanged(let limits): core.limitsChanged(Self.faultyLimits(limits, by: canary), now: now)
        case .drain: core.beginDraining()
        // The event belongs to another core, which `Trial` has created.
        case .brokerReplaced: break
        }
        // The model ends all requests of a flight at once.
        while core.isEndingRequests { core.continueEndingRequests(now: now) }
    }

    // MARK: Canaries

    private static func faultyLimits(_ limits: CoreLimits, by canary: Canary?) -> CoreLimits {
        var limits = limits
        if canary == .originOverLimit {
            // Of four or more slots, one is reserved for `high`, which is another invariant.
            limits.originRules.defaultMaximumTransfers += limits.originRules.defaultMaximumTransfers < 4 ? 1 : 0
            limits.originRules.rules = limits.originRules.rules.mapValues {
                OriginRules.RuleTerms(
                    maximumTransfers: $0.maximumTransfers.map { $0 < 4 ? $0 + 1 : $0 },
                    spacingMilliseconds: $0.spacingMilliseconds)
            }
        }
        if canary == .unspacedStarts {
            limits.originRules.defaultSpacingMilliseconds = 0
            limits.originRules.rules = limits.originRules.rules.mapValues {
                OriginRules.RuleTerms(maximumTransfers: $0.maximumTransfers, spacingMilliseconds: 0)
            }
        }
        if canary == .unisolatedSuspect { limits.baseIsolationMilliseconds = 0 }
        if canary == .unboundedClient { limits.maximumOpenRequestsPerClient += 1 }
        if canary == .unboundedUser, limits.maximumTransfersPerUser > 0 { limits.maximumTransfersPerUser += 1 }
        if canary == .starvedUser, limits.maximumTransfersPerUser > 1 { limits.maximumTransfersPerUser -= 1 }
        if canary == .endlessSchemeWait { limits.emptyPoolGraceMilliseconds *= 1_000 }
        return limits
    }

    /// Returns the event that replaces this one; nil to drop it.
    private mutating func replacementEvent(_ event: BrokerEvent) -> BrokerEvent? {
        switch (canary, event) {
        case (.uncountedAcknowledgement, .clientSent(let id, .acknowledge(let sequence), _)):
            return sequence <= lastSequences[id, default: 0] ? nil : event
        case (.ignoredFullDisk, .spillFailed): return nil
        case (.earlyHandOverCancellation, .dispatch): return .dispatch(unread: [])
        case (.wrongPriorityClass, .clientSent(let id, .fetch(var fetch), let number))
        where fetch.options.priority < .normal:
            fetch.options.priority = .high
            return .clientSent(id, .fetch(fetch), number: number)
        case (.endlessWait, .clientSent(let id, .fetch(var fetch), let number)):
            fetch.options.coolDownWaitMilliseconds = nil
            return .clientSent(id, .fetch(fetch), number: number)
        case (.needlessRetry, .clientSent(let id, .fetch(var fetch), let number)):
            fetch.options.retries = max(fetch.options.retries, 1)
            return .clientSent(id, .fetch(fetch), number: number)
        case (.undeliveredError, .clientSent(let id, .fetch(var fetch), let number)):
            fetch.options.route.deliversErrorResponses = false
            return .clientSent(id, .fetch(fetch), number: number)
        case (.lostCondition, .clientSent(let id, .fetch(var fetch), let number)):
            fetch.httpFields = JobContent.splitCondition(fetch.httpFields).plain
            return .clientSent(id, .fetch(fetch), number: number)
        case (.repeatedMessage, .clientSent(let id, let message, let number?)):
            let last = lastMessageNumbers[id, default: 0]
            lastMessageNumbers[id] = max(last, number)
            return number > last ? event : .clientSent(id, message, number: last + 1)
        case (.repeatedMessage, .clientSent(let id, .bye, _)):
            lastMessageNumbers[id] = nil
            return event
        case (.sharedDeadline, .clientSent(let id, .fetch(let fetch), _)) where fetch.options.subscribes:
            openRequests[id, default: []].append((fetch.handler, fetch.request))
            return event
        case (.staleCompletion, .workerSent(let id, .completed(var completion), let body)):
            if let attempt = latestAttempts[completion.attempt.flight] { completion.attempt = attempt }
            return .workerSent(id, .completed(completion), body)
        case (.foreignScheme, .workerSent(let id, .ready(var ready), let body)) where !ready.schemes.contains("https"):
            ready.schemes = (0..<Setting.maximumUserSchemes).map { "own\($0)" }
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
    private func clientOfOtherPrincipal(than client: ClientID) -> ClientID {
        let own = principals[client] ?? nil
        let others = principals.filter { $0.value != own }.keys
        return others.min { $0.rawValue < $1.rawValue } ?? client
    }

    /// Cancels other requests together with one that ended by its deadline.
    private mutating func endOtherRequests(now: MonotonicTime) {
        for (client, requests) in openRequests {
            for (handler, request) in requests {
                core.clientMessageReceived(.removeRequest(handler, request), from: client, now: now)
            }
        }
        openRequests = [:]
    }

    private mutating func faultyActions(_ actions: [Action], after event: BrokerEvent) -> [Action] {
        var changed: [Action] = []
        var isGreeting = if case .clientSent(_, .hello, _) = event { true } else { false }
        var isResumed = false
        let invented = "/spool/" + SpoolName.takenFile(1, by: core.brokerInstance)
        for action in actions {
            switch (canary, action) {
            case (.lostRedelivery, .client(.deliverTerminal)) where isGreeting: isGreeting = false
            case (.lostReply, .client(.send(_, .welcome(let welcome)))):
                isResumed = welcome.lastReceivedNumber != nil
                changed.append(action)
            case (.lostReply, .client(.answerQuery)) where isResumed: isResumed = false
            case (.lostReply, .client(.replyToNumberedMessage)) where isResumed: isResumed = false
            case (.lostReply, .client(.send(_, let message))) where isResumed && message.isReply: isResumed = false
            case (.lostTerminal, .client(.deliverTerminal(_, let terminal, _)))
            where terminal.sequence.isMultiple(of: 5): break
            case (.duplicateTerminal, .client(.deliverTerminal)): changed += [action, action]
            case (.terminalAfterRemoval, .client(.deliverTerminal(let client, let terminal, _))):
                lastDeliveries[ClientHandler(client: client, handler: terminal.handler)] = action
                changed.append(action)
            case (.terminalAfterRemoval, .client(.send(let client, .handlersRemoved(.handler(let handler), _)))):
                changed.append(action)
                if let late = lastDeliveries[ClientHandler(client: client, handler: handler)] { changed.append(late) }
            case (
                .terminalAfterRemoval,
                .client(.replyToNumberedMessage(let client, .handlersRemoved(.handler(let handler), _), _, _))
            ):
                changed.append(action)
                if let late = lastDeliveries[ClientHandler(client: client, handler: handler)] { changed.append(late) }
            case (.uncountedAcknowledgement, .client(.deliverTerminal(let client, let terminal, _))):
                lastSequences[client] = terminal.sequence
                changed.append(action)
            case (.duplicateAttempt, .worker(.send(let worker, .job(var job)))):
                changed.append(action)
                job.attempt.attempt += 1
                changed.append(.worker(.send(worker, .job(job))))
            case (.splicedBody, .worker(.send(let worker, .job(var job)))):
                job.resume?.availableBytes += 1
                changed.append(.worker(.send(worker, .job(job))))
            case (.lostCancellation, .worker(.send(_, .cancelAttempt(let attempt))))
            where attempt.broker == core.brokerInstance:
                break
            case (.inheritedCancellation, .client(.deliverTerminal(let client, var terminal, _))):
                terminal.outcome = .failed(Terminal.Failure(code: "cancelled"))
                changed.append(.client(.deliverTerminal(client, terminal, nil)))
            case (.inventedFullDisk, .client(.deliverTerminal(let client, var terminal, let body)))
            where terminal.sequence % 7 == 0:
                if case .result = terminal.outcome { terminal.outcome = .failed(Terminal.Failure(code: "spool-full")) }
                changed.append(.client(.deliverTerminal(client, terminal, body)))
            case (.takeOfSharedFile, .client(.send(let client, .fileTaken(let sequence, path: nil)))):
                changed.append(.client(.send(client, .fileTaken(sequence, path: invented))))
            case (
                .takeOfSharedFile,
                .client(.replyToNumberedMessage(let client, .fileTaken(let sequence, path: nil), _, let number))
            ):
                changed.append(
                    .client(
                        .replyToNumberedMessage(client, .fileTaken(sequence, path: invented), json: nil, to: number)))
            case (.lostTakePath, .client(.send(let client, .fileTaken(let sequence, path: _?)))):
                changed.append(.client(.send(client, .fileTaken(sequence, path: nil))))
            case (
                .lostTakePath,
                .client(.replyToNumberedMessage(let client, .fileTaken(let sequence, path: _?), _, let number))
            ):
                changed.append(
                    .client(.replyToNumberedMessage(client, .fileTaken(sequence, path: nil), json: nil, to: number)))
            case (.foreignTerminal, .client(.deliverTerminal(let client, let terminal, let body))):
                changed.append(.client(.deliverTerminal(clientOfOtherPrincipal(than: client), terminal, body)))
            case (.killedUserWorker, .worker(.close(let worker))): changed.append(.worker(.kill(worker)))
            case (.staleCompletion, .worker(.send(_, .job(let job)))):
                latestAttempts[job.attempt.flight] = job.attempt
                changed.append(action)
            default: changed.append(action)
            }
        }
        return changed
    }
}
