internal import EarshotHTTP
internal import EarshotWire

/// Delivery: an outcome becomes one terminal per listener, which is kept until its acknowledgement.
extension BrokerCore {
    // MARK: Settlement

    /// Ends an open request, which has left its flight, with an outcome. Without a listener the outcome is held, or
    /// written to disk for a durable request.
    ///
    /// - Parameter start: start of the transfer of a response; nil for a failure and for a response without a transfer.
    mutating func settle(
        _ interest: Handle<Interest>, with outcome: Handle<Outcome>, transferStartedAt start: Tick? = nil, now: Tick
    ) {
        times.requestEnded(askedAt: interests[interest].askedAt, transferStartedAt: start, now: now)
        if facilities.isReportingEnds { reportEnd(of: interest, outcome) }
        guard !isDurable(interest) else {
            record(interest, outcome)
            return
        }
        let listeners = presentListeners(of: interests[interest].handler)
        guard !listeners.isEmpty else {
            let waiting = handlers[interests[interest].handler].held + 1
            let kept = outcomes.mustSpill(outcome, waiting: waiting) ? lost(outcome) : outcome
            hold(interest, withinQuota(kept, of: interest, receivers: 1), now: now)
            return
        }
        let kept = mustWait(outcome, for: listeners) ? lost(outcome) : outcome
        let told = withinQuota(kept, of: interest, receivers: listeners.count)
        accountOutcome(of: interest, told)
        publish(interest, told, to: listeners)
    }

    /// Whether the body would have to leave memory for every listener.
    @inline(__always)
    private func mustWait(_ outcome: Handle<Outcome>, for listeners: [Handle<ClientSession>]) -> Bool {
        for client in listeners {
            guard clients[client].deliveries.isFull,
                outcomes.mustSpill(outcome, waiting: clients[client].deliveries.waiting + 1)
            else { return false }
        }
        return true
    }

    /// Counts a request as answered or failed in both ledgers.
    mutating func accountOutcome(of interest: Handle<Interest>, _ outcome: Handle<Outcome>) {
        let failure = outcomes[outcome].failure
        account(interest) { requests in
            if let failure { requests.failed[failure.rawValue, default: 0] += 1 } else { requests.answered += 1 }
        }
    }

    /// Queues the terminal of an accounted request for these clients, and sends it as far as their windows allow.
    /// Without clients the request is freed.
    mutating func publish(
        _ interest: Handle<Interest>, _ outcome: Handle<Outcome>, to listeners: [Handle<ClientSession>]
    ) {
        interests[interest].enter(.delivering)
        interests[interest].outcome = outcome
        outcomes.retain(outcome)
        // An owner that is not subscribed has nothing to acknowledge.
        if let owner = interests[interest].owner, !listeners.contains(owner) { interests[interest].owner = nil }
        for client in listeners { enqueueDelivery(of: interest, to: client) }
        guard !listeners.isEmpty else {
            forgetInterest(interest)
            return
        }
        for client in listeners {
            sendDue(to: client)
            if clients[client].deliveries.waiting > 0 { countWaiting(interest, for: client) }
        }
        freeIfOwed(interest)
    }

    /// Sends `FAILED … removed` to these clients, and frees the request if there are none.
    mutating func publishRemoval(of interest: Handle<Interest>, to listeners: [Handle<ClientSession>]) {
        guard !listeners.isEmpty else {
            interests[interest].enter(.delivering)
            forgetInterest(interest)
            return
        }
        publish(interest, outcomes.insert(Outcome(failure: .removed)), to: listeners)
    }

    // MARK: Grace

    /// Holds an outcome for the grace period, until the handler has a listener.
    private mutating func hold(_ interest: Handle<Interest>, _ outcome: Handle<Outcome>, now: Tick) {
        interests[interest].enter(.held)
        interests[interest].outcome = outcome
        outcomes.retain(outcome)
        quotas.spoolBytes(heldBytes(of: interest), of: principal(of: interest))
        handlers.outcomeHeld(of: interests[interest].handler)
        let waiting = handlers[interests[interest].handler].held
        if !outcomes.isSpoolFull, outcomes.mustSpill(outcome, waiting: waiting) { spill(outcome) }
        let subject = Timer.Subject.grace(interests.reference(to: interest))
        setTimer(now.advanced(byMilliseconds: limits.graceMilliseconds), subject)
    }

    /// Releases the outcome of a held request.
    mutating func unhold(_ interest: Handle<Interest>) {
        quotas.spoolBytes(-heldBytes(of: interest), of: principal(of: interest))
        handlers.outcomeReleased(of: interests[interest].handler)
        if let outcome = takeOutcome(of: interest) { release(outcome) }
    }

    /// Delivers a held outcome.
    mutating func deliverHeld(_ interest: Handle<Interest>, to listeners: [Handle<ClientSession>]) {
        quotas.spoolBytes(-heldBytes(of: interest), of: principal(of: interest))
        handlers.outcomeReleased(of: interests[interest].handler)
        let outcome = outcomeNumber(of: interest)
        accountOutcome(of: interest, outcome)
        publish(interest, outcome, to: listeners)
        release(outcome)
    }

    /// Ends a request without listeners and counts it as orphaned.
    mutating func orphan(_ interest: Handle<Interest>) {
        switch interests[interest].phase {
        case .open: detach(interest)
        case .held: unhold(interest)
        case .entering, .recording, .resting: releaseStored(interest)
        case .delivering: return
        }
        account(interest) { $0.orphaned += 1 }
        interests[interest].enter(.delivering)
        forgetInterest(interest)
    }

    // MARK: Deliveries

    /// Appends a terminal to the window of a client, without sending it.
    private mutating func enqueueDelivery(of interest: Handle<Interest>, to client: Handle<ClientSession>) {
        if interests[interest].outcome == nil, let number = outcomes.owedNumber(of: interest) {
            outcomes.retainOwed(number)
            let due = DueTerminal(owed: number)
            clients[client].deliveries.append(due, weight(of: due), counting: counted(outcomes.owed[number].outcome))
        } else {
            let due = DueTerminal(uncounted: interest)
            clients[client].deliveries.append(due, weight(of: due))
        }
        chargeWindow(of: client)
        watchForStall(client)
        interests[interest].outstanding += 1
        ledger.deliveries.due += 1
        ledger.deliveries.outstanding += 1
    }

    /// Delivers a terminal to one more client.
    mutating func deliver(_ interest: Handle<Interest>, to client: Handle<ClientSession>) {
        enqueueDelivery(of: interest, to: client)
        sendDue(to: client)
        if clients[client].deliveries.waiting > 0 { countWaiting(interest, for: client) }
        freeIfOwed(interest)
    }

    /// Whether a terminal is due to a client. O(terminals due to it).
    func isDue(_ interest: Handle<Interest>, to client: Handle<ClientSession>) -> Bool {
        let window = clients[client].deliveries
        if window.contains(DueTerminal(uncounted: interest)) || window.contains(DueTerminal(counted: interest)) {
            return true
        }
        return outcomes.owedNumber(of: interest).map { window.contains(DueTerminal(owed: $0)) } ?? false
    }

    /// Whether the client's backpressure stops transfers that only it requested.
    @inline(__always)
    func isClosed(_ client: Handle<ClientSession>) -> Bool { clients[client].deliveries.isClosed }

    /// Sends due terminals, and the replies between them, while the window is open. Closes a client with too many due.
    mutating func sendDue(to client: Handle<ClientSession>) {
        while true {
            if clients[client].replies.isBehind { sendReplies(to: client) }
            guard let (due, sequence) = clients[client].deliveries.take() else { break }
            switch due.kind {
            case .uncounted(let interest), .counted(let interest):
                let (terminal, body) = terminal(of: interest, sequence: sequence, to: client)
                if body == nil { noteReader(client, ofFileOf: due) }
                // Two calls, so that the usual case does not copy the terminal.
                if pulls.isEmpty {
                    actions.append(.client(.deliver(clients[client].id, terminal, body)))
                } else {
                    actions.append(.client(.deliver(clients[client].id, pulled(terminal, to: client), body)))
                }
            case .owed(let number):
                actions.append(
                    .client(.deliver(clients[client].id, terminal(ofOwed: number, sequence: sequence), nil)))
            case .withdrawn: continue
            }
        }
        closeIfOverdue(client)
    }

    /// Starts a watch over a client with many bytes due, unless one runs.
    private mutating func watchForStall(_ client: Handle<ClientSession>) {
        guard clients[client].deliveries.isUnwatched(stalledBytes: limits.stalledBytes) else { return }
        let serial = nextSerial()
        clients[client].deliveries.beginWatch(serial)
        let end = clock.advanced(byMilliseconds: limits.stallMilliseconds)
        setTimer(end, .stalled(client: client, stall: serial))
    }

    /// Closes a client that has acknowledged nothing during a watch; otherwise starts the next watch.
    mutating func stallEnded(_ client: Handle<ClientSession>) {
        let isReading = !pulls.isEmpty && pulls.takeActivity(of: client)
        if clients[client].deliveries.endWatch(stalledBytes: limits.stalledBytes, isReading: isReading) {
            close(client)
        } else {
            watchForStall(client)
        }
    }

    /// Disconnects a client that reads too slowly. Its session does not survive. Idempotent.
    mutating func close(_ client: Handle<ClientSession>) {
        guard !clients[client].isClosing else { return }
        clients[client].isClosing = true
        // Not at once, since the caller may be processing its requests. The timer lies in the future, so it fires in a
        // later pass.
        if clients[client].isAway { setLeaseTimer(clock.advanced(byNanoseconds: 1), of: client) }
        actions.append(.client(.close(clients[client].id, reason: "too-slow")))
    }

    /// Handles an ACK: the client has all terminals up to this sequence number.
    mutating func acknowledged(_ sequence: UInt64, by client: Handle<ClientSession>) {
        // An earlier connection may have received terminals that were not sent over this one yet.
        guard sequence <= clients[client].deliveries.lastReceived else {
            refuse(client, "bad-message", "ACK names a terminal that was not sent", .acknowledge(sequence))
            return
        }
        guard sequence > clients[client].deliveries.acknowledged else { return }
        let wasClosed = isClosed(client)
        while let due = clients[client].deliveries.first(upTo: sequence) {
            clients[client].deliveries.removeFirst(weight(of: due), counting: counted(due))
            ledger.deliveries.acknowledged += 1
            // A request without an owner belongs to all subscribers: the first acknowledgement frees its ID.
            if let interest = record(of: due), interests[interest].owner == nil, !keepsFailure(of: interest, client) {
                unlist(interest)
            }
            settle(due, by: client)
        }
        chargeWindow(of: client)
        if !pulls.isEmpty { pulls.acknowledged(sequence, by: client) }
        sendDue(to: client)
        if wasClosed, !isClosed(client) { queue.clientOpened(client) }
    }

    /// Blocks the window at a terminal that the socket did not take, until `clientWritable`.
    public mutating func deliveryRefused(_ sequence: UInt64, by id: ClientID) {
        guard let client = clients.number(of: id) else { return }
        clients[client].deliveries.refuse(sequence)
        if !answeredRemovals.isEmpty { withdrawRefused(of: client) }
    }

    /// Resumes delivery after the socket became writable: missed progress first, then terminals.
    public mutating func clientWritable(_ id: ClientID) {
        guard let client = clients.number(of: id) else { return }
        tellMissedProgress(to: client)
        if !pulls.isEmpty { pulls.unblock(client) }
        guard clients[client].deliveries.unblock() else { return }
        sendDue(to: client)
        if !isClosed(client) { queue.clientOpened(client) }
    }

    /// Settles a terminal that a client does not receive, because the client left or withdrew it.
    mutating func lose(_ due: DueTerminal, by client: Handle<ClientSession>) {
        ledger.deliveries.lost += 1
        settle(due, by: client)
    }

    /// Releases a terminal that has left a window.
    private mutating func settle(_ due: DueTerminal, by client: Handle<ClientSession>) {
        ledger.deliveries.outstanding -= 1
        switch due.kind {
        case .uncounted(let interest), .counted(let interest):
            settled(interest, outcomes[outcomeNumber(of: interest)].failure, by: client)
        case .owed(let number): deliveryEnded(ofOwed: number, by: client)
        case .withdrawn: preconditionFailure("a withdrawn terminal ends twice")
        }
    }

    /// Ends one delivery. The owner's delivery frees the ID, even if other clients have not acknowledged theirs.
    mutating func settled(_ interest: Handle<Interest>, _ failure: FailureCode?, by client: Handle<ClientSession>) {
        interests[interest].outstanding -= 1
        if interests[interest].owner == client {
            interests[interest].owner = nil
            unlist(interest)
        }
        guard interests[interest].outstanding == 0 else {
            freeIfOwed(interest)
            return
        }
        if isDurable(interest), !isDoomed(interest) {
            takeBack(interest, after: failure)
        } else {
            forgetInterest(interest)
        }
    }

    /// Record of a terminal's request; nil if it was freed.
    @inline(__always)
    private func record(of due: DueTerminal) -> Handle<Interest>? {
        switch due.kind {
        case .uncounted(let interest), .counted(let interest): interest
        case .owed(let number): outcomes.owed[number].interest
        case .withdrawn: nil
        }
    }

    /// Handler and ID of a terminal's request; nil if it was withdrawn.
    @inline(__always)
    func request(of due: DueTerminal) -> (Handle<HandlerEntry>, RequestID)? {
        switch due.kind {
        case .uncounted(let interest), .counted(let interest):
            (interests[interest].handler, interests[interest].request)
        case .owed(let number): (outcomes.owed[number].handler, outcomes.owed[number].request)
        case .withdrawn: nil
        }
    }

    /// Spool file named in a terminal.
    @inline(__always)
    func file(of due: DueTerminal) -> String? {
        switch due.kind {
        case .uncounted(let interest), .counted(let interest): namedFile(of: interest)
        case .owed, .withdrawn: nil
        }
    }

    /// Bytes of a terminal in the window. Constant while the entry is in the window.
    @inline(__always)
    func weight(of due: DueTerminal) -> DeliveryWindow.Weight {
        switch due.kind {
        case .uncounted(let interest), .counted(let interest):
            guard let response = outcomes[outcomeNumber(of: interest)].response else { return DeliveryWindow.Weight() }
            let bodies = interests[interest].isWarm ? 0 : response.length
            return DeliveryWindow.Weight(bodies: bodies, areInMemory: bodies <= CoreLimits.memoryBodyBytes)
        case .owed(let number): return DeliveryWindow.Weight(texts: outcomes.owedExtras[number]?.byteCount ?? 0)
        case .withdrawn: return DeliveryWindow.Weight()
        }
    }

    // MARK: Records

    /// The outcome of a request that has one.
    @inline(__always)
    func outcomeNumber(of interest: Handle<Interest>) -> Handle<Outcome> {
        guard let number = interests[interest].outcome else {
            preconditionFailure("request \(interest) is \(interests[interest].phase) and has no outcome")
        }
        return number
    }

    /// Takes the outcome from a request. The caller releases it.
    mutating func takeOutcome(of interest: Handle<Interest>) -> Handle<Outcome>? {
        let number = interests[interest].outcome
        interests[interest].outcome = nil
        return number
    }

    /// Frees a request's record and releases everything that it holds.
    mutating func forgetInterest(_ interest: Handle<Interest>) {
        unlist(interest)
        let record = interests[interest]
        if let outcome = record.outcome { release(outcome) }
        if let number = record.extras {
            if extras[number].fields != nil { releaseHead(of: .joined(interest)) }
            extras.remove(number)
        }
        interests.remove(interest)
        handlers.release(record.handler)
        dropHandlerIfIdle(record.handler)
    }

    /// The terminal of a request in phase `delivering` or `recording`, and its inline body.
    ///
    /// - Parameter client: the receiver; nil if the terminal is written to disk. Only the owner of the request learns of
    ///   its redirects, because their URLs may be secret.
    @inline(__always)
    func terminal(
        of interest: Handle<Interest>, sequence: UInt64, to client: Handle<ClientSession>? = nil
    ) -> (Terminal, BodyID?) {
        let record = interests[interest]
        let outcome = outcomes[outcomeNumber(of: interest)]
        var streams = false
        var isInline = false
        var tag: String?
        var redirects: [Terminal.Redirect] = []
        if let number = record.extras {
            isInline = extras[number].delivery == .inline
            streams = extras[number].streams && !isInline
            tag = extras[number].tag
            if let owner = record.owner, owner == client { redirects = extras[number].redirects }
        }
        let end: Terminal.Outcome
        if let code = outcome.failure {
            var failure = Terminal.Failure(code: code.rawValue, detail: outcome.detail ?? code.sentence)
            failure.attempts = outcome.attempts
            failure.retryAfterSeconds = outcome.retryAfterSeconds
            failure.url = outcome.url
            if let response = outcome.response {
                failure.status = code == .httpStatus ? response.status : nil
                failure.response = Terminal.Response(
                    response, attempts: outcome.attempts, to: record, redirects, isInline: isInline, streams: streams,
                    in: workerLimits.spool)
            }
            end = .failed(failure)
        } else {
            guard let response = outcome.response else {
                preconditionFailure("outcome of request \(interest) is neither a failure nor a response")
            }
            end = .result(
                status: response.status,
                Terminal.Response(
                    response, attempts: outcome.attempts, to: record, redirects, isInline: isInline, streams: streams,
                    in: workerLimits.spool))
        }
        let terminal = Terminal(
            handler: handlers[record.handler].id, request: record.request, sequence: sequence, tag: tag,
            isDurable: isDurable(interest), outcome: end)
        return (terminal, record.isWarm ? nil : outcome.response?.body)
    }
}

extension Terminal.Response {
    /// Response as one request receives it.
    ///
    /// - Parameters:
    ///   - redirects: the redirects that the receiver may see.
    ///   - isInline: whether the body of a file goes into the message.
    ///   - streams: whether the request reads the body while it grows.
    ///   - spool: the folder of the spool's files.
    fileprivate init(
        _ response: borrowing Outcome.Response, attempts: Int, to request: borrowing Interest,
        _ redirects: consuming [Terminal.Redirect], isInline: Bool, streams: Bool, in spool: String
    ) {
        self.init(url: response.url)
        self.redirects = redirects
        source =
            response.source
            ?? (request.isShared
                ? .shared : response.isOfNode ? .node : response.resumedBytes > 0 ? .resumed : .network)
        length = response.length
        if source == .resumed { resumedBytes = min(response.resumedBytes, length) }
        sha256 = response.sha256
        if let name = response.file, !request.isWarm {
            file = spool + "/" + name
            self.isInline = isInline
            if streams, let attempt = response.generation { generation = Generation(attempt) }
        }
        queuedMilliseconds = response.startedAt.milliseconds(since: request.askedAt)
        elapsedMilliseconds = response.endedAt.milliseconds(since: request.askedAt)
        self.attempts = attempts
        httpFields = response.fields
    }
}
