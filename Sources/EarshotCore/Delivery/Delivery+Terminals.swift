internal import EarshotHTTP
internal import EarshotWire

/// Composition of terminals, for sessions and for the results of durable requests on disk.
extension Delivery {
    /// The terminal of a request in phase `delivering` or `writingOutcome`, and its inline body.
    ///
    /// - Parameter isStored: whether the terminal is written to disk. Then it has no redirects: their URLs may be
    ///   secret, and a stored result does not return them.
    @inline(__always)
    static func terminalMessage(
        of interest: Handle<Interest>, sequence: UInt64, isStored: Bool = false, in records: Records
    ) -> (Terminal, BodyID?) {
        let record = records.requests[interest]
        let outcome = records.outcomes[records.outcome(of: interest)]
        var streams = false
        var isInline = false
        var redirects: [Terminal.Redirect] = []
        if let number = record.rareOptions {
            isInline = records.requests[number].demandedBodyForm == .inline
            streams = records.requests[number].isStreaming && !isInline
            if !isStored { redirects = records.requests[number].followedRedirects }
        }
        let end: Terminal.Outcome
        if let code = outcome.failure {
            var failure = Terminal.Failure(code: code.rawValue, detail: outcome.detail ?? code.userMessage)
            failure.attempts = outcome.attempts
            failure.retryAfterSeconds = outcome.retryAfterSeconds
            failure.url = outcome.url
            if let response = outcome.response {
                failure.status = code == .httpStatus ? response.status : nil
                failure.errorPageResponse = Terminal.Response(
                    response, attempts: outcome.attempts, to: record, redirects, isInline: isInline,
                    isStreaming: streams, in: records.workerLimits.spoolPath)
            }
            end = .failed(failure)
        } else {
            guard let response = outcome.response else {
                preconditionFailure("outcome of request \(interest) is neither a failure nor a response")
            }
            end = .result(
                status: response.status,
                Terminal.Response(
                    response, attempts: outcome.attempts, to: record, redirects, isInline: isInline,
                    isStreaming: streams, in: records.workerLimits.spoolPath))
        }
        let terminal = Terminal(
            handler: records.handlers[record.handler].id, request: record.request, sequence: sequence,
            isDurable: records.isDurable(interest), outcome: end)
        return (terminal, record.usesWarmDelivery ? nil : outcome.response?.inlineBody)
    }

    /// The terminal of a compact failure.
    static func terminalMessage(
        ofCompactFailure number: Handle<CompactFailure>, sequence: UInt64, in records: inout Records
    ) -> Terminal {
        let record = records.outcomes.compactFailures[number]
        let outcome = records.outcomes[record.outcome]
        guard let code = outcome.failure else { preconditionFailure("owed failure \(number) has no code") }
        var failure = Terminal.Failure(code: code.rawValue, detail: outcome.detail ?? code.userMessage)
        failure.attempts = outcome.attempts
        failure.retryAfterSeconds = outcome.retryAfterSeconds
        failure.url = records.outcomes.compactFailureURLs[number]
        return Terminal(
            handler: records.handlers[record.handler].id, request: record.request, sequence: sequence,
            isDurable: record.interest.map { records.isDurable($0) } ?? false, outcome: .failed(failure))
    }
}

extension Terminal.Response {
    /// Response as one request receives it.
    ///
    /// - Parameters:
    ///   - redirects: the redirects that were followed for the request.
    ///   - isInline: whether the body of a file goes into the message.
    ///   - isStreaming: whether the request reads the body while it grows.
    ///   - spool: the folder of the spool's files.
    fileprivate init(
        _ response: borrowing Outcome.Response, attempts: Int, to request: borrowing Interest,
        _ redirects: consuming [Terminal.Redirect], isInline: Bool, isStreaming: Bool, in spool: String
    ) {
        self.init(url: response.url)
        self.redirects = redirects
        source =
            response.cacheSource
            ?? (request.joinedExistingFlight
                ? .sharedFlight
                : response.isFromOtherNode ? .clusterNode : response.resumedBytes > 0 ? .resumed : .network)
        bodyByteCount = response.bodyLength
        if source == .resumed { resumedBytes = min(response.resumedBytes, bodyByteCount) }
        sha256 = response.sha256
        if let name = response.bodyFile, !request.usesWarmDelivery {
            bodyFilePath = spool + "/" + name
            self.isInline = isInline
            if isStreaming, let attempt = response.bodyGeneration { generation = Generation(attempt) }
        }
        queuedMilliseconds = response.startedAt.milliseconds(since: request.requestedAt)
        elapsedMilliseconds = response.endedAt.milliseconds(since: request.requestedAt)
        self.attempts = attempts
        httpFields = response.headerFields
    }
}
