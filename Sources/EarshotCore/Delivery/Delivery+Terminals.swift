internal import EarshotHTTP
internal import EarshotWire

/// Composition of terminals, for sessions and for the results of durable requests on disk.
extension Delivery {
    /// The terminal of a request in phase `delivering` or `recording`, and its inline body.
    ///
    /// - Parameter isStored: whether the terminal is written to disk. Then it has no redirects: their URLs may be secret, and
    ///   a stored result does not return them.
    @inline(__always)
    static func terminal(
        of interest: Handle<Interest>, sequence: UInt64, isStored: Bool = false, in records: Records
    ) -> (Terminal, BodyID?) {
        let record = records.requests[interest]
        let outcome = records.outcomes[records.outcome(of: interest)]
        var streams = false
        var isInline = false
        var redirects: [Terminal.Redirect] = []
        if let number = record.extras {
            isInline = records.requests[number].delivery == .inline
            streams = records.requests[number].streams && !isInline
            if !isStored { redirects = records.requests[number].redirects }
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
                    in: records.workerLimits.spool)
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
                    in: records.workerLimits.spool))
        }
        let terminal = Terminal(
            handler: records.handlers[record.handler].id, request: record.request, sequence: sequence,
            isDurable: records.isDurable(interest), outcome: end)
        return (terminal, record.isWarm ? nil : outcome.response?.inlineBody)
    }

    /// The terminal of an owed failure.
    static func terminal(
        ofCompact number: Handle<CompactFailure>, sequence: UInt64, in records: inout Records
    ) -> Terminal {
        let record = records.outcomes.compact[number]
        let outcome = records.outcomes[record.outcome]
        guard let code = outcome.failure else { preconditionFailure("owed failure \(number) has no code") }
        var failure = Terminal.Failure(code: code.rawValue, detail: outcome.detail ?? code.sentence)
        failure.attempts = outcome.attempts
        failure.retryAfterSeconds = outcome.retryAfterSeconds
        failure.url = records.outcomes.compactURLs[number]
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
        queuedMilliseconds = response.startedAt.milliseconds(since: request.requestedAt)
        elapsedMilliseconds = response.endedAt.milliseconds(since: request.requestedAt)
        self.attempts = attempts
        httpFields = response.fields
    }
}
