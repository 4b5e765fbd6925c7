internal import EarshotCore
internal import EarshotWire

/// Behaviour of worker processes at planned events of the `World`, and responses of origins.
extension World {
    mutating func workerStarts(_ number: Int) throws(Violation) {
        guard !workers[number].isAlive || workers[number].link == nil && !workers[number].isHung else { return }
        // The transfers for an earlier connection end before READY.
        abandonTransfers(number)
        if !workers[number].isAlive {
            workers[number] = SimulatedWorker()
            workers[number].isAlive = true
            workers[number].slots = 1 + random.number(below: setting.maximumSlotsPerWorker)
            workers[number].schemes = drawSchemes(of: number)
            planEvent(random.nanoseconds(around: 200_000_000), .workerActs(number))
        }
        lastLink += 1
        let link = lastLink
        links[link] = Link(peerNumber: number)
        workers[number].link = link
        workers[number].hasBeenWelcomed = false
        workers[number].openConnections.append(link)
        try handle(.workerConnected(WorkerID(rawValue: link), process: process(of: number)))
        var ready = Ready(slots: workers[number].slots)
        ready.pid = Int(process(of: number))
        if setting.isEnabled(.multiplePrincipals), isUserWorker(number), number.isMultiple(of: 2) {
            (ready.principal, ready.proof) = (PrincipalName("key:\(number / 2 % 3)"), Trial.gatewayProof)
        }
        if !workers[number].schemes.isEmpty { ready.schemes = workers[number].schemes }
        ready.acceptsDrain = number.isMultiple(of: 2)
        sendFromWorker(.ready(ready), number)
    }

    /// Returns the schemes that a worker serves; empty for the web.
    private mutating func drawSchemes(of number: Int) -> [String] {
        guard number >= setting.workerCount else { return [] }
        let first = random.number(below: setting.userSchemeCount)
        let others = (0..<setting.userSchemeCount).filter { $0 != first && random.boolean(perMille: 400) }
        // A worker for `http` alone gets no jobs.
        return (random.boolean(perMille: 50) ? ["http"] : []) + ([first] + others).map { "own\($0)" }
    }

    private func isUserWorker(_ number: Int) -> Bool { number >= setting.workerCount }

    private mutating func sendFromWorker(_ message: WorkerMessage, _ number: Int) {
        guard let link = workers[number].link else { return }
        let sentMessage: PlannedEvent.PeerMessage =
            random.boolean(perMille: 60) ? .bytes(message.encoded()) : .message(message)
        planArrival(atBrokerOver: link, .messageFromWorker(link: link, sentMessage))
    }

    mutating func workerMessageArrived(_ sentMessage: PlannedEvent.PeerMessage<WorkerMessage>, _ link: UInt64)
        throws(Violation)
    {
        guard links[link]?.isBroken == false else { return }
        let id = WorkerID(rawValue: link)
        switch sentMessage {
        case .message(let message):
            try keepParts(after: message, link)
            try handle(.workerSent(id, message, inlineBody(of: message)))
        case .bytes(let bytes):
            let message: WorkerMessage
            do throws(WireError) {
                message = try WorkerMessage(head: bytes)
            } catch {
                return try handle(.workerSentMalformed(id, error))
            }
            try workerMessageArrived(.message(message), link)
        }
    }

    /// Returns the inline body that the shell holds for a completion.
    private mutating func inlineBody(of message: WorkerMessage) -> BodyID? {
        guard case .completed(let completion) = message, completion.fileName == nil, completion.bodyByteCount > 0 else {
            return nil
        }
        lastBody += 1
        return BodyID(rawValue: lastBody)
    }

    mutating func workerReceives(_ message: PoolMessage, _ link: UInt64) throws(Violation) {
        guard let known = links[link], !known.isBroken else { return }
        let number = known.peerNumber
        guard workers[number].isAlive, !workers[number].isHung, workers[number].link == link else { return }
        switch message {
        case .job(let job):
            guard let key = contentKey(of: job) else { return }
            guard !workers[number].isRetiring else {
                sendFromWorker(.failed(job.attempt, code: "worker-lost", detail: nil, receivedBytes: 0), number)
                return
            }
            workers[number].transfers[job.attempt] = job
            workers[number].transferStarts[job.attempt] = now
            try transferBegins(at: catalogue.origin(of: key))
            if let progress = try beginPart(job, key, at: number) { sendFromWorker(progress, number) }
            planEvent(
                random.nanoseconds(around: setting.meanTransferNanoseconds), .transferEnds(worker: number, job.attempt))
        case .cancelAttempt(let attempt):
            guard let job = workers[number].transfers.removeValue(forKey: attempt) else { return }
            endTransfer(job)
            let left = abandonedPart(job, at: number)
            // The transfer may have completed before the CANCEL arrived.
            let isLate = setting.isEnabled(.wrongWorkerMessages) && random.boolean(perMille: 100)
            let ended = WorkerMessage.failed(
                attempt, code: "cancelled", detail: nil, receivedBytes: 100, unwantedBytes: random.number(below: 100),
                part: left)
            sendFromWorker(isLate ? .completed(Completion(attempt: attempt, status: 200)) : ended, number)
        case .raiseBodyLimit(let attempt, let maximumBodyBytes):
            workers[number].transfers[attempt]?.maximumBodyBytes = maximumBodyBytes
        case .changeRate: break
        case .ping: sendFromWorker(.pong, number)
        case .limits: workers[number].hasBeenWelcomed = true
        case .error where isUserWorker(number) && !workers[number].hasBeenWelcomed:
            // There is no room for its schemes: its user starts another one.
            workerDies(number)
        case .drain, .error, .fileContent: break
        }
    }

    // MARK: Transfers

    func contentKey(of job: Job) -> Int? {
        job.url.utf8.lastIndex(of: UInt8(ascii: "/")).flatMap { Int(job.url[job.url.index(after: $0)...]) }
    }

    private mutating func endTransfer(_ job: Job) {
        if let origin = contentKey(of: job).flatMap({ catalogue.origin(of: $0) }) {
            origins[origin].runningTransfers -= 1
        }
    }

    mutating func transferEnds(_ attempt: AttemptID, _ number: Int) {
        guard workers[number].isAlive, !workers[number].isHung,
            let job = workers[number].transfers.removeValue(forKey: attempt), let key = contentKey(of: job)
        else { return }
        endTransfer(job)
        // Its broker is gone.
        guard workers[number].hasBeenWelcomed else { return }
        if random.boolean(perMille: 50) { sendFromWorker(.progress(attempt, received: 1, total: nil), number) }
        var answer = originResponse(to: job, key, at: number)
        if case .completed(var completion) = answer {
            completion.elapsedMilliseconds = Int(
                (now - workers[number].transferStarts[attempt, default: now]) / 1_000_000)
            answer = .completed(completion)
        }
        workers[number].lastResult = answer
        sendFromWorker(answer, number)
        if setting.isEnabled(.wrongWorkerMessages), random.boolean(perMille: 20) { sendFromWorker(answer, number) }
    }

    /// Returns the response of the origin, or a network failure.
    private mutating func originResponse(to job: Job, _ key: Int, at number: Int) -> WorkerMessage {
        let attempt = job.attempt
        if setting.isEnabled(.brokenTransfers), random.boolean(perMille: 60) {
            let codes = ["reset", "truncated", "timeout", "connect-refused", "tls", "unknown-host", "unheard-of"]
            let code = codes[random.number(below: codes.count)]
            let left = abandonedPart(job, at: number)
            return .failed(attempt, code: code, detail: nil, receivedBytes: random.number(below: 100), part: left)
        }
        var completion = Completion(attempt: attempt, status: 200)
        let location = setting.isEnabled(.redirects) ? catalogue.redirectTarget(of: key, &random) : nil
        if let location {
            completion.status = [301, 302, 303, 307, 308][random.number(below: 5)]
            completion.httpFields =
                Array((random.boolean(perMille: 20) ? "x-lost: " : "location: ").utf8) + Array(location.utf8)
            return .completed(completion)
        }
        if setting.isEnabled(.throttling), random.boolean(perMille: 30) {
            completion.status = random.boolean(perMille: 500) ? 429 : 503
            if random.boolean(perMille: 500) {
                completion.httpFields = Array("retry-after: \(random.number(below: 3))".utf8)
            }
            return .completed(completion)
        }
        if setting.isEnabled(.errorStatuses), random.boolean(perMille: 50) {
            completion.status = [404, 410, 500][random.number(below: 3)]
        }
        guard job.method == "GET" else { return .completed(completion) }
        if catalogue.hasEntityTag(key), completion.status == 200 {
            completion.httpFields = entityTagFields(of: entityTag(of: key))
            let (_, condition) = JobContent.splitCondition(job.httpFields)
            if condition == JobContent.condition(on: completion.httpFields) {
                completion.status = 304
                return .completed(completion)
            }
        }
        completion.bodyByteCount = catalogue.bodyLength(of: key)
        if let limit = job.maximumBodyBytes, completion.bodyByteCount > limit {
            let left = abandonedPart(job, at: number)
            return .failed(attempt, code: "too-large", detail: nil, receivedBytes: limit, part: left)
        }
        if isDiskFull, catalogue.isStoredInSpool(key) {
            let left = abandonedPart(job, at: number)
            return .failed(attempt, code: "spool-full", detail: nil, receivedBytes: 0, part: left)
        }
        if completion.status == 200 { completion.isResumed = completePart(job, at: number) }
        completion.sha256 = catalogue.bodyDigests[key]
        if catalogue.isStoredInSpool(key) { completion.fileName = "f\(key)" }
        return .completed(completion)
    }

    // MARK: Faults

    mutating func workerActs(_ number: Int) {
        guard workers[number].isAlive else { return }
        planEvent(random.nanoseconds(around: 200_000_000), .workerActs(number))
        if workers[number].isRetiring, workers[number].transfers.isEmpty {
            sendFromWorker(.bye, number)
            workerDies(number)
        }
        guard workers[number].isAlive, !workers[number].isHung, !isEnding else { return }
        switch random.number(below: 1_000) {
        case ..<6 where setting.isEnabled(.workerCrashes): workerDies(number)
        case ..<9 where setting.isEnabled(.workerHangs): workers[number].isHung = true
        case ..<15 where setting.isEnabled(.lostWorkerConnections): breakWorkerConnection(number)
        case ..<18 where setting.isEnabled(.workerCrashes):
            // BYE implies that it holds no attempts.
            abandonTransfers(number)
            sendFromWorker(.bye, number)
            workerDies(number)
        case ..<24 where setting.isEnabled(.workerCrashes): workers[number].isRetiring = true
        case ..<40 where isUserWorker(number):
            workers[number].slots = 1 + random.number(below: setting.maximumSlotsPerWorker)
            sendFromWorker(.slots(workers[number].slots), number)
        case ..<300 where setting.isEnabled(.wrongWorkerMessages): sendWrongMessage(number)
        default: break
        }
    }

    private mutating func sendWrongMessage(_ number: Int) {
        let running = workers[number].transfers.keys.min { $0.description < $1.description }
        let others = workers[random.number(below: workers.count)].transfers.keys.min { $0.description < $1.description }
        let wrong = Completion(attempt: AttemptID(broker: Trial.instance, flight: 1, attempt: 1), status: 200)
        var claim = wrong
        switch random.number(below: 8) {
        case 0: if let last = workers[number].lastResult { sendFromWorker(last, number) }
        case 1:
            claim.attempt.broker = BrokerInstance(rawValue: 0xf1)
            sendFromWorker(.completed(claim), number)
        case 2:
            claim.attempt = running ?? claim.attempt
            claim.attempt.attempt &+= random.boolean(perMille: 500) ? 1 : .max
            sendFromWorker(.completed(claim), number)
        case 3:
            guard let others, workers[number].transfers[others] == nil else { return }
            claim.attempt = others
            sendFromWorker(.completed(claim), number)
        case 4:
            guard let running, let job = workers[number].transfers.removeValue(forKey: running) else { return }
            endTransfer(job)
            let code = ["too-large", "unheard-of", "internal"][random.number(below: 3)]
            sendFromWorker(.failed(running, code: code, detail: nil, receivedBytes: 0), number)
        case 5: sendFromWorker(.ready(Ready(slots: 9)), number)
        case 6:
            sendFromWorker(.progress(running ?? wrong.attempt, received: random.number(below: 99), total: 1), number)
        default:
            if let link = workers[number].link {
                planArrival(atBrokerOver: link, .messageFromWorker(link: link, .bytes(malformedHead())))
            }
        }
    }

    private mutating func abandonTransfers(_ number: Int) {
        for job in workers[number].transfers.values { endTransfer(job) }
        workers[number].transfers = [:]
    }

    /// Kills a process: its transfers break off at once, the broker is notified later, and another one is started.
    mutating func workerDies(_ number: Int) {
        guard workers[number].isAlive else { return }
        workers[number].isAlive = false
        abandonTransfers(number)
        if trial.model.awaitedProcesses.contains(process(of: number)) {
            planEvent(random.nanoseconds(around: 100_000_000), .processEnds(process(of: number)))
        }
        for link in workers[number].openConnections where links[link] != nil {
            // Its last messages may still arrive.
            let arrival = links[link]?.lastArrivalAtBroker ?? 0
            let isLost = random.boolean(perMille: 500)
            if isLost { links[link]?.isBroken = true }
            planEvent(max(arrival - now, 0) + random.nanoseconds(around: 100_000_000), .workerGone(link: link))
        }
        workers[number].link = nil
        planEvent(random.nanoseconds(around: 300_000_000), .workerStarts(number))
    }

    func process(of number: Int) -> Int32 { Int32(number) + 1 }

    /// Breaks a worker's connection; its process reconnects.
    mutating func breakWorkerConnection(_ number: Int) {
        guard let link = workers[number].link else { return }
        links[link]?.isBroken = true
        workers[number].link = nil
        planEvent(random.nanoseconds(around: 50_000_000), .workerConnectionLost(link: link))
        planEvent(random.nanoseconds(around: 50_000_000), .workerStarts(number))
    }

    /// Handles a forced disconnection: the process reconnects, or is restarted by its user if it hangs.
    mutating func workerConnectionClosed(_ link: UInt64) {
        guard let number = links[link]?.peerNumber else { return }
        if workers[number].isHung {
            workerDies(number)
        } else if workers[number].link == link {
            breakWorkerConnection(number)
        }
    }

    /// Notifies the broker of a broken connection, with the state of the process.
    mutating func reportWorkerDisconnection(_ link: UInt64) throws(Violation) {
        guard let number = links[link]?.peerNumber else { return }
        let isAlive = workers[number].isAlive && workers[number].openConnections.contains(link)
        try handle(.workerDisconnected(WorkerID(rawValue: link), isProcessAlive: isAlive))
        if trial.model.pool[WorkerID(rawValue: link)] == nil {
            links[link] = nil
            workers[number].openConnections.removeAll { $0 == link }
        }
    }
}

/// Worker process, and its successor after a restart.
struct SimulatedWorker {
    var isAlive = false
    /// Whether it neither reads nor sends.
    var isHung = false
    /// Whether it accepts no more jobs and exits after its last transfer.
    var isRetiring = false
    var slots = 1
    /// Schemes it serves; empty for the web.
    var schemes: [String] = []
    var link: UInt64?
    /// Connections of this process that the broker has not closed yet.
    var openConnections: [UInt64] = []
    var transfers: [AttemptID: Job] = [:]
    /// Start times of the transfers.
    var transferStarts: [AttemptID: Int64] = [:]
    /// Whether the broker has replied to its READY.
    var hasBeenWelcomed = false
    /// Result of the last attempt, for sending it again.
    var lastResult: WorkerMessage?
}

/// Origin with its own count of transfers.
struct SimulatedOrigin {
    var runningTransfers = 0
}
