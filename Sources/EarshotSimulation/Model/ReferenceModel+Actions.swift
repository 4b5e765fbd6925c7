internal import DequeModule
internal import EarshotCore
internal import EarshotWire

/// Checks the core's actions against the expectations. `ReferenceModel` calls it for each action of an event.
extension ReferenceModel {
    func checkAction(_ action: Action, after event: BrokerEvent) {
        switch action {
        case .client(.send(let id, let message)): checkSentMessage(message, to: id)
        case .client(.replyToNumberedMessage(let id, let message, let json, let number)):
            guard let json else { return checkSentMessage(message, to: id, answering: number) }
            checkQueryAnswer(json, to: id, answering: number)
        case .client(.answerQuery(let id, _, let json)): checkQueryAnswer(json, to: id)
        case .client(.deliverTerminal(let id, let terminal, let body)):
            let isEndOfPass = if case .dispatch = event { true } else { false }
            checkDelivery(terminal, body, to: id, inPass: isEndOfPass)
        case .client(.sendBodyPiece(let id, _)): recordViolation(2, "client \(id.rawValue) pulls no bodies")
        case .client(.close(let id, _)):
            guard let client = connections[id] ?? awaySessions.first(where: { $0.connection == id }) else { return }
            let isSilent =
                !client.isOpen && now.milliseconds(since: client.connectedAt) >= limits.helloTimeoutMilliseconds
            expectedSessionCloses.remove(client.id)
            recordSessionClosing(id)
            expect(
                isSilent
                    || maximumWaitingTerminals(for: client)
                        > min(limits.maximumDueTerminalsPerClient, limits.maximumDueOutcomesPerClient)
                    || client.waitingTextBytes >= limits.maximumDueHeaderBytesPerClient
                    || client.unsentReplies > limits.maximumRepliesPerLeasedSession
                    || isSpoolFull && mustWaitInSpool(for: client), 11,
                "client \(id.rawValue) is closed with \(client.waitingTerminalCount) terminals waiting")
        case .worker(.send(let id, .job(let job))), .worker(.sendJob(let id, let job, _)),
            .worker(.resumeJob(let id, let job, _)):
            checkJobStart(job, at: id)
        case .worker(.send(let id, .cancelAttempt(let attempt))):
            guard expectedCancellations.remove(attempt) == nil else { return }
            recordViolation(4, "\(attempt) of worker \(id.rawValue) is cancelled although it is wanted")
        case .worker(.send(_, .raiseBodyLimit(let attempt, let maximumBodyBytes))):
            guard let (pinged, allowed) = expectedRaise, pinged == attempt, allowed == maximumBodyBytes else {
                recordViolation(8, "\(attempt) is raised to \(maximumBodyBytes ?? -1) bytes")
                return
            }
            expectedRaise = nil
        case .worker(.send(let id, .ping)): pingSent(id)
        case .worker(.send(let id, .drain)): workerDrained(id)
        case .supervisor(.killWorker(let process)): checkProcessKill(process: process)
        case .worker(.send), .spool(.removeStaleAttemptFiles), .supervisor: break
        case .worker(.kill(let id)): checkWorkerKill(id)
        case .worker(.close(let id)): checkWorkerClosing(id)
        case .spool(.assignPart(let file, let name)):
            guard let part = keptParts.removeValue(forKey: file) else {
                recordViolation(12, "\(file) is given away and was not kept")
                return
            }
            assignedPart = (name, part)
        // The file of a running attempt that has begun another one.
        case .spool(.removePart(let file)) where !SpoolName.isKeptPart(file): break
        case .spool(.removePart(let file)):
            expect(keptParts.removeValue(forKey: file) != nil, 12, "\(file) is removed and was not kept")
        case .spool(.recordPart): break
        case .spool(.storePart(let file)):
            expect(keptParts.removeValue(forKey: file) != nil, 12, "\(file) is stored and was not kept")
        case .spool(.spillBody(let body, let file)):
            expect(!isSpoolFull, 11, "a body is to be written while the spool is full")
            expect(bodies.remove(body) != nil, 12, "body \(body.rawValue) is spilled after its release")
            spilledFiles[body] = file
            files.insert(file)
        case .spool(.releaseBody(let body)):
            expect(bodies.remove(body) != nil, 12, "body \(body.rawValue) is released twice")
        case .spool(.writeBody(let body, let file)):
            expect(
                bodies.contains(body) || spilledFiles[body] != nil, 12,
                "body \(body.rawValue) is to be written after its release")
            fileCreated(file)
        case .cache:
            recordViolation(13, "a cache is asked that is not there: \(action)")
        case .durable:
            recordViolation(13, "a disk is asked that is not there: \(action)")
        case .log: recordViolation(13, "the log gets attempts: \(action)")
        case .spool(.releaseFile(let file)):
            audiences[file] = nil
            expect(files.remove(file) != nil, 12, "file \(file) is released twice")
        }
    }

    // MARK: Messages

    private func checkQueryAnswer(_ json: [UInt8], to id: ClientID, answering number: UInt64 = 0) {
        expect(!json.isEmpty, 1, "client \(id.rawValue) gets an empty answer")
        matchReply("an answer", to: id, answering: number) { $0.isAnswer }
    }

    /// - Parameter number: number of the message that it answers; 0 for none.
    private func checkSentMessage(_ message: BrokerMessage, to id: ClientID, answering number: UInt64 = 0) {
        guard let client = connections[id] else {
            recordViolation(2, "a connection that is gone is told \(message)")
            return
        }
        let message = principalQualified(message, of: client)
        switch message {
        case .progress(let progress):
            let name = RequestName(handler: progress.handler, request: progress.request)
            expect(
                requestsByName[name]?.phase == .open && subscribers(of: progress.handler).contains(client.id),
                2, "client \(id.rawValue) is told the progress of \(name)")
            expect(
                progress.filePath == nil || requestsByName[name]?.fetch.options.streams == true, 2,
                "client \(id.rawValue), which does not stream \(name), is told of \(progress.filePath ?? "")")
            if let file = progress.filePath { growthReported(file, progress.generation, to: client) }
        case .bodyData: recordViolation(2, "client \(id.rawValue) pulls no bodies")
        case .goodbye: expect(isDraining, 1, "client \(id.rawValue) is told goodbye")
        case .terminal: recordViolation(1, "client \(id.rawValue) gets a terminal that is not counted")
        case .fileTaken(let sequence, let path):
            matchReply("\(message)", to: id, answering: number) { expected in
                guard case .taken(sequence, let right) = expected else { return false }
                expect(path == right, 15, "client \(id.rawValue) is told \(path ?? "to copy"), not \(right ?? "that")")
                return true
            }
        case .welcome, .fetchAccepted, .handlersRemoved, .requestRemoved, .queryAnswer, .settingChanged, .error, .ok:
            matchReply("\(message)", to: id, answering: number) { isExpectedReply(message, $0) }
        }
    }

    /// Matches a message to a client with the expected reply to this event, or with one that is sent again.
    private func matchReply(_ reported: String, to id: ClientID, answering number: UInt64, isRight: (Reply) -> Bool) {
        let client = connections[id]
        if let expected = expectedReplies.removeValue(forKey: id) {
            expect(isRight(expected), 1, "client \(id.rawValue) is told \(reported), not \(expected)")
            expect(
                client.map { $0.currentMessageNumber == number } ?? (number == 0), 1,
                "client \(id.rawValue) is told \(reported) to its message \(number)")
            if case .welcome = expected { return }
            if let client, client.leaseMilliseconds > 0 { client.keepReply(expected, isSent: true) }
        } else if let client, let next = client.nextReply {
            if client.lastSequence < next.precedingSequence { client.skipWithdrawnNumbers() }
            expect(
                isRight(next.reply) && next.number == number && next.precedingSequence <= client.lastSequence, 1,
                "client \(id.rawValue) is told \(reported), and \(next.reply) is next behind terminal \(next.precedingSequence)"
            )
            client.markNextReplySent()
        } else {
            recordViolation(1, "client \(id.rawValue) is told \(reported), which answers nothing")
        }
    }

    private func isExpectedReply(_ message: BrokerMessage, _ expected: Reply) -> Bool {
        switch (message, expected) {
        case (.welcome(let welcome), .welcome(let lease, let token, let lastReceived)):
            welcome.broker == instance && welcome.leaseMilliseconds == lease
                && welcome.lastReceivedNumber == lastReceived
                && welcome.token == (lease > 0 ? token : nil)
        case (.handlersRemoved(let pattern, let count), .removed(let pinged, let right)):
            pattern == pinged && count == right
        case (.requestRemoved(let handler, let request, let was), .requestRemoved(let pinged, let of, let right)):
            handler == pinged && request == of && was == right
        case (.settingChanged(let setting), .changed(let words)): setting.words == words
        case (.error(let error), .error(let code)): error.code == code
        case (.ok, .ok): true
        default: false
        }
    }

    // MARK: Terminals

    private func checkDelivery(_ terminal: Terminal, _ body: BodyID?, to id: ClientID, inPass: Bool) {
        let handler = connections[id].map { principalQualified(terminal.handler, of: $0) } ?? terminal.handler
        let name = RequestName(handler: handler, request: terminal.request)
        if inPass, case .failed(let failure) = terminal.outcome, failure.code == "unsupported-scheme" {
            endUnservedRequest(name)
        }
        guard let client = connections[id] else {
            recordViolation(2, "a terminal of \(name) goes to client \(id.rawValue), which is gone")
            return
        }
        if let request = popNextRedelivery(of: client) {
            expect(request.name == name, 1, "client \(id.rawValue) is sent \(name) again, and \(request.name) is next")
            recordSentTerminal(request, terminal, body, to: client)
            return
        }
        guard let request = client.unsentTerminals[name]?.first else {
            checkForeignTerminal(terminal, to: client)
            let isRemoved = client.removedRequests.contains(name) || client.removedHandlers.contains(name.handler)
            recordViolation(
                isRemoved ? 2 : 1,
                isRemoved
                    ? "a terminal of \(name) goes to client \(id.rawValue) after its removal was answered"
                    : "client \(id.rawValue) gets a terminal of \(name) that is not due")
            return
        }
        client.unsentTerminals[name]?.removeFirst()
        if client.unsentTerminals[name]?.isEmpty == true { client.unsentTerminals[name] = nil }
        client.dueTerminalCount -= 1
        recordSentTerminal(request, terminal, body, to: client)
    }

    /// Removes and returns the next terminal to send again. Consumes the sequence numbers of withdrawn ones before it.
    private func popNextRedelivery(of client: SessionRecord) -> RequestRecord? {
        while let first = client.redeliveries.popFirst() {
            if let first { return first }
            client.unacknowledgedTerminals.append(nil)
        }
        return nil
    }

    private func recordSentTerminal(
        _ request: RequestRecord, _ terminal: Terminal, _ body: BodyID?, to client: SessionRecord
    ) {
        let id = client.connection
        client.unacknowledgedTerminals.append(request)
        expect(
            terminal.sequence == client.lastSequence, 1,
            "terminal \(terminal.sequence) goes to client \(id.rawValue), \(client.lastSequence) is next")
        if let next = client.nextReply {
            expect(
                next.precedingSequence >= terminal.sequence, 1,
                "terminal \(terminal.sequence) goes to client \(id.rawValue) before the reply \(next.reply)")
        }
        expect(!client.isBlocked, 11, "client \(id.rawValue) is sent a terminal while its socket is full")
        expect(
            client.unacknowledgedTerminals.count <= client.window, 11,
            "client \(id.rawValue) has \(client.unacknowledgedTerminals.count) unacknowledged terminals")
        guard let ending = request.ending else { return }
        checkTerminal(terminal, body, of: request, against: ending)
        if let file = announcedFileName(ending, for: request) {
            audiences[file, default: FileAudience()].addSession(client)
        }
    }

    private func checkTerminal(
        _ terminal: Terminal, _ body: BodyID?, of request: RequestRecord, against ending: Ending
    ) {
        let reported: String
        let ending = decidedEnding(ending, of: request, by: terminal)
        switch terminal.outcome {
        case .result(let status, _):
            reported = "\(status)"
            expect(
                ending.code == nil && ending.completion?.status == status, 1,
                "\(request.name) is told \(status), not \(ending.code ?? "a result")")
        case .failed(let failure):
            reported = failure.code
            expect(
                ending.code == failure.code, failure.code == "cancelled" ? 5 : ending.code == "queue-full" ? 11 : 1,
                "\(request.name) is told \(failure.code), not \(ending.code ?? "a result")")
            expect(
                failure.attempts == ending.attempts, 1, "\(request.name) is told \(failure.attempts) attempts")
            expect(
                (failure.retryAfterSeconds ?? 0 > 0) == (failure.code == "origin-cooling"), 1,
                "\(request.name), \(failure.code), is told to come after \(failure.retryAfterSeconds ?? 0) s")
        }
        let isBodyDue = ending.completion != nil && !request.fetch.options.isCacheWarming
        let options = request.fetch.options
        let file = spoolFileName(of: ending, for: request)
        let isFiled = file != nil
        let spilled = isFiled ? nil : ending.body.flatMap { self.spilledFiles[$0] }
        expect(
            body == (isBodyDue && spilled == nil && !isFiled ? ending.body : nil), 1,
            "\(request.name), \(reported), comes with another's body")
        if isBodyDue, ending.code == nil, let completion = ending.completion, completion.bodyByteCount > 0,
            completion.sha256 != nil
        {
            expect(options.delivery != .file || isFiled, 1, "\(request.name) wants a file and gets none")
            expect(
                !isFiled || terminal.response?.isInline == (options.delivery == .inline), 1,
                "\(request.name) gets its file in another form than it wants")
        }
        if let body {
            expect(bodies.contains(body), 12, "\(request.name) comes with a body that was released")
        }
        if !isFiled, spilled == nil {
            expect(terminal.response?.bodyFilePath == nil, 1, "\(request.name) names a file")
        }
        if let file = file ?? spilled, isBodyDue {
            expect(
                terminal.response?.bodyFilePath?.hasSuffix("/" + file) == true, 1,
                "\(request.name) names another's file")
            expect(files.contains(file), 12, "\(request.name) names a file that was released")
        }
        guard let completion = ending.completion else {
            expect(terminal.response == nil, 1, "\(request.name), \(reported), comes with a response")
            return
        }
        guard let response = terminal.response else {
            recordViolation(1, "\(request.name), \(reported), comes without its response")
            return
        }
        let source =
            request.hasJoinedFlight ? Terminal.Source.sharedFlight : ending.resumedBytes > 0 ? .resumed : .network
        expect(
            response.url == ending.url && response.bodyByteCount == completion.bodyByteCount
                && response.sha256 == completion.sha256
                && response.source == source && response.resumedBytes == (source == .resumed ? ending.resumedBytes : 0)
                && response.attempts == ending.attempts && response.httpFields == completion.httpFields,
            1, "\(request.name), \(reported), comes with another's response: \(response)", kind: "another's response")
        // The generation is that of the resumed attempt, otherwise of the attempt that fetched the whole body.
        if let generation = response.generation, ending.code == nil {
            expect(
                (generation == Generation(completion.attempt)) != (ending.resumedBytes > 0), 1,
                "\(request.name), \(reported), is called bytes of \(generation), which \(completion.attempt) brought",
                kind: "another's bytes")
        }
    }

    // MARK: Jobs

    private func checkJobStart(_ job: Job, at id: WorkerID) {
        let content = JobContent(method: job.method, url: job.url, fields: job.httpFields)
        guard let worker = pool[id], worker.takesWork else {
            recordViolation(3, "\(content) goes to worker \(id.rawValue), which takes no work")
            return
        }
        expect(job.attempt.broker == instance, 6, "\(job.attempt) names another broker")
        guard let flight = openFlight(ofJob: job.attempt.flight, content) else { return }
        let scheme = flight.content.job.scheme
        expect(worker.serves(scheme), 14, "\(content) of \(scheme) goes to a worker of \(worker.schemes.sorted())")
        switch flight.phase {
        case .waiting, .pausing: break
        case .running, .following, .ended, .over:
            recordViolation(3, "\(job.attempt) of \(content) starts while it is \(flight.phase)")
            return
        }
        expect(mayStartTransfers, 9, "\(content) starts before all workers of an earlier broker are ready or dead")
        expect(flight.isWanted, 4, "\(job.attempt) of \(content) starts without a request")
        expect(job.attempt.attempt == flight.attempts + 1, 6, "\(job.attempt) follows attempt \(flight.attempts)")
        expect(
            worker.leases.count < worker.slots, 11,
            "worker \(id.rawValue) gets more than its \(worker.slots) slots hold")
        // A worker that sends any other message than PONG for so long counts as alive.
        let isIsolating = worker.isolation.map { now < $0.end.advanced(byMilliseconds: limits.pingTimeoutMilliseconds) }
        expect(isIsolating != true, 8, "\(content) goes to a worker that isolates a suspect")
        clearSuspect(of: worker)
        if worker.leases.isEmpty { worker.hasSuspectsOnly = flight.requiresIsolation }
        if flight.requiresIsolation {
            let servesSingleRequest = worker.leases.isEmpty
            expect(
                servesSingleRequest || !flight.isBlamedForLastDeath && worker.hasSuspectsOnly, 8,
                "suspect \(content) goes to a worker with other transfers")
            let further = flight.workerDeaths - limits.workerDeathsBeforeSuspicion
            let end = now.advanced(byMilliseconds: limits.baseIsolationMilliseconds << further)
            worker.isolation = (job.attempt, end)
        } else {
            worker.hasSuspectsOnly = false
        }
        checkSizeLimit(job, flight)
        checkStartPermitted(of: flight)
        let isHigh = highestServedClass(of: flight) == .high
        if scopes[ScopeName(flight.content.job)]?.startTransfer(flight, now: now) != true {
            recordViolation(9, "\(content) starts while its origin cools or is probed")
        }
        flight.attempts = job.attempt.attempt
        expect(
            job.route.deliversErrorResponses == flight.content.deliversErrors, 1, "\(content) has the errors of another"
        )
        expect(content.condition == flight.commonCondition, 1, "\(content) is sent under a condition of some requests")
        flight.attemptCondition = content.condition
        flight.attempt = job.attempt
        flight.phase = .running(id)
        flight.maximumBodyBytes = job.maximumBodyBytes
        flight.isRequeued = false
        let origin = flight.content.job.origin
        if let record = origins[origin] { checkSlowStart(of: record) }
        origins[origin]?.transferStarted(isHigh: isHigh, now: now)
        worker.leases[job.attempt] = PoolRecord.Lease(
            origin: origin, isHigh: isHigh, maximumBodyBytes: job.maximumBodyBytes,
            content: flight.content, resumedBytes: job.resume?.availableBytes ?? 0,
            principal: principal(of: flight), flight: flight)
        checkPart(of: job, flight, at: worker)
    }

    /// Invariant 12: a stored partial body is given only to its own flight, unchanged.
    private func checkPart(of job: Job, _ flight: FlightRecord, at worker: PoolRecord) {
        let assigned = assignedPart
        self.assignedPart = nil
        worker.leases[job.attempt]?.file = assigned?.name
        worker.leases[job.attempt]?.fields = assigned?.part.responseFields ?? []
        worker.leases[job.attempt]?.sessionsKnowingFile = assigned?.part.readerSessions ?? []
        worker.leases[job.attempt]?.continuesKnownPart = assigned?.part.isKnownToEarlierSession ?? false
        guard job.resume != nil || assigned != nil else { return }
        guard let assigned, let resume = job.resume, assigned.part.content == flight.content,
            resume.availableBytes == assigned.part.bytes,
            assigned.name == "\(worker.pid)-\(job.attempt).part", flight.content.job.method == "GET"
        else {
            recordViolation(
                12, "\(job.attempt) of \(flight.content.job) goes on with \(assigned.map { "\($0)" } ?? "nothing")")
            return
        }
        expect(
            resume.availableBytes <= job.maximumBodyBytes ?? .max, 8, "\(job.attempt) goes on behind what it may bring")
    }

    /// Returns the open flight of a JOB. The first JOB determines its number.
    private func openFlight(ofJob id: UInt64, _ content: JobContent) -> FlightRecord? {
        if let flight = flightsByID[id] {
            expect(flight.content.job == content, 3, "flight \(id) is \(flight.content.job) and \(content)")
            return flight
        }
        guard let flight = unnamedFlights[content]?.first else {
            let isOpen = openFlights.keys.contains { $0.job == content }
            recordViolation(
                isOpen ? 3 : 4,
                isOpen ? "flight \(id) is a second one for \(content)" : "flight \(id), \(content), is wanted by nobody"
            )
            return nil
        }
        removeUnnamedFlight(flight)
        flight.id = id
        flightsByID[id] = flight
        return flight
    }

    /// Invariant 8: the size limit of one request must not truncate the body of another.
    private func checkSizeLimit(_ job: Job, _ flight: FlightRecord) {
        expect(
            job.maximumBodyBytes == largestSize(of: flight), 8,
            "\(flight.content.job) is cut off at \(job.maximumBodyBytes ?? -1) bytes")
    }

    /// Invariants 7 and 9: the flight's class permits the slot it takes, and its origin has capacity.
    private func checkStartPermitted(of flight: FlightRecord) {
        let job = flight.content.job
        guard let origin = origins[job.origin] else {
            recordViolation(9, "\(job) has no origin")
            return
        }
        let priority = highestServedClass(of: flight)
        let isReturned = flight.isRequeued || flight.requiresIsolation
        let isHigh = priority == .high || isReturned
        expect(
            origin.hasRoom(true), 9,
            "\(job.origin) has \(origin.runningTransfers) transfers of \(origin.limit), and one more starts")
        expect(origin.hasRoom(isHigh), 7, "\(job) takes the last slot of its origin, kept for high")
        expect(
            origin.mayStart(now: now), 9,
            "\(job) starts \(origin.spacingEnd.milliseconds(since: now)) ms too soon after the last from its origin")
        expect(priority != nil || isReturned, 7, "\(job) starts only for clients whose window is full")
        let slots = slotCounts(for: job.scheme)
        expect(
            isHigh || slots.lower < slots.total - slots.total / 4, 7,
            "\(job) starts beside \(slots.lower) of \(slots.total), the rest is kept for high")
        guard !isReturned, let principal = principal(of: flight) else { return }
        let transfers = transfersOfPrincipals()
        expect(
            !isAtQuota(principal, transfers), 11,
            "\(job) starts beside \(transfers[principal] ?? 0) transfers of \(principal), which may have \(limits.maximumTransfersPerUser)",
            kind: "a user's transfer beyond the quota")
    }

    /// Returns the highest class among a flight's requests whose owner can be served; nil without one.
    func highestServedClass(of flight: FlightRecord) -> PriorityClass? {
        var highest: PriorityClass?
        flight.forEachRequest { request in
            if let client = request.owner.flatMap({ sessions[$0] }),
                !client.mayStartWork(withoutLast: outstandingRemovalTerminals[client.connection] ?? 0)
            {
                return
            }
            highest = max(highest ?? .background, request.priority)
        }
        return highest
    }

    /// Invariant 8: no request waits longer for a cool-down than its `wait-ms`. O(open flights).
    private func checkCoolDownWaits() {
        for flight in openFlights.values where flight.phase == .waiting && !flight.requiresIsolation {
            guard let scope = scopes[ScopeName(flight.content.job)], case .coolingDown = scope.state,
                !scope.wasIdleDuringCoolDown, now < scope.earliestNextStart
            else { continue }
            flight.forEachRequest { request in
                guard let limit = request.fetch.options.coolDownWaitMilliseconds else { return }
                if let (since, attempts, recoveries) = request.coolDownWaitStart, attempts == flight.attempts,
                    recoveries == scope.endedCoolDowns
                {
                    expect(
                        now.milliseconds(since: since) <= limit, 8,
                        "\(request.name) waits for a cool-down since \(now.milliseconds(since: since)) ms")
                } else {
                    request.coolDownWaitStart = (now, flight.attempts, scope.endedCoolDowns)
                }
            }
        }
    }

    /// Checks that after `dispatch` no flight waits that could run: no starvation. O(open flights).
    func auditProgress() -> Violation? {
        guard !isDraining, mayStartTransfers, !mayStartSlowly else { return violation }
        let schemes = Set(openFlights.keys.map(\.job.scheme))
        let slots = Dictionary(uniqueKeysWithValues: schemes.map { ($0, self.slotCounts(for: $0)) })
        // While a worker isolates a suspect or a suspect waits, free slots may be withheld.
        guard !pool.values.contains(where: { $0.isolation != nil }),
            !openFlights.values.contains(where: { $0.phase == .waiting && $0.requiresIsolation })
        else { return violation }
        checkCoolDownWaits()
        let transfers = transfersOfPrincipals()
        for flight in openFlights.values where flight.phase == .waiting && !flight.requiresIsolation {
            guard case .serving? = scopes[ScopeName(flight.content.job)]?.state,
                let priority = highestServedClass(of: flight),
                let origin = origins[flight.content.job.origin], origin.hasSpacingElapsed(now: now),
                let (total, free, lower) = slots[flight.content.job.scheme], free > 0
            else { continue }
            if let principal = principal(of: flight), isAtQuota(principal, transfers) { continue }
            let isHigh = priority == .high
            expect(
                !origin.hasRoom(isHigh) || !(isHigh || lower < total - total / 4), 1,
                "\(flight.content.job), \(priority.name), waits while \(free) of \(total) slots are free",
                kind: "a request waits while slots are free")
        }
        return violation
    }
}
