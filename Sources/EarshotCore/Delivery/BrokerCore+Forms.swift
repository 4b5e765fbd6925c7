public import EarshotHTTP
public import EarshotWire

/// Forms of a body that a request demands by `deliver`.
///
/// An outcome has one form: a body in memory, or a file. For `deliver: file` a request gets an outcome of its own, whose
/// file the shell writes before it sends the terminal. For `deliver: inline` the shell reads the file into the message.
extension BrokerCore {
    @inline(__always)
    func demandedForm(of interest: Handle<Interest>) -> BodyDelivery {
        if let number = interests[interest].extras { extras[number].delivery } else { .auto }
    }

    /// Returns an outcome with a file, if a request demands that and the body is in memory; otherwise the same outcome.
    /// `FAILED spool-full` stands for a file without room.
    ///
    /// - Returns: another outcome has one reference, which the caller releases.
    @inline(__always)
    mutating func formed(_ outcome: Handle<Outcome>, for interest: Handle<Interest>) -> Handle<Outcome> {
        demandedForm(of: interest) == .file ? filed(outcome, for: interest) : outcome
    }

    private mutating func filed(_ outcome: Handle<Outcome>, for interest: Handle<Interest>) -> Handle<Outcome> {
        guard !interests[interest].isWarm, let response = outcomes[outcome].response, response.length > 0,
            let body = response.body ?? response.spilled, let file = response.sha256
        else { return outcome }
        let isPresent = outcomes.needsFile(file)
        outcomes.hold(file: file, bytes: response.length)
        guard hasRoomInSpool() else {
            releaseFile(file)
            guard outcomes[outcome].failure == nil else { return outcome }
            let failure = outcomes.insert(outcomes[outcome].replaced(by: .spoolFull))
            outcomes.retain(failure)
            return failure
        }
        if !isPresent { actions.append(.spool(.write(body, file: file))) }
        var other = outcomes[outcome]
        other.holders = 1
        other.response?.body = nil
        other.response?.spilled = nil
        other.response?.file = file
        return outcomes.insert(other)
    }

    /// Spool file that the terminal of a request names; nil for a body in its message, and without a body.
    @inline(__always)
    func namedFile(of interest: Handle<Interest>) -> String? {
        let outcome = outcomeNumber(of: interest)
        // Without a copy of the response.
        guard let file = outcomes[outcome].response?.file, outcomes[outcome].response?.spilled == nil,
            !interests[interest].isWarm, demandedForm(of: interest) != .inline
        else { return nil }
        return file
    }
}

extension Terminal {
    /// Returns a failure in place of a terminal whose body the shell could not write or read.
    public func replaced(by code: FailureCode) -> Terminal {
        var failure = Failure(code: code.rawValue, detail: code.sentence)
        failure.url = response?.url
        failure.attempts = response?.attempts ?? 0
        var terminal = self
        terminal.outcome = .failed(failure)
        return terminal
    }
}
