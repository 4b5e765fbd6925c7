internal import EarshotCore
internal import EarshotWire
internal import HeapModule

/// Workers: the expected effects of their reports and losses on leases and flights.
extension ReferenceModel {
    func workerSent(_ message: WorkerMessage, _ body: BodyID?, by id: WorkerID, hasRetried: Bool) {
        if let body { bodies.insert(body) }
        guard let worker = pool[id] else { return }
        worker.pingedAt = nil
        guard worker.isReady else { return }
        switch message {
        case .pong: ponged(worker)
        case .ready: break
        case .progress(let attempt, _, _, let part, _): partReported(part, of: attempt, at: worker)
        case .slots(let slots): worker.slots = slots
        case .sandbox: break
        case .bye: workerGone(id, isDeath: false)
        case .completed(let completion):
            if let file = completion.fileName {
                let lease = worker.leases[completion.attempt]
                fileCreated(file, knownTo: lease?.sessionsKnowingFile ?? [])
                // The broker may treat it as known to others, although it is the same session that asks again.
                if lease?.continuesKnownPart == true { audiences[file, default: FileAudience()].isTakeRefused = true }
            }
            guard let (flight, lease) = endLease(completion.attempt, at: worker) else { return }
            var answer = completion
            let resumedBytes = completion.isResumed ? lease.resumedBytes : 0
            // The simulated 206 responses have no fields of their own.
            if resumedBytes > 0 {
                answer.httpFields = lease.fields + Array("\ncontent-length: \(completion.bodyByteCount)".utf8)
            }
            responseReceived(flight, answer, body, resumedBytes: resumedBytes, hasRetried: hasRetried)
        case .failed(let attempt, let code, _, _, let unwanted, let part, _, _):
            partReported(part, of: attempt, at: worker)
            if let lease = worker.leases[attempt], lease.flight == nil {
                ledger.flights.bytesAfterCancel += unwanted
            }
            // A code outside the table is a fault of a child worker; a user's worker may have its own codes.
            let known = worker.isUserWorker ? Self.ownFailures : Self.knownFailures
            let code = known.contains(code) ? code : worker.isUserWorker ? "worker-failed" : "internal"
            attemptFailed(attempt, code, at: worker, hasRetried: hasRetried)
        }
    }

    /// Handles a worker's report of the file it writes.
    func partReported(_ part: BodyPart?, of attempt: AttemptID, at worker: PoolRecord) {
        guard let part, let lease = worker.leases[attempt], part.fileName != lease.file || !part.httpFields.isEmpty,
            part.fileName.hasPrefix("\(worker.pid)-\(attempt).")
        else { return }
        worker.leases[attempt]?.file = part.fileName
        worker.leases[attempt]?.fields = part.httpFields
        keptParts[SpoolName.keptPart(of: attempt)]?.responseFields = part.httpFields
    }

    /// Handles a part that outlived its flight. The world checks that the JOB resumes the body of its own request.
    func partFound(_ part: PartDescription, _ bytes: Int, of attempt: AttemptID, at id: WorkerID) {
        guard let worker = pool[id], worker.leases[attempt] != nil else { return }
        let readers = growthReaders[part.generation.description] ?? []
        expect(
            part.isKnownToClient || readers.isEmpty, 15,
            "the part of \(attempt) is described as unknown to all sessions")
        worker.leases[attempt]?.sessionsKnowingFile = readers
        worker.leases[attempt]?.continuesKnownPart = part.isKnownToClient
        worker.leases[attempt]?.resumedBytes = bytes
        worker.leases[attempt]?.file = "\(worker.pid)-\(attempt).part"
        worker.leases[attempt]?.fields = part.httpFields
    }

    /// An invalid message about an attempt is a fault of the worker, and ends the attempt.
    func workerSentMalformed(_ error: WireError, by id: WorkerID, hasRetried: Bool) {
        guard let worker = pool[id] else { return }
        if let attempt = error.attempt { attemptFailed(attempt, "internal", at: worker, hasRetried: hasRetried) }
        if worker.isReady { disconnectForViolation(worker) }
    }

    private func attemptFailed(_ attempt: AttemptID, _ code: String, at worker: PoolRecord, hasRetried: Bool) {
        let isSuspect = worker.leases[attempt]?.flight?.requiresIsolation ?? false
        guard let (flight, lease) = endLease(attempt, at: worker) else { return }
        transferEndedInScope(flight, isAnswered: false)
        if code == "worker-lost" {
            // The worker is leaving, and did not accept the job.
            worker.isLeaving = true
            flight.requiresIsolation = isSuspect
            flight.phase = .waiting
        } else if code == "too-large", let allowed = lease.maximumBodyBytes {
            handleTooLargeBody(flight, reached: allowed)
        } else {
            handleFailure(flight, code, nil, nil, hasRetried: hasRetried)
        }
    }

    /// Invariant 6: only the current attempt, reported with its full ID by the worker that holds it, counts.
    private func endLease(
        _ attempt: AttemptID, at worker: PoolRecord
    ) -> (FlightRecord, PoolRecord.Lease)? {
        guard let lease = worker.leases.removeValue(forKey: attempt) else {
            countStaleCompletion()
            return nil
        }
        transferEnded(lease)
        if worker.isolation?.attempt == attempt {
            worker.isolation = nil
            lease.flight?.requiresIsolation = false
        }
        guard let flight = lease.flight else { return nil }
        return (flight, lease)
    }

    private func countStaleCompletion() {
        ledger.flights.staleCompletions += 1
        ledgerInvariant = 6
    }

    private func transferEnded(_ lease: PoolRecord.Lease) {
        origins[lease.origin]?.transferEnded(isHigh: lease.isHigh)
    }

    func workerDisconnected(_ id: WorkerID, isProcessAlive: Bool) {
        guard let worker = pool[id] else { return }
        if isProcessAlive, !worker.isUserWorker, !worker.leases.isEmpty {
            worker.isLeaving = true
        } else {
            workerLost(id)
        }
    }

    /// Requeues the worker's flights. One that lost two workers becomes a suspect; one that lost too many is poisonous.
    func workerLost(_ id: WorkerID) { workerGone(id, isDeath: true) }

    /// Requeues the flights of a worker that was killed from outside, which makes none of them a suspect.
    func workerKilled(_ id: WorkerID) { workerGone(id, isDeath: false) }

    private func workerGone(_ id: WorkerID, isDeath: Bool) {
        guard let worker = pool.removeValue(forKey: id) else { return }
        workerLeftSchemes(worker)
        let suspected = suspectedAttempt(in: worker)
        let servesSingleRequest = worker.leases.count == 1
        for (attempt, lease) in worker.leases {
            transferEnded(lease)
            guard let flight = lease.flight else { continue }
            transferEndedInScope(flight, isAnswered: false)
            let isSuspectedCause = isDeath && servesSingleRequest && attempt == suspected && flight.isBlamedForLastDeath
            if isDeath {
                flight.workerDeaths += 1
                flight.isBlamedForLastDeath = attempt == suspected
            }
            if isSuspectedCause || isDeath && flight.workerDeaths >= limits.maximumWorkerDeathsPerFlight {
                endFlight(flight, Ending(code: "poisonous", attempts: Int(flight.attempts)))
            } else if !flight.content.job.isIdempotent {
                endFlight(flight, Ending(code: "worker-lost", attempts: Int(flight.attempts)))
            } else {
                flight.phase = .waiting
                flight.isRequeued = true
                guard isDeath, flight.workerDeaths >= limits.workerDeathsBeforeSuspicion else { continue }
                flight.requiresIsolation = true
                let end = now.advanced(byMilliseconds: limits.maximumSuspectWaitMilliseconds)
                timers.insert(ModelTimer(dueAt: end, subject: .isolationWait(flight, deaths: flight.workerDeaths)))
            }
        }
    }

    /// Returns the attempt to blame for the death of a worker: the isolated one, or its only one after an earlier
    /// death.
    private func suspectedAttempt(in worker: PoolRecord) -> AttemptID? {
        if let isolation = worker.isolation { return isolation.attempt }
        guard worker.leases.count == 1, let (attempt, lease) = worker.leases.first,
            let flight = lease.flight, flight.workerDeaths > 0
        else { return nil }
        return attempt
    }

    /// Clears a suspect whose worker replies to a PING after the isolation.
    func ponged(_ worker: PoolRecord) {
        if let end = worker.isolation?.end, end <= now { clearSuspect(of: worker) }
    }

    func clearSuspect(of worker: PoolRecord) {
        guard let attempt = worker.isolation?.attempt else { return }
        worker.isolation = nil
        worker.leases[attempt]?.flight?.requiresIsolation = false
    }

    // MARK: Responses

    /// Handles an origin's response: a redirect, a retry, or the end.
    func responseReceived(
        _ flight: FlightRecord, _ completion: Completion, _ body: BodyID?, resumedBytes: Int, hasRetried: Bool
    ) {
        let job = flight.content.job
        if completion.status == 429 || completion.status == 503 {
            let seconds = Self.retryAfter(in: completion.httpFields)
            scopes[ScopeName(job)]?.beginCoolDown(
                seconds: seconds, url: seconds == nil && completion.status == 503 ? job.url : nil,
                outageURLs: limits.coolDownURLThreshold, now: now)
        } else {
            transferEndedInScope(flight, isAnswered: true)
        }
        let isRedirect = [301, 302, 303, 307, 308].contains(completion.status) && flight.content.redirect != .manual
        if isRedirect, flight.content.redirect == .error {
            endFlight(flight, Ending(code: "redirect-refused", attempts: Int(flight.attempts)))
        } else if isRedirect, let location = Self.location(in: completion.httpFields) {
            followRedirect(flight, to: location, by: completion.status)
        } else if completion.status == 304, let condition = flight.attemptCondition,
            !meetsAllConditions(condition, of: flight, completion)
        {
            return
        } else if completion.status >= 400, !flight.content.deliversErrors {
            handleFailure(flight, "http-status", completion, body, hasRetried: hasRetried)
        } else {
            endFlight(
                flight,
                Ending(
                    completion: completion, body: body, url: job.url, attempts: Int(flight.attempts),
                    resumedBytes: resumedBytes))
        }
    }

    /// Handles a 304. Requests with another condition, or without one, need another attempt.
    ///
    /// - Returns: Whether all requests have this condition.
    private func meetsAllConditions(_ condition: [UInt8], of flight: FlightRecord, _ completion: Completion) -> Bool {
        let waiting = waitingRequests(for: flight)
        let met = waiting.filter { $0.condition == condition }
        if waiting.isEmpty { closeFlight(flight) }
        guard met.isEmpty || met.count < waiting.count else { return true }
        guard !waiting.isEmpty else { return false }
        flight.phase = .waiting
        for request in met {
            detachFromFlight(request)
            endRequest(
                request,
                Ending(completion: completion, url: flight.content.job.url, attempts: Int(flight.attempts)))
        }
        return false
    }

    /// Returns a 304 in place of the response, if that meets the condition of a request which has not read it.
    private func notModifiedEnding(_ ending: Ending, for request: RequestRecord) -> Ending? {
        guard ending.code == nil, var completion = ending.completion, completion.status == 200,
            let condition = request.condition, !request.fetch.options.streams,
            condition == JobContent.condition(on: completion.httpFields)
        else { return nil }
        (completion.status, completion.bodyByteCount, completion.sha256, completion.fileName) = (304, 0, nil, nil)
        return Ending(completion: completion, url: ending.url, attempts: ending.attempts)
    }

    /// Handles a failed attempt. Within the limits the core decides whether to retry.
    private func handleFailure(
        _ flight: FlightRecord, _ code: String, _ completion: Completion?, _ body: BodyID?, hasRetried: Bool
    ) {
        flight.failures += 1
        guard hasRetried else {
            endFlight(
                flight,
                Ending(
                    code: code, completion: completion, body: body, url: flight.content.job.url,
                    attempts: Int(flight.attempts)))
            return
        }
        expect(flight.failures <= flight.retries, 3, "\(flight.content.job) is tried more often than asked")
        let mayEndBetter =
            completion.map { Self.retryableStatuses.contains($0.status) } ?? Self.retryableFailures.contains(code)
        expect(flight.content.job.isIdempotent, 3, "\(flight.content.job) is tried again")
        expect(mayEndBetter, 3, "\(flight.content.job) is tried again after \(code)")
        flight.phase = .pausing
        let ending = Ending(
            code: code, completion: completion, body: body, url: flight.content.job.url,
            attempts: Int(flight.attempts))
        for request in waitingRequests(for: flight) where request.fetch.options.retries == 0 {
            detachFromFlight(request)
            endRequest(request, ending)
        }
        expect(
            flight.isWanted || flight.isAbandoned, 3, "\(flight.content.job) is tried again for nobody who allows that")
    }

    /// Returns the requests that wait for a flight, in the order of their ends.
    private func waitingRequests(for flight: FlightRecord) -> [RequestRecord] {
        flight.requests.sorted { $0.key < $1.key }.map(\.value) + flight.parents.flatMap { waitingRequests(for: $0) }
    }

    /// Handles a body that exceeds the attempt's limit: fails the requests that permit no more, invariant 8.
    private func handleTooLargeBody(_ flight: FlightRecord, reached: Int) {
        var exceeded: [RequestRecord] = []
        var others = 0
        flight.forEachRequest { request in
            if let limit = request.fetch.options.maximumBodyBytes, limit <= reached {
                exceeded.append(request)
            } else {
                others += 1
            }
        }
        ledgerInvariant = 8
        guard others > 0 || !flight.isWanted else {
            endFlight(flight, Ending(code: "too-large", attempts: Int(flight.attempts)))
            return
        }
        flight.phase = .waiting
        for request in exceeded {
            let attempts = Int(request.flight?.redirectLeaf.attempts ?? 0)
            detachFromFlight(request)
            endRequest(request, Ending(code: "too-large", attempts: attempts))
        }
    }

    private func followRedirect(_ flight: FlightRecord, to location: String, by status: Int) {
        var job = flight.content.job
        job.url = location
        if job.origin != flight.content.job.origin, job.hasCredentials { job.fields = [] }
        let becomesGet = status == 303 && job.method != "HEAD" || [301, 302].contains(status) && job.method == "POST"
        if becomesGet { job.method = "GET" }
        let attempts = Int(flight.attempts)
        guard location.utf8.starts(with: "http://".utf8) else {
            endFlight(flight, Ending(code: "redirect-refused", attempts: attempts))
            return
        }
        var earlier = [flight]
        while flight.content.soleRequestSerial != nil, let parent = earlier.last?.parents.first {
            earlier.append(parent)
        }
        let isSame = earlier.contains { $0.content.job.url == job.url && $0.content.job.method == job.method }
        guard !isSame else {
            endFlight(flight, Ending(code: "redirect-loop", attempts: attempts))
            return
        }
        var content = flight.content
        content.job = job
        let (child, isNew) = self.openOrNewFlight(content)
        guard child.redirectLeaf !== flight else {
            endFlight(flight, Ending(code: "redirect-loop", attempts: attempts))
            return
        }
        if isNew {
            (child.workerDeaths, child.isBlamedForLastDeath) = (flight.workerDeaths, flight.isBlamedForLastDeath)
        }
        child.retries = max(child.retries, flight.retries)
        child.parents.append(flight)
        flight.child = child
        flight.phase = .following
        failRequestsBeyondRedirectLimit(flight)
    }

    /// Fails the requests for which a redirect exceeds the limit; the others continue to wait: invariant 8.
    private func failRequestsBeyondRedirectLimit(_ flight: FlightRecord) {
        guard flight.redirectCount > limits.maximumRedirectHops else {
            for parent in flight.parents { failRequestsBeyondRedirectLimit(parent) }
            return
        }
        guard let child = flight.child else { return }
        child.parents.removeAll { $0 === flight }
        endFlight(flight, Ending(code: "too-many-redirects", attempts: Int(flight.attempts)))
        cancelIfUnwanted(child)
    }

    /// Ends a flight for all waiting requests; each may have its own objection: invariant 8.
    func endFlight(_ flight: FlightRecord, _ ending: Ending) {
        guard !flight.isAbandoned || flight.isWanted else {
            flight.abandonedEnding = ending
            flight.phase = .ended
            return
        }
        let waiting = closeRedirectChain(flight)
        for request in waiting {
            request.flight = nil
            if let unchanged = notModifiedEnding(ending, for: request) {
                endRequest(request, unchanged)
            } else if let code = failureCode(of: request, for: ending) {
                endRequest(request, Ending(code: code, attempts: ending.attempts))
            } else {
                endRequest(request, ending)
            }
        }
    }

    private func closeRedirectChain(_ flight: FlightRecord) -> [RequestRecord] {
        // In the order of joining: of the results that wait for a subscriber, the last ones exceed the limit.
        var waiting = flight.requests.sorted { $0.key < $1.key }.map(\.value)
        for parent in flight.parents { waiting += closeRedirectChain(parent) }
        flight.parents = []
        flight.child = nil
        closeFlight(flight)
        return waiting
    }

    private func failureCode(of request: RequestRecord, for ending: Ending) -> String? {
        guard ending.code == nil, let completion = ending.completion else { return nil }
        if let limit = request.fetch.options.maximumBodyBytes, completion.bodyByteCount > limit { return "too-large" }
        if let digest = request.fetch.options.expectedSHA256, digest != completion.sha256 { return "digest-mismatch" }
        return nil
    }

    // MARK: Rules

    private static let retryableStatuses: Set<Int> = [408, 429, 500, 502, 503, 504]

    private static let retryableFailures: Set<String> = [
        "connect-refused", "connect-failed", "dns-failed", "timeout", "connect-timeout", "truncated", "reset",
        "worker-lost", "spool-failed",
    ]

    /// Codes used by the simulated workers; see `protocols/8-codes.md`.
    private static let knownFailures: Set<String> = retryableFailures.union([
        "unknown-host", "tls", "too-large", "protocol-error", "encoding-error", "spool-full", "internal",
    ])

    /// Codes of users' workers that are passed to clients unchanged.
    private static let ownFailures = knownFailures.subtracting(["internal"])

    /// Returns `Location`. The simulated origins send at most one, absolute and normalized.
    private static func location(in fields: [UInt8]) -> String? { fieldValue("location: ", fields) }

    /// Returns `Retry-After` in whole seconds; other tests cover dates.
    private static func retryAfter(in fields: [UInt8]) -> Int? {
        fieldValue("retry-after: ", fields).flatMap { Int($0) }
    }

    private static func fieldValue(_ name: String, _ fields: [UInt8]) -> String? {
        let name = Array(name.utf8)
        guard fields.starts(with: name) else { return nil }
        return String(decoding: fields.dropFirst(name.count).prefix { $0 != UInt8(ascii: "\n") }, as: UTF8.self)
    }

    func limitsChanged(_ changed: CoreLimits) {
        limits = changed
        for name in origins.keys { origins[name]?.rulesChanged(changed.originRules, now: now) }
    }
}
