internal import EarshotCore
internal import EarshotWire
internal import HeapModule

/// Results that wait while the disk is full: in memory up to a limit, otherwise lost and reported as failed.
extension ReferenceModel {
    // MARK: Events

    /// Handles a failed write: other writes are suspended for some time.
    func spoolFilled() {
        guard !isSpoolFull else { return }
        isSpoolFull = true
        let end = now.advanced(byMilliseconds: limits.spoolRetryMilliseconds)
        timers.insert(ModelTimer(dueAt: end, subject: .spoolRetry))
    }

    /// Keeps a body in memory after its spill failed.
    func spillFailed(_ body: BodyID) {
        spoolFilled()
        spilledFiles[body] = nil
        bodies.insert(body)
    }

    // MARK: Bounds

    /// Returns whether a body is too large to wait in memory, given the number of waiting terminals.
    func mustSpill(_ ending: Ending, of request: RequestRecord, waiting: Int) -> Bool {
        guard let completion = ending.completion, let body = ending.body, spilledFiles[body] == nil,
            completion.sha256 != nil, spoolFileName(of: ending, for: request) == nil, waiting > 0
        else { return false }
        return completion.bodyByteCount > limits.maximumWaitingBodyBytes / waiting
    }

    /// Returns the result for subscribers: `spool-full` if the body would have to wait in the spool for all of them.
    func endingWithSpoolRoom(for ending: Ending, of request: RequestRecord) -> Ending {
        guard isSpoolFull else { return ending }
        let clients = subscribers(of: request.name.handler).compactMap { sessions[$0] }
        guard
            clients.allSatisfy({
                $0.isWindowFull && mustSpill(ending, of: request, waiting: $0.unbegunDeliveryCount + 1)
            })
        else {
            return ending
        }
        ledgerInvariant = 11
        guard hasUndeliveredRemovals else { return Ending(code: "spool-full", attempts: ending.attempts) }
        var ending = ending
        ending.mayBeSpoolFull = true
        return ending
    }

    /// Disconnects a slow reader whose body must not wait in memory and can be delivered to others.
    func disconnectSlowReader(_ request: RequestRecord, _ ending: Ending, for client: SessionRecord) {
        guard !hasUndeliveredRemovals, !client.isClosing, client.unbegunDeliveryCount > 0,
            mustSpill(ending, of: request, waiting: client.unbegunDeliveryCount)
        else { return }
        expectedSessionCloses.insert(client.id)
    }

    /// Returns whether a terminal for the client must wait in the spool.
    func mustWaitInSpool(for client: SessionRecord) -> Bool {
        let waiting = client.unbegunDeliveryCount
        let unsent = Array(client.unsentTerminals.values.joined()) + client.redeliveries.compactMap(\.self)
        return unsent.contains { request in
            request.ending.map { mustSpill($0, of: request, waiting: waiting) } ?? false
        }
    }

    // MARK: Undetermined results

    /// Settles results that the model could not predict by the core's ledger.
    func resolveUncertainResults(_ reported: Ledger) {
        guard !uncertainResults.isEmpty else { return }
        for code in Set(uncertainResults) {
            let own = code.map { ledger.requests.failed[$0, default: 0] } ?? ledger.requests.answered
            let other = code.map { reported.requests.failed[$0, default: 0] } ?? reported.requests.answered
            let lost = min(max(0, own - other), uncertainResults.count { $0 == code })
            guard lost > 0 else { continue }
            if let code {
                ledger.requests.failed[code] = own > lost ? own - lost : nil
            } else {
                ledger.requests.answered = own - lost
            }
            ledger.requests.failed["spool-full", default: 0] += lost
        }
        uncertainResults = []
    }

    /// Determines an unpredictable result by the first terminal of its request.
    func decidedEnding(_ ending: Ending, of request: RequestRecord, by terminal: Terminal) -> Ending {
        guard ending.mayBeSpoolFull else { return ending }
        var decided = ending
        decided.mayBeSpoolFull = false
        if case .failed(let failure) = terminal.outcome, failure.code == "spool-full" {
            decided = Ending(code: "spool-full", attempts: ending.attempts)
        }
        request.ending = decided
        return decided
    }
}
