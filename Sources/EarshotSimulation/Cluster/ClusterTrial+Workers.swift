internal import EarshotCore
internal import EarshotWire

/// Workers: transfers from origins, and bodies that are read from other nodes.
extension ClusterTrial {
    mutating func workerBegins(_ node: Int, _ life: Int, isPuller: Bool) throws(Violation) {
        guard isCurrentLife(node, life) else { return }
        let id = WorkerID(rawValue: nextNumber())
        let slots = isPuller ? 8 : drawNumber(2...6)
        nodes[node].workers[id] = ClusterNode.Worker(slots: slots, isPuller: isPuller)
        var ready = Ready(slots: slots)
        ready.pid = Int(id.rawValue)
        if isPuller { ready.schemes = ["earshot-node"] }
        try runPass(node) { core, now in
            core.workerConnected(id, now: now)
            core.workerMessageReceived(.ready(ready), body: nil, from: id, now: now)
        }
    }

    /// Ends a worker, and starts the next one.
    mutating func workerDies(_ node: Int, _ worker: WorkerID) throws(Violation) {
        guard let lost = nodes[node].workers.removeValue(forKey: worker) else { return }
        appendTrace("worker \(worker.rawValue) of node \(node) dies")
        try closeReaders(of: lost)
        try runPass(node) { core, now in core.workerLost(worker, now: now) }
        planEvent(
            drawNumber(10...500), .workerBegins(node: node, life: nodes[node].lifeNumber, isPuller: lost.isPuller))
    }

    mutating func workerReceives(_ message: PoolMessage, _ worker: WorkerID, _ node: Int) {
        let life = nodes[node].lifeNumber
        guard let isPuller = nodes[node].workers[worker]?.isPuller else { return }
        switch message {
        case .job(let job) where isPuller:
            guard
                let holder = nodes.firstIndex(where: { job.url.contains("//" + ClusterNode.address(of: $0.nodeNumber)) }
                )
            else { preconditionFailure("\(job.url) has the address of a node") }
            nodes[node].workers[worker]?.pulls[job.attempt] = ClusterNode.Pull(job: job, holderNode: holder)
            appendTrace("node \(node) reads \(job.url) for \(job.attempt)")
            planEvent(drawNumber(1...20), .pullBegins(node: node, life: life, worker, job.attempt))
        case .job(let job): transferBegins(job, worker, node)
        case .cancelAttempt(let attempt):
            nodes[node].workers[worker]?.transfers[attempt]?.isCancelled = true
            // The transfer may end before the worker hears it.
            planEvent(drawNumber(1...30), .cancelConfirmed(node: node, life: life, worker, attempt))
        case .ping:
            planEvent(1, .cancelConfirmed(node: node, life: life, worker, Self.pongMarker))
        case .limits, .raiseBodyLimit, .changeRate, .fileContent, .drain, .error: break
        }
    }

    /// Stands for a PONG in `cancelConfirmed`.
    private static let pongMarker = AttemptID(broker: BrokerInstance(rawValue: 0), flight: 0, attempt: 0)

    mutating func cancelConfirmed(
        _ node: Int, _ life: Int, _ worker: WorkerID, _ attempt: AttemptID
    ) throws(Violation) {
        guard isCurrentLife(node, life), let known = nodes[node].workers[worker] else { return }
        if attempt == Self.pongMarker {
            return try runPass(node) { core, now in core.workerMessageReceived(.pong, body: nil, from: worker, now: now)
            }
        }
        if let pull = known.pulls[attempt] {
            nodes[node].workers[worker]?.pulls[attempt] = nil
            try closeReader(of: pull)
        } else if nodes[node].workers[worker]?.transfers.removeValue(forKey: attempt) == nil {
            return
        }
        try runPass(node) { core, now in
            let ended = WorkerMessage.failed(attempt, code: "cancelled", detail: nil, receivedBytes: 0)
            core.workerMessageReceived(ended, body: nil, from: worker, now: now)
        }
    }

    // MARK: Transfers

    private mutating func transferBegins(_ job: Job, _ worker: WorkerID, _ node: Int) {
        guard let key = ClusterCatalogue.key(of: job.url) else { preconditionFailure("\(job.url) has a key") }
        // The canary needs transfers that outlive their requests.
        let longOnes = options.canary == .ignoresAborts ? 100 : 10
        let isLong = isEnabled(.longTransfers) && random.number(below: 1_000) < longOnes
        let duration = isLong ? drawNumber(2_000...30_000) : drawNumber(5...250)
        let transfer = ClusterNode.Transfer(
            job: job, key: key, startedAt: now, isExemptFromLimits: now < duplicatesWindowEnd)
        appendTrace(
            "node \(node) starts \(job.attempt) of key \(key) for \(duration) ms\(transfer.isExemptFromLimits ? ", excused" : "")"
        )
        nodes[node].workers[worker]?.transfers[job.attempt] = transfer
        report.originFetches += 1
        startedTransfers.append((node, worker, job.attempt))
        let life = nodes[node].lifeNumber
        planEvent(duration, .transferEnds(node: node, life: life, worker, job.attempt))
    }

    mutating func transferEnds(_ node: Int, _ life: Int, _ worker: WorkerID, _ attempt: AttemptID) throws(Violation) {
        guard isCurrentLife(node, life),
            let transfer = nodes[node].workers[worker]?.transfers.removeValue(forKey: attempt)
        else { return }
        lastFetchNumber += 1
        expectations.recordFetchEnd(lastFetchNumber, at: now)
        let content = ClusterCatalogue.Content(key: transfer.key, fetch: lastFetchNumber)
        let message = originResponse(to: transfer.job, content, at: node)
        var body: BodyID?
        if case .completed(let completion) = message, completion.bodyByteCount > 0 {
            let id = BodyID(rawValue: nextNumber())
            nodes[node].heldBodies[id] = content
            body = id
        }
        let fetch = lastFetchNumber
        appendTrace(
            "node \(node) ends \(attempt) of key \(transfer.key) as fetch \(fetch): \(Self.traceDescription(message))")
        try runPass(node) { [body] core, now in core.workerMessageReceived(message, body: body, from: worker, now: now)
        }
    }

    private mutating func originResponse(to job: Job, _ content: ClusterCatalogue.Content, at node: Int)
        -> WorkerMessage
    {
        let attempt = job.attempt
        if isEnabled(.nameResolutionOutage), now < nodes[node].nameResolutionOutageEnd {
            return .failed(attempt, code: "unknown-host", detail: nil, receivedBytes: 0)
        }
        var completion = Completion(attempt: attempt, status: 200)
        completion.httpFields = Array(content.headerFields.utf8)
        if isEnabled(.refusals) {
            switch random.number(below: 1_000) {
            case ..<5:
                completion.status = random.boolean(perMille: 500) ? 429 : 503
                if random.boolean(perMille: 500) {
                    completion.httpFields += Array("\nretry-after: \(drawNumber(1...3))".utf8)
                }
                return .completed(completion)
            case ..<25:
                let codes = ["reset", "connect-failed", "timeout", "truncated", "spool-full"]
                return .failed(attempt, code: codes[random.number(below: codes.count)], detail: nil, receivedBytes: 0)
            case ..<35: completion.status = 404
            default: break
            }
        }
        if let next = ClusterCatalogue.redirectTarget(of: content.key) {
            completion.status = 302
            completion.httpFields += Array("\nlocation: \(ClusterCatalogue.url(of: next))".utf8)
            return .completed(completion)
        }
        guard job.method != "HEAD" else { return .completed(completion) }
        completion.bodyByteCount = ClusterCatalogue.bodyLength(of: content.key)
        if let limit = job.maximumBodyBytes, completion.bodyByteCount > limit {
            return .failed(attempt, code: "too-large", detail: nil, receivedBytes: limit)
        }
        if completion.bodyByteCount > 0 { completion.sha256 = content.sha256 }
        return .completed(completion)
    }

    static func traceDescription(_ message: WorkerMessage) -> String {
        switch message {
        case .completed(let completion): "\(completion.status), \(completion.bodyByteCount) bytes"
        case .failed(_, let code, _, _, _, _, _, _): code
        case .ready, .progress, .slots, .sandbox, .pong, .bye: "\(message)"
        }
    }
}
