internal import EarshotCore
internal import EarshotWire

/// Workers: transfers from origins, and bodies that are read from other nodes.
extension ClusterTrial {
    mutating func workerBegins(_ node: Int, _ life: Int, isPuller: Bool) throws(Violation) {
        guard isLive(node, life) else { return }
        let id = WorkerID(rawValue: number())
        let slots = isPuller ? 8 : draw(2...6)
        nodes[node].workers[id] = ClusterNode.Worker(slots: slots, isPuller: isPuller)
        var ready = Ready(slots: slots)
        ready.pid = Int(id.rawValue)
        if isPuller { ready.schemes = ["earshot-node"] }
        try pass(node) { core, now in
            core.workerConnected(id, now: now)
            core.received(.ready(ready), body: nil, from: id, now: now)
        }
    }

    /// Ends a worker, and starts the next one.
    mutating func workerDies(_ node: Int, _ worker: WorkerID) throws(Violation) {
        guard let lost = nodes[node].workers.removeValue(forKey: worker) else { return }
        note("worker \(worker.rawValue) of node \(node) dies")
        try closeReaders(of: lost)
        try pass(node) { core, now in core.workerLost(worker, now: now) }
        plan(draw(10...500), .workerBegins(node: node, life: nodes[node].life, isPuller: lost.isPuller))
    }

    mutating func receives(_ message: PoolMessage, _ worker: WorkerID, _ node: Int) {
        let life = nodes[node].life
        guard let isPuller = nodes[node].workers[worker]?.isPuller else { return }
        switch message {
        case .job(let job) where isPuller:
            guard let holder = nodes.firstIndex(where: { job.url.contains("//" + ClusterNode.address(of: $0.number)) })
            else { preconditionFailure("\(job.url) has the address of a node") }
            nodes[node].workers[worker]?.pulls[job.attempt] = ClusterNode.Pull(job: job, holder: holder)
            note("node \(node) reads \(job.url) for \(job.attempt)")
            plan(draw(1...20), .pullBegins(node: node, life: life, worker, job.attempt))
        case .job(let job): transferBegins(job, worker, node)
        case .cancel(let attempt):
            nodes[node].workers[worker]?.transfers[attempt]?.isCancelled = true
            // The transfer may end before the worker hears it.
            plan(draw(1...30), .cancelConfirmed(node: node, life: life, worker, attempt))
        case .ping:
            plan(1, .cancelConfirmed(node: node, life: life, worker, Self.pong))
        case .limits, .raise, .rate, .file, .drain, .error: break
        }
    }

    /// Stands for a PONG in `cancelConfirmed`.
    private static let pong = AttemptID(broker: BrokerInstance(rawValue: 0), flight: 0, attempt: 0)

    mutating func cancelConfirmed(
        _ node: Int, _ life: Int, _ worker: WorkerID, _ attempt: AttemptID
    ) throws(Violation) {
        guard isLive(node, life), let known = nodes[node].workers[worker] else { return }
        if attempt == Self.pong {
            return try pass(node) { core, now in core.received(.pong, body: nil, from: worker, now: now) }
        }
        if let pull = known.pulls[attempt] {
            nodes[node].workers[worker]?.pulls[attempt] = nil
            try closeReader(of: pull)
        } else if nodes[node].workers[worker]?.transfers.removeValue(forKey: attempt) == nil {
            return
        }
        try pass(node) { core, now in
            let ended = WorkerMessage.failed(attempt, code: "cancelled", detail: nil, receivedBytes: 0)
            core.received(ended, body: nil, from: worker, now: now)
        }
    }

    // MARK: Transfers

    private mutating func transferBegins(_ job: Job, _ worker: WorkerID, _ node: Int) {
        guard let key = ClusterCatalogue.key(of: job.url) else { preconditionFailure("\(job.url) has a key") }
        // The canary needs transfers that outlive their requests.
        let longOnes = options.canary == .ignoresAborts ? 100 : 10
        let isLong = has(.longTransfers) && random.below(1_000) < longOnes
        let duration = isLong ? draw(2_000...30_000) : draw(5...250)
        let transfer = ClusterNode.Transfer(
            job: job, key: key, startedAt: now, isExcluded: now < windowEnd)
        note(
            "node \(node) starts \(job.attempt) of key \(key) for \(duration) ms\(transfer.isExcluded ? ", excused" : "")"
        )
        nodes[node].workers[worker]?.transfers[job.attempt] = transfer
        report.fetches += 1
        begun.append((node, worker, job.attempt))
        let life = nodes[node].life
        plan(duration, .transferEnds(node: node, life: life, worker, job.attempt))
    }

    mutating func transferEnds(_ node: Int, _ life: Int, _ worker: WorkerID, _ attempt: AttemptID) throws(Violation) {
        guard isLive(node, life),
            let transfer = nodes[node].workers[worker]?.transfers.removeValue(forKey: attempt)
        else { return }
        lastFetch += 1
        expectations.ended(lastFetch, at: now)
        let content = ClusterCatalogue.Content(key: transfer.key, fetch: lastFetch)
        let message = answer(to: transfer.job, content, at: node)
        var body: BodyID?
        if case .done(let completion) = message, completion.length > 0 {
            let id = BodyID(rawValue: number())
            nodes[node].bodies[id] = content
            body = id
        }
        let fetch = lastFetch
        note("node \(node) ends \(attempt) of key \(transfer.key) as fetch \(fetch): \(Self.text(message))")
        try pass(node) { [body] core, now in core.received(message, body: body, from: worker, now: now) }
    }

    private mutating func answer(to job: Job, _ content: ClusterCatalogue.Content, at node: Int) -> WorkerMessage {
        let attempt = job.attempt
        if has(.noWayOut), now < nodes[node].noWayOutUntil {
            return .failed(attempt, code: "unknown-host", detail: nil, receivedBytes: 0)
        }
        var completion = Completion(attempt: attempt, status: 200)
        completion.httpFields = Array(content.fields.utf8)
        if has(.refusals) {
            switch random.below(1_000) {
            case ..<5:
                completion.status = random.perMille(500) ? 429 : 503
                if random.perMille(500) { completion.httpFields += Array("\nretry-after: \(draw(1...3))".utf8) }
                return .done(completion)
            case ..<25:
                let codes = ["reset", "connect-failed", "timeout", "truncated", "spool-full"]
                return .failed(attempt, code: codes[random.below(codes.count)], detail: nil, receivedBytes: 0)
            case ..<35: completion.status = 404
            default: break
            }
        }
        if let next = ClusterCatalogue.redirect(of: content.key) {
            completion.status = 302
            completion.httpFields += Array("\nlocation: \(ClusterCatalogue.url(of: next))".utf8)
            return .done(completion)
        }
        guard job.method != "HEAD" else { return .done(completion) }
        completion.length = ClusterCatalogue.length(of: content.key)
        if let limit = job.maxBytes, completion.length > limit {
            return .failed(attempt, code: "too-large", detail: nil, receivedBytes: limit)
        }
        if completion.length > 0 { completion.sha256 = content.sha256 }
        return .done(completion)
    }

    static func text(_ message: WorkerMessage) -> String {
        switch message {
        case .done(let completion): "\(completion.status), \(completion.length) bytes"
        case .failed(_, let code, _, _, _, _, _, _): code
        case .ready, .progress, .slots, .sandbox, .pong, .bye: "\(message)"
        }
    }
}
