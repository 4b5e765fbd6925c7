internal import EarshotHTTP
internal import EarshotWire

/// What waits too long for memory: terminals for a client whose window is full, bodies for a handler's first listener.
///
/// A terminal that waits in the shell's file is a `WaitingTerminal` in memory. It belongs to the clients who wait for
/// it alone: the outcome goes when nobody else holds it, and the request's record when its ID is free too.
extension BrokerCore {
    /// About what a terminal takes in memory besides its fields, its URL and its body: the records of the request and
    /// of the outcome, their strings, and their places in tables.
    private static let terminalBytes = 600

    // MARK: Terminals

    /// Moves the newest terminal that waits for a client out of memory, unless all that wait there could be as heavy as
    /// the heaviest of them and stay within the bound.
    mutating func limitWaiting(_ interest: Int32, for client: Int32) {
        let outcome = interests[interest].outcome
        guard outcome >= 0 else { return }
        let waiting = clients[client].deliveries.waiting
        guard !isSpoolFull else {
            // Others had room: for them the result is good, and for this one there is no place left.
            if mustSpill(outcome, waiting: waiting) { close(client) }
            return
        }
        let bytes = memoryBytes(of: outcome)
        guard !clients[client].deliveries.keepsLast(bytes: bytes, within: limits.waitingTerminalBytes) else { return }
        if isDurable(interest), durables[interest]?.hasResult != true {
            // Nowhere but here: if nobody acknowledges it is written once more.
            if mustSpill(outcome, waiting: waiting) { spill(outcome) }
        } else {
            putAside(interest, for: client)
        }
    }

    @inline(__always)
    private func memoryBytes(of outcome: Int32) -> Int {
        guard let response = outcomes[outcome].response else { return Self.terminalBytes }
        let body = response.body == nil ? 0 : response.length
        return Self.terminalBytes + response.fields.count + response.url.utf8.count + body
    }

    /// Has the newest terminal that is due to a client wait in the file, once for all who wait for it.
    private mutating func putAside(_ interest: Int32, for client: Int32) {
        let number = waitingNumbers[interest] ?? keepWaiting(interest)
        waitingTerminals[number].holders += 1
        let weight = weight(of: DueTerminal(interest: interest))
        let copy = DueTerminal(waiting: number)
        clients[client].deliveries.replaceLast(weight, by: copy, self.weight(of: copy))
    }

    private mutating func keepWaiting(_ interest: Int32) -> Int32 {
        let record = interests[interest]
        let outcome = outcomes[record.outcome]
        let mark = RequestMark(record.request)
        if outcome.isBare, record.extras < 0, mark.request != nil { return insertWaiting(interest, mark, bytes: 0) }
        let (terminal, body) = terminal(of: interest, sequence: 0)
        let response = record.isWarm ? nil : outcome.response
        // One that waits under a name already is copied.
        let file = response?.spilled == nil ? response?.file : nil
        let isInline = body != nil || response?.spilled != nil
        let bytes = Self.terminalBytes + (outcome.response?.fields.count ?? 0) + (isInline ? response?.length ?? 0 : 0)
        let number = insertWaiting(interest, mark, bytes: bytes, isFiled: file != nil)
        if let file {
            waitingFiles[number] = WaitingBody(file: file, bytes: response?.length ?? 0)
            holdFile(file, bytes: response?.length ?? 0)
        }
        actions.append(.keepWaiting(WaitingID(rawValue: number), terminal, body))
        return number
    }

    private mutating func insertWaiting(
        _ interest: Int32, _ mark: RequestMark, bytes: Int, isFiled: Bool = false
    ) -> Int32 {
        let handler = interests[interest].handler
        let number = waitingTerminals.insert(
            WaitingTerminal(
                request: mark, handler: handler, interest: interest, bytes: UInt32(clamping: bytes),
                failure: outcomes[interests[interest].outcome].failure, isFiled: isFiled))
        waitingNumbers[interest] = number
        handlers[handler].references += 1
        spoolUse.waitingBytes += Int(waitingTerminals[number].bytes)
        return number
    }

    /// Puts a terminal that waited on its way.
    mutating func sendWaiting(_ number: Int32, _ sequence: UInt64, to client: Int32) {
        let record = waitingTerminals[number]
        guard !record.isInFile, let code = record.failure, let request = record.request.request else {
            actions.append(.deliverWaiting(clients[client].id, sequence: sequence, WaitingID(rawValue: number)))
            return
        }
        let failure = Terminal.Failure(code: code.rawValue, detail: code.sentence)
        var terminal = Terminal(
            handler: handlers[record.handler].id, request: request, sequence: sequence, outcome: .failed(failure))
        terminal.isDurable = record.interest >= 0 && isDurable(record.interest)
        actions.append(.deliver(clients[client].id, terminal, nil))
    }

    /// One delivery less of a terminal that waits, or was read back and sent.
    mutating func settleWaiting(_ number: Int32, by client: Int32) {
        let record = waitingTerminals[number]
        waitingTerminals[number].holders -= 1
        if record.holders == 1 { forgetWaiting(number) }
        if record.interest >= 0 { settled(record.interest, record.failure, by: client) }
    }

    private mutating func forgetWaiting(_ number: Int32) {
        let record = waitingTerminals[number]
        waitingTerminals.remove(number)
        // What very many took is given back.
        if waitingTerminals.count == 0 { waitingTerminals = Slab() }
        if record.interest >= 0 { waitingNumbers[record.interest] = nil }
        spoolUse.waitingBytes -= Int(record.bytes)
        if record.isFiled, let body = waitingFiles.removeValue(forKey: number) { releaseFile(body.file) }
        if record.isInFile { actions.append(.forgetWaiting(WaitingID(rawValue: number))) }
        handlers[record.handler].references -= 1
        dropHandlerIfIdle(record.handler)
    }

    /// Frees what memory has of a terminal that waits in the file for all who have not acknowledged it: its outcome,
    /// and the request's record, too, if its ID is free.
    mutating func forgetIfAside(_ interest: Int32) {
        guard !waitingNumbers.isEmpty, let number = waitingNumbers[interest],
            interests[interest].outstanding == waitingTerminals[number].holders
        else { return }
        let outcome = interests[interest].outcome
        if outcome >= 0 {
            interests[interest].outcome = -1
            release(outcome)
        }
        guard !interests[interest].isListed else { return }
        waitingTerminals[number].interest = -1
        waitingNumbers[interest] = nil
        forgetInterest(interest)
    }

    @inline(__always)
    func bytes(ofWaiting number: Int32) -> Int {
        let record = waitingTerminals[number]
        return Int(record.bytes) + (record.isFiled ? waitingFiles[number]?.bytes ?? 0 : 0)
    }

    /// A terminal could not be written: the shell keeps it in memory. For a while no other is tried.
    public mutating func waitingFailed(now: Tick) {
        noteFullSpool(now: now)
    }

    /// A terminal cannot be read back: who waits for it loses its connection, and asks again for what it still wants.
    public mutating func waitingLost(by id: ClientID) {
        guard let client = clientNumbers[id] else { return }
        close(client)
    }

    private mutating func noteFullSpool(now: Tick) {
        guard !isSpoolFull else { return }
        isSpoolFull = true
        setTimer(now.advanced(byMilliseconds: limits.spoolRetryMilliseconds), .spoolRetry)
    }

    // MARK: Bodies

    /// Whether a body must not wait in memory: unless all that wait with it could be of its size and stay within the
    /// bound, it waits in the spool. So what waits for one client, or one handler's grace, holds little memory, however
    /// long it waits.
    @inline(__always)
    func mustSpill(_ outcome: Int32, waiting: Int) -> Bool {
        guard let response = outcomes[outcome].response, response.body != nil, response.sha256 != nil, waiting > 0
        else { return false }
        return response.length > limits.waitingBytes / waiting
    }

    mutating func spill(_ outcome: Int32) {
        guard let body = outcomes[outcome].response?.body, let sum = outcomes[outcome].response?.sha256 else { return }
        // No file is called so: whoever is told of a file of that content finds it.
        let name = sum + ".waiting"
        outcomes[outcome].response?.body = nil
        outcomes[outcome].response?.spilled = body
        outcomes[outcome].response?.file = name
        holdFile(name, bytes: outcomes[outcome].response?.length ?? 0)
        spilling[body] = outcome
        actions.append(.spill(body, file: name))
    }

    /// A body could not be written: it stays in memory. For a while no other is tried; what would have to wait fails.
    public mutating func spillFailed(_ body: BodyID, now: Tick) {
        noteFullSpool(now: now)
        guard let outcome = spilling.removeValue(forKey: body) else {
            actions.append(.releaseBody(body))
            return
        }
        let file = outcomes[outcome].response?.file
        outcomes[outcome].response?.body = body
        outcomes[outcome].response?.spilled = nil
        outcomes[outcome].response?.file = nil
        if let file { releaseFile(file) }
    }

    /// What is said in place of a result that has no place to wait in; that itself while the spool takes bodies.
    mutating func lost(_ outcome: Int32) -> Int32 {
        guard isSpoolFull else { return outcome }
        return outcomes.insert(Outcome(failure: .spoolFull, attempts: outcomes[outcome].attempts))
    }
}
