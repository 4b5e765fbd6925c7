internal import EarshotHTTP
internal import EarshotWire

/// Flights: the step after an attempt, redirects, and the requests that one outcome ends. The functions return the next
/// step of the flight.
enum Flights {
    /// Decides between a redirect, a retry and an outcome for a response of an origin or of the cache.
    ///
    /// - Parameter redirect: the result of the rule of redirects. The body of a redirect is dropped already.
    static func nextStep(
        of flight: Handle<Flight>, after response: consuming Outcome.Response, _ fields: HeaderFields,
        redirect: RedirectOutcome, now: MonotonicTime, in records: inout Records
    ) -> FlightStep {
        switch redirect {
        case .follow(let next): return .awaitRedirectTarget(next, status: response.status)
        case .refused(let code): return .failure(code, of: flight, in: &records)
        case .invalidTarget(let error):
            let detail = redirectErrorText(error, ofTarget: fields.firstValue(named: "location") ?? "")
            return .failure(.malformedURL, of: flight, detail: detail, in: &records)
        case .notARedirect: break
        }
        let isError = response.status >= 400
        if isError, !records.flights[flight].route.deliversErrorResponses {
            guard response.cacheSource != nil else {
                return attemptFailed(flight, .httpStatus, response, now: now, in: &records)
            }
            let attempts = Int(records.flights[flight].assignedAttemptCount)
            return .endFlight(
                with: records.outcomes.insertWithOneReference(
                    Outcome(failure: .httpStatus, response: response, attempts: attempts)))
        }
        guard !isError || !response.isBodyOmitted else {
            records.releaseResponse(response)
            return .failure(.protocolError, of: flight, in: &records)
        }
        let attempts = Int(records.flights[flight].assignedAttemptCount)
        return .endFlight(
            with: records.outcomes.insertWithOneReference(Outcome(response: response, attempts: attempts)))
    }

    /// Bytes of the body that a failed attempt received. More than any before is progress, after which the pauses are
    /// short again.
    static func attemptReceived(_ bytes: Int, of flight: Handle<Flight>, in records: inout Records) {
        guard bytes > records.flights[redirectsAndFailuresOf: flight].maximumReceivedBytes else { return }
        records.flights[redirectsAndFailuresOf: flight].maximumReceivedBytes = bytes
        records.flights[redirectsAndFailuresOf: flight].failedAttemptsWithoutProgress = 0
    }

    /// Counts a failed attempt, and decides between a retry and the failure.
    ///
    /// - Parameter isPauseRequested: whether a proxy requested the pause.
    static func attemptFailed(
        _ flight: Handle<Flight>, _ code: FailureCode, _ response: Outcome.Response? = nil, detail: String? = nil,
        isPauseRequested: Bool = false, now: MonotonicTime, in records: inout Records
    ) -> FlightStep {
        records.flights[redirectsAndFailuresOf: flight].retryableFailureCount += 1
        records.flights[redirectsAndFailuresOf: flight].failedAttemptsWithoutProgress += 1
        let record = records.flights[flight]
        var failure = Outcome.failure(code, of: flight, detail: detail, in: &records)
        if let response { (failure.response, failure.url) = (response, nil) }
        let outcome = records.outcomes.insertWithOneReference(failure)
        let random = records.randomGenerator.next()
        guard case .retry(let pause) = retryDecision(of: flight, code, response?.status, random: random, in: &records)
        else { return .endFlight(with: outcome) }
        let waiting = records.flights.interests(of: flight)
        let ending = waiting.filter { records.requests[$0].endsAfterOneAttempt }
        guard ending.isEmpty || record.isRevalidation || ending.count < waiting.count else {
            return .endFlight(with: outcome)
        }
        records.ledger.flights.retriedAttempts += 1
        let waitsForOrigin =
            (isPauseRequested || response?.isOriginOverloaded == true)
            && records.originGovernor.isCoolingDown(record.originScope)
        return .retryFlight(
            after: outcome, ending: ending,
            waitsForOrigin ? .afterCoolDown : .atTime(now.advanced(byNanoseconds: pause)))
    }

    /// Begins the pause before the next attempt.
    static func beginBackOff(_ flight: Handle<Flight>, until end: MonotonicTime, in records: inout Records) {
        records.flights.backOff(flight, until: end)
        records.setTimer(at: end, for: .backOffEnd(records.flights.name(of: flight)))
    }

    /// Whether another attempt follows a response with this status, so that the response is not stored.
    static func willRetry(_ flight: Handle<Flight>, after status: Int, in records: inout Records) -> Bool {
        FailureCode.httpStatus.isRetryable(status: status) && !records.flights[flight].route.deliversErrorResponses
            && retryDecision(of: flight, .httpStatus, status, uncounted: 1, random: 0, in: &records) != .fail
    }

    /// - Parameter uncounted: number of failed attempts that are not counted yet.
    private static func retryDecision(
        of flight: Handle<Flight>, _ code: FailureCode, _ status: Int?, uncounted: Int = 0, random: UInt64,
        in records: inout Records
    ) -> RetryDecision {
        let (record, history) = (records.flights[flight], records.flights[redirectsAndFailuresOf: flight])
        return RetryRule().decision(
            after: code, status: status, method: record.method,
            attempts: Int(history.retryableFailureCount) + uncounted,
            failedAttempts: Int(history.failedAttemptsWithoutProgress) + uncounted, retries: Int(record.maximumRetries),
            random: random)
    }

    /// Handles a body that exceeded the attempt's limit. Requests that allow no more fail; the others are queued again
    /// with their own limits.
    ///
    /// - Parameter allowed: limit in the attempt's JOB, without raises: a RAISE may have arrived too late.
    static func bodyExceededLimit(_ flight: Handle<Flight>, allowed: Int?, in records: inout Records) -> FlightStep {
        var exceeded: [Handle<Interest>] = []
        var others = 0
        records.forEachInterest(of: flight) { records, interest in
            let limit = records.requests[interest].rareOptions.flatMap { records.requests[$0].maximumBodyBytes }
            if let limit, let allowed, limit <= allowed { exceeded.append(interest) } else { others += 1 }
        }
        // A request that rejoins a flight without requests may allow more.
        guard allowed != nil, others > 0 || !records.flights.isAwaitedByRequest(flight) else {
            return .failure(.tooLarge, of: flight, in: &records)
        }
        return .requeueAfterOversizedBody(failing: exceeded)
    }

    // MARK: Redirects

    /// Makes a flight wait for the flight of its redirect's target, which is new or which other requests share.
    static func followRedirect(
        _ child: Handle<Flight>, isNew: Bool, by flight: Handle<Flight>, in records: inout Records
    ) -> FlightStep {
        guard records.flights.endOfRedirectChain(of: child) != flight else {
            return .failure(.redirectLoop, of: flight, in: &records)
        }
        records.flights.followRedirect(child, by: flight)
        let (timeout, retries) = (records.flights[flight].timeoutMilliseconds, records.flights[flight].maximumRetries)
        raiseRetryLimits(of: child, timeoutMilliseconds: timeout, retries: retries, in: &records)
        if isNew {
            let history = records.flights[redirectsAndFailuresOf: flight]
            records.flights[redirectsAndFailuresOf: child].workerDeaths = history.workerDeaths
            records.flights[redirectsAndFailuresOf: child].wasIsolatedAtWorkerDeath = history.wasIsolatedAtWorkerDeath
        }
        return .requeueRedirected(
            exceedingHopLimit: records.flights.flightsExceedingHopLimit(
                flight, hops: records.limits.maximumRedirectHops))
    }

    /// Describes an invalid target of a redirect by its fault and its start, without user information and query.
    static func redirectErrorText(_ error: FetchURL.ParseError, ofTarget target: String) -> String {
        let visible = target.prefix { $0 != "?" && $0 != "#" }
        let bare = visible.lastIndex(of: "@").map { visible[visible.index(after: $0)...] } ?? visible
        let start = bare.utf8.prefix(maximumTargetBytesInDetail).map {
            (0x20...0x7e).contains($0) ? $0 : UInt8(ascii: "?")
        }
        let isCut = bare.utf8.count > maximumTargetBytesInDetail
        // The advice after the semicolon is for the author of the URL, not for the client.
        let fault = error.description.prefix { $0 != ";" }
        return "The server redirects to \(String(decoding: start, as: UTF8.self))\(isCut ? "..." : ""): \(fault)"
    }

    /// Maximum bytes of a redirect's target in a detail.
    private static let maximumTargetBytesInDetail = 80

    /// Notes the redirects to a flight, and those after it, for the terminals of the requests. O(redirected requests).
    private static func recordRedirects(
        to flight: Handle<Flight>, before later: [Terminal.Redirect] = [], in records: inout Records
    ) {
        let url = records.flights[flight].url.description
        for parent in records.flights.parents(of: flight) {
            let redirects =
                [Terminal.Redirect(status: records.flights[redirectsAndFailuresOf: parent].redirectStatus, url: url)]
                + later
            let listed = redirects.boundedToFieldSize
            for interest in records.flights.directInterests(of: parent) {
                records.requests.updateRareOptions(of: interest) { $0.followedRedirects = listed }
            }
            recordRedirects(to: parent, before: redirects, in: &records)
        }
    }

    // MARK: Outcomes

    /// Counts an outcome with which a flight ends, and notes the redirects to it.
    ///
    /// - Returns: the start of the transfer; nil without one.
    @inline(__always)
    static func recordFlightEnd(
        _ flight: Handle<Flight>, with outcome: Handle<Outcome>, in records: inout Records
    ) -> MonotonicTime? {
        guard records.outcomes[outcome].response != nil else { return nil }
        if records.flights.hasParents(flight) { recordRedirects(to: flight, in: &records) }
        return transferStartTime(of: outcome, in: &records)
    }

    /// Leaves the requests of a flight that has ended, beyond a slice, to later passes.
    static func endInSlices(_ flight: Handle<Flight>, with outcome: Handle<Outcome>, in records: inout Records) {
        guard records.flights.endInSlices(flight, with: outcome) else { return }
        records.forEachInterest(of: flight) { records, interest in records.queue.remove(interest) }
    }

    /// The start of the transfer of an outcome; nil without one.
    @inline(__always)
    static func transferStartTime(of outcome: Handle<Outcome>, in records: inout Records) -> MonotonicTime? {
        let response = records.outcomes[outcome].response
        return response?.cacheSource == nil ? response?.startedAt : nil
    }

    /// The outcome of a request that the outcome of its flight does not serve: a 304 by its own conditions, or a
    /// failure by its size limit or digest. Nil if it gets the flight's outcome.
    @inline(__always)
    static func individualOutcome(
        of interest: Handle<Interest>, insteadOf outcome: Handle<Outcome>, in records: inout Records
    ) -> Outcome? {
        guard let number = records.requests[interest].rareOptions else { return nil }
        return individualOutcome(ofRareOptions: number, insteadOf: outcome, in: &records)
    }

    @inline(never)
    private static func individualOutcome(
        ofRareOptions number: Handle<Interest.RareOptions>, insteadOf handle: Handle<Outcome>, in records: inout Records
    ) -> Outcome? {
        let outcome = records.outcomes[handle]
        guard outcome.failure == nil, let response = outcome.response else { return nil }
        if records.requests[number].clientConditions != nil,
            let notModified = notModifiedOutcome(outcome, response, for: number, in: &records)
        {
            return notModified
        }
        if let limit = records.requests[number].maximumBodyBytes, response.bodyLength > limit {
            return outcome.replacedByFailure(.tooLarge)
        }
        if let digest = records.requests[number].expectedDigest, digest != response.sha256 {
            return outcome.replacedByFailure(.digestMismatch)
        }
        return nil
    }

    /// Raises timeout and retries of a flight, and of the flights it was redirected to, to those of its newest request.
    static func raiseRetryLimits(of flight: Handle<Flight>, to options: Fetch.Options, in records: inout Records) {
        let timeout = UInt32(clamping: options.timeoutMilliseconds)
        let retries = UInt8(clamping: options.retries)
        var next = flight
        while true {
            raiseRetryLimits(of: next, timeoutMilliseconds: timeout, retries: retries, in: &records)
            guard case .following(let child) = records.flights[next].phase else { return }
            next = child
        }
    }

    @inline(__always)
    static func raiseRetryLimits(
        of flight: Handle<Flight>, timeoutMilliseconds: UInt32, retries: UInt8 = 0, in records: inout Records
    ) {
        records.flights[flight].timeoutMilliseconds = max(
            records.flights[flight].timeoutMilliseconds, timeoutMilliseconds)
        records.flights[flight].maximumRetries = max(records.flights[flight].maximumRetries, retries)
    }

    /// Inserts a new flight in phase `queued`, without interests and not yet in the queue.
    static func beginFlight(
        _ request: HTTPRequest, redirect: RedirectMode, partition: String?, _ key: FlightKey,
        scope: Handle<OriginScope>, servesSingleRequest: Bool, body: BodyID?, in records: inout Records
    ) -> Handle<Flight> {
        records.originGovernor.flightJoined(scope)
        let flight = records.flights.begin(
            request, redirect: redirect, partition: partition, key, scope: scope,
            servesSingleRequest: servesSingleRequest, body: body)
        if let body { records.requests.requestBodies.retainBody(body) }
        records.ledger.flights.started += 1
        return flight
    }
}
