public import EarshotHTTP
public import EarshotWire

/// Held outcomes, bodies that leave memory because they wait, and the files that requests demand.
///
/// A failure without a response becomes a `CompactFailure` when it waits. Its deliveries hold that record instead of
/// the outcome and, once the ID is free, instead of the request's record. All other terminals keep both.
///
/// An outcome has one form: a body in memory, or a file. For `deliver: file` a request gets an outcome of its own,
/// whose file the shell writes before it sends the terminal. For `deliver: inline` the shell reads the file into the
/// message.
extension Delivery {
    // MARK: Grace

    /// Holds an outcome for the grace period, until the handler has a subscriber.
    static func holdOutcomeUntilSubscriber(
        _ interest: Handle<Interest>, _ outcome: Handle<Outcome>, now: MonotonicTime, in records: inout Records
    ) {
        records.requests[interest].enter(.awaitingSubscriber)
        records.requests[interest].outcome = outcome
        records.outcomes.addReference(to: outcome)
        records.chargeHeldOutcome(interest)
        records.handlers.countHeldOutcome(of: records.requests[interest].handler)
        let waiting = records.handlers[records.requests[interest].handler].heldOutcomeCount
        if !records.outcomes.isSpoolFull, records.outcomes.mustSpillBody(outcome, waiting: waiting) {
            spillBody(outcome, in: &records)
        }
        let subject = CoreTimer.TimerEvent.heldOutcomeGraceEnd(records.requests.reference(to: interest))
        records.setTimer(at: now.advanced(byMilliseconds: records.limits.subscriberGraceMilliseconds), for: subject)
    }

    /// Ends the grace period of a held request, which keeps its outcome.
    static func endOutcomeHold(_ interest: Handle<Interest>, in records: inout Records) {
        records.chargeHeldOutcome(interest, sign: -1)
        records.handlers.uncountHeldOutcome(of: records.requests[interest].handler)
    }

    // MARK: Memory

    /// Whether the body would have to leave memory for every subscriber.
    @inline(__always)
    static func mustSpillForSubscribers(
        _ outcome: Handle<Outcome>, for subscribers: [Handle<ClientSession>], in records: inout Records
    ) -> Bool {
        for client in subscribers {
            guard records.clients[client].deliveries.isFull,
                records.outcomes.mustSpillBody(outcome, waiting: records.clients[client].deliveries.unsentCount + 1)
            else { return false }
        }
        return true
    }

    /// Moves the body of an outcome from memory into the spool, if it is in memory.
    static func spillBody(_ outcome: Handle<Outcome>, in records: inout Records) {
        guard let (body, file) = records.outcomes.spillBody(of: outcome) else { return }
        records.outbox.appendAction(.spool(.spillBody(body, file: file)))
    }

    /// Stops spilling for a while: a body could not be written, and stays in memory. Until then a result that would
    /// have to leave memory fails.
    static func bodySpillFailed(_ body: BodyID, now: MonotonicTime, in records: inout Records) {
        if records.outcomes.spoolBecameFull() {
            records.setTimer(at: now.advanced(byMilliseconds: records.limits.spoolRetryMilliseconds), for: .spoolRetry)
        }
        records.deleteFreedStorage(records.outcomes.returnBodyToMemory(body))
    }

    /// Returns a failure in place of a result that cannot be spilled; the result itself while the spool accepts bodies.
    static func outcomeAcceptedForSpill(_ outcome: Handle<Outcome>, in records: inout Records) -> Handle<Outcome> {
        guard records.outcomes.isSpoolFull else { return outcome }
        return records.outcomes.insert(records.outcomes[outcome].replacedByFailure(.spoolFull))
    }

    // MARK: Files

    /// A file that a request demands for a body in memory.
    struct DemandedFile {
        let name: String
        let body: BodyID
        /// Whether another outcome has the file already.
        let isPresent: Bool
    }

    /// Counts the file that a request demands, if the body of its outcome is in memory. The caller continues with
    /// `outcomeWithDemandedFile` or `releaseDemandedFile`.
    static func reserveDemandedFile(
        of outcome: Handle<Outcome>, for interest: Handle<Interest>, in records: inout Records
    ) -> DemandedFile? {
        guard !records.requests[interest].usesWarmDelivery, let response = records.outcomes[outcome].response,
            response.bodyLength > 0, let file = response.sha256, let form = response.body
        else { return nil }
        let body: BodyID
        switch form {
        case .inline(let id), .file(_, let id?): body = id
        case .file(_, nil): return nil
        }
        let isPresent = records.outcomes.isFileReferenced(file)
        records.outcomes.retainFile(file, bytes: response.bodyLength)
        return DemandedFile(name: file, body: body, isPresent: isPresent)
    }

    /// Returns an outcome with the demanded file. It has one reference, which the caller releases.
    static func outcomeWithDemandedFile(
        _ file: DemandedFile, of outcome: Handle<Outcome>, in records: inout Records
    ) -> Handle<Outcome> {
        if !file.isPresent { records.outbox.appendAction(.spool(.writeBody(file.body, file: file.name))) }
        var other = records.outcomes[outcome]
        other.referenceCount = 1
        other.response?.body = .file(file.name)
        return records.outcomes.insert(other)
    }

    /// Releases a file without room. Returns `spool-full` in place of a result, with a reference that the caller
    /// releases; the same outcome if that is a failure.
    static func releaseDemandedFile(
        _ file: DemandedFile, of outcome: Handle<Outcome>, in records: inout Records
    ) -> Handle<Outcome> {
        records.releaseSpoolFile(file.name)
        guard records.outcomes[outcome].failure == nil else { return outcome }
        let failure = records.outcomes.insert(records.outcomes[outcome].replacedByFailure(.spoolFull))
        records.outcomes.addReference(to: failure)
        return failure
    }
}

extension Terminal {
    /// Returns a failure in place of a terminal whose body the shell could not write or read.
    public func replacedByFailure(_ code: FailureCode) -> Terminal {
        var failure = Failure(code: code.rawValue, detail: code.userMessage)
        failure.url = response?.url
        failure.attempts = response?.attempts ?? 0
        var terminal = self
        terminal.outcome = .failed(failure)
        return terminal
    }
}
