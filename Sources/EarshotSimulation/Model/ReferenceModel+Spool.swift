internal import EarshotCore
internal import EarshotWire
internal import HeapModule

/// What waits when the disk takes nothing: in memory as far as that is bounded, else it is lost, and said to be.
extension ReferenceModel {
    // MARK: Events

    /// Something could not be written: for a while nothing else is tried.
    func spoolFilled() {
        guard !isSpoolFull else { return }
        isSpoolFull = true
        let end = now.advanced(byMilliseconds: limits.spoolRetryMilliseconds)
        moments.insert(Moment(at: end, subject: .spoolRetry))
    }

    /// A client will not have a terminal that it was to be sent: it has to ask again.
    func waitingLost(by id: ClientID) {
        guard let client = connections[id], !client.isClosing else { return }
        client.isUnreadable = true
        owedEnds.insert(client.id)
    }

    /// A body stays in memory, if somebody still wants it there.
    func spillFailed(_ body: BodyID) {
        spoolFilled()
        spilled[body] = nil
        bodies.insert(body)
    }

    // MARK: Bounds

    /// Whether a body must not wait in memory, as one of so many.
    func mustSpill(_ ending: Ending, of request: RequestRecord, waiting: Int) -> Bool {
        guard let completion = ending.completion, let body = ending.body, spilled[body] == nil,
            completion.sha256 != nil, !isFiled(ending, for: request), waiting > 0
        else { return false }
        return completion.length > limits.waitingBytes / waiting
    }

    /// Whether a request gets its body as a file. Of a body that is there in both forms each gets one.
    func isFiled(_ ending: Ending, for request: RequestRecord) -> Bool {
        let options = request.fetch.options
        return ending.body == nil
            || ending.completion?.file != nil
                && (options.delivery == .file || options.delivery == .auto && options.streams)
    }

    /// How a request ends for those who listen: that the spool is full, if the body had to wait there for all of them.
    func withRoom(for ending: Ending, of request: RequestRecord) -> Ending {
        guard isSpoolFull else { return ending }
        let clients = listeners(of: request.name.handler).compactMap { sessions[$0] }
        guard clients.allSatisfy({ $0.isFull && mustSpill(ending, of: request, waiting: $0.unbegun + 1) }) else {
            return ending
        }
        blame = 11
        guard hasNotices else { return Ending(code: "spool-full", attempts: ending.attempts) }
        var ending = ending
        ending.mayBeLost = true
        return ending
    }

    /// What must not wait in memory, and has a place with others, costs the one who does not read it the connection.
    func noteWaiting(_ request: RequestRecord, _ ending: Ending, for client: SessionRecord) {
        guard !hasNotices, !client.isClosing, client.unbegun > 0,
            mustSpill(ending, of: request, waiting: client.unbegun)
        else { return }
        owedEnds.insert(client.id)
    }

    /// Whether a body waits for a client that has to wait in the spool.
    func hasNoRoom(for client: SessionRecord) -> Bool {
        let waiting = client.unbegun
        let unsent = Array(client.due.values.joined()) + client.told.compactMap(\.self)
        return unsent.contains { request in
            request.ending.map { mustSpill($0, of: request, waiting: waiting) } ?? false
        }
    }

    // MARK: Doubts

    /// What became of requests of which it was not foreseen is in the core's ledger.
    func settleDoubts(_ told: Ledger) {
        guard !doubts.isEmpty else { return }
        for code in Set(doubts) {
            let own = code.map { ledger.requests.failed[$0, default: 0] } ?? ledger.requests.answered
            let other = code.map { told.requests.failed[$0, default: 0] } ?? told.requests.answered
            let lost = min(max(0, own - other), doubts.count { $0 == code })
            if let code { ledger.requests.failed[code] = own - lost } else { ledger.requests.answered = own - lost }
            ledger.requests.failed["spool-full", default: 0] += lost
        }
        doubts = []
    }

    /// The first terminal of a request tells how it ended, where that was not foreseen.
    func decided(_ ending: Ending, of request: RequestRecord, by terminal: Terminal) -> Ending {
        guard ending.mayBeLost else { return ending }
        var decided = ending
        decided.mayBeLost = false
        if case .failed(let failure) = terminal.outcome, failure.code == "spool-full" {
            decided = Ending(code: "spool-full", attempts: ending.attempts)
        }
        request.ending = decided
        return decided
    }
}

extension Terminal {
    /// The name of a body that waits in the spool, if the terminal has it there.
    var waitingName: String? {
        guard let file = response?.file, file.hasSuffix(".waiting") else { return nil }
        return file.split(separator: "/").last.map(String.init)
    }
}
