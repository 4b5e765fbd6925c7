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
            workers[number].slots = 1 + random.below(setting.slots)
            workers[number].schemes = schemes(of: number)
            plan(random.around(200_000_000), .workerActs(number))
        }
        lastLink += 1
        let link = lastLink
        links[link] = Link(peer: number)
        workers[number].link = link
        workers[number].isWelcome = false
        workers[number].openConnections.append(link)
        try handle(.workerConnected(WorkerID(rawValue: link), process: process(of: number)))
        var ready = Ready(slots: workers[number].slots)
        ready.pid = Int(process(of: number))
        if setting.has(.principals), isOwn(number), number.isMultiple(of: 2) {
            (ready.principal, ready.proof) = (PrincipalName("key:\(number / 2 % 3)"), Trial.proof)
        }
        if !workers[number].schemes.isEmpty { ready.schemes = workers[number].schemes }
        ready.acceptsDrain = number.isMultiple(of: 2)
        send(.ready(ready), number)
    }

    /// Returns the schemes that a worker serves; empty for the web.
    private mutating func schemes(of number: Int) -> [String] {
        guard number >= setting.workers else { return [] }
        let first = random.below(setting.schemes)
        let others = (0..<setting.schemes).filter { $0 != first && random.perMille(400) }
        // A worker for `http` alone gets no jobs.
        return (random.perMille(50) ? ["http"] : []) + ([first] + others).map { "own\($0)" }
    }

    private func isOwn(_ number: Int) -> Bool { number >= setting.workers }

    private mutating func send(_ message: WorkerMessage, _ number: Int) {
        guard let link = workers[number].link else { return }
        let sentMessage: PlannedEvent.PeerMessage = random.perMille(60) ? .bytes(message.encoded()) : .message(message)
        send(up: link, .fromWorker(link: link, sentMessage))
    }

    mutating func arrived(_ sentMessage: PlannedEvent.PeerMessage<WorkerMessage>, _ link: UInt64) throws(Violation) {
        guard links[link]?.isCut == false else { return }
        let id = WorkerID(rawValue: link)
        switch sentMessage {
        case .message(let message):
            try keepParts(after: message, link)
            try handle(.workerSent(id, message, body(of: message)))
        case .bytes(let bytes):
            let message: WorkerMessage
            do throws(WireError) {
                message = try WorkerMessage(head: bytes)
            } catch {
                return try handle(.workerSentMalformed(id, error))
            }
            try arrived(.message(message), link)
        }
    }

    /// Returns the inline body that the shell holds for a completion.
    private mutating func body(of message: WorkerMessage) -> BodyID? {
        guard case .done(let completion) = message, completion.file == nil, completion.length > 0 else { return nil }
        lastBody += 1
        return BodyID(rawValue: lastBody)
    }

    mutating func workerReceives(_ message: PoolMessage, _ link: UInt64) throws(Violation) {
        guard let known = links[link], !known.isCut else { return }
        let number = known.peer
        guard workers[number].isAlive, !workers[number].isHung, workers[number].link == link else { return }
        switch message {
        case .job(let job):
            guard let key = key(of: job) else { return }
            guard !workers[number].isRetiring else {
                send(.failed(job.attempt, code: "worker-lost", detail: nil, receivedBytes: 0), number)
                return
            }
            workers[number].transfers[job.attempt] = job
            workers[number].starts[job.attempt] = now
            try transferBegins(at: catalogue.origin(of: key))
            if let progress = try partBegins(job, key, at: number) { send(progress, number) }
            plan(random.around(setting.latency), .transferEnds(worker: number, job.attempt))
        case .cancel(let attempt):
            guard let job = workers[number].transfers.removeValue(forKey: attempt) else { return }
            endTransfer(job)
            let left = partLeft(job, at: number)
            // The transfer may have completed before the CANCEL arrived.
            let isLate = setting.has(.lyingWorkers) && random.perMille(100)
            let ended = WorkerMessage.failed(
                attempt, code: "cancelled", detail: nil, receivedBytes: 100, unwantedBytes: random.below(100),
                part: left)
            send(isLate ? .done(Completion(attempt: attempt, status: 200)) : ended, number)
        case .raise(let attempt, let maxBytes): workers[number].transfers[attempt]?.maxBytes = maxBytes
        case .rate: break
        case .ping: send(.pong, number)
        case .limits: workers[number].isWelcome = true
        case .error where isOwn(number) && !workers[number].isWelcome:
            // There is no room for its schemes: its user starts another one.
            workerDies(number)
        case .drain, .error, .file: break
        }
    }

    // MARK: Transfers

    func key(of job: Job) -> Int? {
        job.url.utf8.lastIndex(of: UInt8(ascii: "/")).flatMap { Int(job.url[job.url.index(after: $0)...]) }
    }

    private mutating func endTransfer(_ job: Job) {
        if let origin = key(of: job).flatMap({ catalogue.origin(of: $0) }) { origins[origin].running -= 1 }
    }

    mutating func transferEnds(_ attempt: AttemptID, _ number: Int) {
        guard workers[number].isAlive, !workers[number].isHung,
            let job = workers[number].transfers.removeValue(forKey: attempt), let key = key(of: job)
        else { return }
        endTransfer(job)
        // Its broker is gone.
        guard workers[number].isWelcome else { return }
        if random.perMille(50) { send(.progress(attempt, received: 1, total: nil), number) }
        var answer = answer(to: job, key, at: number)
        if case .done(var completion) = answer {
            completion.elapsedMilliseconds = Int((now - workers[number].starts[attempt, default: now]) / 1_000_000)
            answer = .done(completion)
        }
        workers[number].lastResult = answer
        send(answer, number)
        if setting.has(.lyingWorkers), random.perMille(20) { send(answer, number) }
    }

    /// Returns the response of the origin, or a network failure.
    private mutating func answer(to job: Job, _ key: Int, at number: Int) -> WorkerMessage {
        let attempt = job.attempt
        if setting.has(.brokenTransfers), random.perMille(60) {
            let codes = ["reset", "truncated", "timeout", "connect-refused", "tls", "unknown-host", "unheard-of"]
            let code = codes[random.below(codes.count)]
            let left = partLeft(job, at: number)
            return .failed(attempt, code: code, detail: nil, receivedBytes: random.below(100), part: left)
        }
        var completion = Completion(attempt: attempt, status: 200)
        let location = setting.has(.redirects) ? catalogue.location(of: key, &random) : nil
        if let location {
            completion.status = [301, 302, 303, 307, 308][random.below(5)]
            completion.httpFields = Array((random.perMille(20) ? "x-lost: " : "location: ").utf8) + Array(location.utf8)
            return .done(completion)
        }
        if setting.has(.throttling), random.perMille(30) {
            completion.status = random.perMille(500) ? 429 : 503
            if random.perMille(500) { completion.httpFields = Array("retry-after: \(random.below(3))".utf8) }
            return .done(completion)
        }
        if setting.has(.errorPages), random.perMille(50) { completion.status = [404, 410, 500][random.below(3)] }
        guard job.method == "GET" else { return .done(completion) }
        if catalogue.hasTag(key), completion.status == 200 {
            completion.httpFields = fields(of: tag(of: key))
            let (_, condition) = JobContent.separated(job.httpFields)
            if condition == JobContent.condition(on: completion.httpFields) {
                completion.status = 304
                return .done(completion)
            }
        }
        completion.length = catalogue.length(of: key)
        if let limit = job.maxBytes, completion.length > limit {
            let left = partLeft(job, at: number)
            return .failed(attempt, code: "too-large", detail: nil, receivedBytes: limit, part: left)
        }
        if isDiskFull, catalogue.isFile(key) {
            let left = partLeft(job, at: number)
            return .failed(attempt, code: "spool-full", detail: nil, receivedBytes: 0, part: left)
        }
        if completion.status == 200 { completion.isResumed = partEnds(job, at: number) }
        completion.sha256 = catalogue.digests[key]
        if catalogue.isFile(key) { completion.file = "f\(key)" }
        return .done(completion)
    }

    // MARK: Faults

    mutating func workerActs(_ number: Int) {
        guard workers[number].isAlive else { return }
        plan(random.around(200_000_000), .workerActs(number))
        if workers[number].isRetiring, workers[number].transfers.isEmpty {
            send(.bye, number)
            workerDies(number)
        }
        guard workers[number].isAlive, !workers[number].isHung, !isEnding else { return }
        switch random.below(1_000) {
        case ..<6 where setting.has(.workerCrashes): workerDies(number)
        case ..<9 where setting.has(.workerHangs): workers[number].isHung = true
        case ..<15 where setting.has(.workerCuts): cutWorker(number)
        case ..<18 where setting.has(.workerCrashes):
            // BYE implies that it holds no attempts.
            abandonTransfers(number)
            send(.bye, number)
            workerDies(number)
        case ..<24 where setting.has(.workerCrashes): workers[number].isRetiring = true
        case ..<40 where isOwn(number):
            workers[number].slots = 1 + random.below(setting.slots)
            send(.slots(workers[number].slots), number)
        case ..<300 where setting.has(.lyingWorkers): lie(number)
        default: break
        }
    }

    private mutating func lie(_ number: Int) {
        let running = workers[number].transfers.keys.min { $0.description < $1.description }
        let others = workers[random.below(workers.count)].transfers.keys.min { $0.description < $1.description }
        let wrong = Completion(attempt: AttemptID(broker: Trial.instance, flight: 1, attempt: 1), status: 200)
        var claim = wrong
        switch random.below(8) {
        case 0: if let last = workers[number].lastResult { send(last, number) }
        case 1:
            claim.attempt.broker = BrokerInstance(rawValue: 0xf1)
            send(.done(claim), number)
        case 2:
            claim.attempt = running ?? claim.attempt
            claim.attempt.attempt &+= random.perMille(500) ? 1 : .max
            send(.done(claim), number)
        case 3:
            guard let others, workers[number].transfers[others] == nil else { return }
            claim.attempt = others
            send(.done(claim), number)
        case 4:
            guard let running, let job = workers[number].transfers.removeValue(forKey: running) else { return }
            endTransfer(job)
            let code = ["too-large", "unheard-of", "internal"][random.below(3)]
            send(.failed(running, code: code, detail: nil, receivedBytes: 0), number)
        case 5: send(.ready(Ready(slots: 9)), number)
        case 6: send(.progress(running ?? wrong.attempt, received: random.below(99), total: 1), number)
        default:
            if let link = workers[number].link { send(up: link, .fromWorker(link: link, .bytes(malformedHead()))) }
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
            plan(random.around(100_000_000), .processEnds(process(of: number)))
        }
        for link in workers[number].openConnections where links[link] != nil {
            // Its last messages may still arrive.
            let arrival = links[link]?.lastUp ?? 0
            let isLost = random.perMille(500)
            if isLost { links[link]?.isCut = true }
            plan(max(arrival - now, 0) + random.around(100_000_000), .workerGone(link: link))
        }
        workers[number].link = nil
        plan(random.around(300_000_000), .workerStarts(number))
    }

    func process(of number: Int) -> Int32 { Int32(number) + 1 }

    /// Breaks a worker's connection; its process reconnects.
    mutating func cutWorker(_ number: Int) {
        guard let link = workers[number].link else { return }
        links[link]?.isCut = true
        workers[number].link = nil
        plan(random.around(50_000_000), .workerCut(link: link))
        plan(random.around(50_000_000), .workerStarts(number))
    }

    /// Handles a forced disconnection: the process reconnects, or is restarted by its user if it hangs.
    mutating func closedWorker(_ link: UInt64) {
        guard let number = links[link]?.peer else { return }
        if workers[number].isHung {
            workerDies(number)
        } else if workers[number].link == link {
            cutWorker(number)
        }
    }

    /// Notifies the broker of a broken connection, with the state of the process.
    mutating func workerCut(_ link: UInt64) throws(Violation) {
        guard let number = links[link]?.peer else { return }
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
    var starts: [AttemptID: Int64] = [:]
    /// Whether the broker has replied to its READY.
    var isWelcome = false
    /// Result of the last attempt, for sending it again.
    var lastResult: WorkerMessage?
}

/// Origin with its own count of transfers.
struct SimulatedOrigin {
    var running = 0
}
