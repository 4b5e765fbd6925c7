internal import EarshotHTTP
internal import EarshotWire

/// Steps of flights: the step after an attempt, and the beginning and end of flights. `Flights` decides.
extension BrokerCore {
    // MARK: Steps

    /// Carries out a step of a flight, and those that follow from it. The only place where one step leads to the next.
    mutating func performStep(_ first: consuming FlightStep, of flight: Handle<Flight>, now: MonotonicTime) {
        var (step, flight) = (first, flight)
        var tooLongChains: [Handle<Flight>] = []
        while true {
            switch consume step {
            case .noFurtherAction: break
            case .evaluateResponse(let response, let fields):
                step = nextStep(of: flight, afterResponse: response, fields, now: now)
                continue
            case .awaitRedirectTarget(let next, let status):
                guard !endFlightIfHostedOnly(flight) else { break }
                step = followRedirect(next, by: flight, after: status)
                continue
            case .requeueRedirected(let farthest):
                let leaf = records.flights.endOfRedirectChain(of: flight)
                if case .queued = records.flights[leaf].phase {
                    forEachInterest(of: flight) { core, interest in core.enqueueInterest(interest, for: leaf) }
                }
                tooLongChains = farthest
            case .retryFlight(let outcome, let ending, let start):
                if ending.isEmpty {
                    reportAttemptFailure(of: flight, outcome)
                } else {
                    endInterests(ending, of: flight, with: outcome, now: now)
                }
                guard !endFlightIfHostedOnly(flight) else { break }
                retryFlight(flight, start)
            case .requeueAfterOversizedBody(let exceeded):
                enqueueFlight(flight, first: true)
                for interest in exceeded { endSingleRequest(interest, .tooLarge, now: now) }
            case .enqueueFlight(let isFirst): enqueueFlight(flight, first: isFirst)
            case .endFlight(let outcome):
                step = concludeFlight(flight, with: outcome, now: now)
                continue
            case .discardFlight: freeFlight(flight)
            }
            guard !tooLongChains.isEmpty else { return }
            flight = tooLongChains.removeFirst()
            step = failTooManyRedirects(flight, now: now)
        }
    }

    /// Ends a flight with a failure that has no response. A detail replaces the standard sentence of the code.
    mutating func failFlight(_ flight: Handle<Flight>, _ code: FailureCode, detail: String? = nil, now: MonotonicTime) {
        performStep(.failure(code, of: flight, detail: detail, in: &records), of: flight, now: now)
    }

    private mutating func retryFlight(_ flight: Handle<Flight>, _ start: FlightStep.NextAttemptStart) {
        switch start {
        case .immediately: enqueueFlight(flight, first: true)
        case .afterCoolDown:
            let isFirst = !records.originGovernor.isLatestProbe(
                records.flights[flight].originScope, records.flights[flight].id)
            enqueueFlight(flight, first: isFirst)
        case .atTime(let time): Flights.beginBackOff(flight, until: time, in: &records)
        }
    }

    // MARK: Responses

    /// Handles the response of an origin: cool-down and cookies, then the cache and the requests.
    mutating func responseReceived(
        for flight: Handle<Flight>, _ response: consuming Outcome.Response, now: MonotonicTime
    ) {
        let fields = HeaderFields(lines: response.headerFields)
        if response.isOriginOverloaded {
            let retryAfter = fields.firstValue(named: "retry-after").flatMap {
                RetryAfter($0, now: records.calendarSeconds)
            }
            let scope = records.flights[flight].originScope
            if retryAfter != nil || response.status == 429
                || records.originGovernor.recordOutageURL(of: scope, url: records.flights[flight].url.description)
            {
                reportFlightEvent(.originRefused(flight, retryAfter: retryAfter))
                Origins.beginCoolDown(scope, retryAfter: retryAfter, now: now, in: &records)
            }
        } else {
            records.originGovernor.nonOutageAnswerReceived(records.flights[flight].originScope)
            Origins.probeEnded(flight, isAnswered: true, in: &records)
        }
        if records.flights[flight].jar != nil {
            Cookies.storeReceivedCookies(fields, for: records.flights[flight].request, in: &records)
        }
        evaluateResponse(response, fields, for: flight, now: now)
    }

    /// Evaluates the response of an origin or of another node: passes it to the cache, or decides the next step.
    mutating func evaluateResponse(
        _ response: consuming Outcome.Response, _ fields: HeaderFields, for flight: Handle<Flight>, now: MonotonicTime
    ) {
        if records.shellFeatures.isCaching,
            let step = Cache.responseReceived(
                response, fields, for: flight,
                triesAgain: Flights.willRetry(flight, after: response.status, in: &records), now: now, in: &records)
        {
            performStep(step, of: flight, now: now)
        } else {
            performStep(nextStep(of: flight, afterResponse: response, fields, now: now), of: flight, now: now)
        }
    }

    /// Returns the next step after a response of an origin, of another node or of the cache.
    private mutating func nextStep(
        of flight: Handle<Flight>, afterResponse response: consuming Outcome.Response, _ fields: HeaderFields,
        now: MonotonicTime
    ) -> FlightStep {
        // Merged fields of an earlier response, or those of a user's own worker, can exceed the limit of a RESULT.
        guard response.headerFields.count <= WireLimits.responseFieldBytes else {
            records.releaseResponse(response)
            return .failure(.protocolError, of: flight, in: &records)
        }
        makeFlightPrivateIfNeeded(flight, fields)
        if Flights.mayMismatchRequests(flight, after: response.status, in: &records) {
            guard !restartMismatchedRequests(of: flight, response, fields) else { return .noFurtherAction }
            if let step = Flights.stepWithoutConditions(of: flight, after: response, in: &records) { return step }
        }
        let redirect = redirectOutcome(of: flight, response.status, fields)
        switch redirect {
        case .notARedirect: break
        case .follow, .refused, .invalidTarget:
            reportFlightEvent(.redirected(flight, response))
            records.releaseResponse(response)
        }
        return Flights.nextStep(of: flight, after: response, fields, redirect: redirect, now: now, in: &records)
    }

    @inline(__always)
    private mutating func redirectOutcome(
        of flight: Handle<Flight>, _ status: Int, _ fields: HeaderFields
    ) -> RedirectOutcome {
        guard (300..<400).contains(status) else { return .notARedirect }
        let record = records.flights[flight]
        let rule = RedirectRule(mode: record.redirect, hopLimit: records.limits.maximumRedirectHops)
        return rule.outcome(
            status: status, response: fields, request: record.request, hops: 0,
            ancestors: record.servesSingleRequest ? records.flights.ancestors(of: flight) : [],
            hosts: records.shellFeatures.hostNameEncoder,
            withCookies: { Cookies.replaceCookies(inRedirected: $0, in: &records) })
    }

    /// Makes a flight wait for the flight of its redirect's target. Begins that flight if there is none.
    private mutating func followRedirect(
        _ next: HTTPRequest, by flight: Handle<Flight>, after status: Int
    ) -> FlightStep {
        records.flights[redirectsAndFailuresOf: flight].redirectStatus = status
        let record = records.flights[flight]
        let (child, isNew) = openFlight(
            next, redirect: record.redirect, partition: record.partition,
            servesSingleRequest: record.servesSingleRequest,
            body: next.method == record.method ? record.body : nil, mode: record.cacheMode,
            isExact: record.requiresEqualFields)
        if isNew {
            let sender = records.requests.requestHeads[.flight(flight)]?.client ?? RequestHeads.noClientID
            records.countRequestHead(
                of: next, for: .flight(child), of: sender, by: records.principalOfOldestRequest(of: flight))
        }
        return Flights.followRedirect(child, isNew: isNew, by: flight, in: &records)
    }

    /// Ends a flight whose chain of redirects has become too long. The flight that it followed continues for its other
    /// requests.
    private mutating func failTooManyRedirects(_ flight: Handle<Flight>, now: MonotonicTime) -> FlightStep {
        guard case .following(let child) = records.flights[flight].phase else {
            preconditionFailure("flight \(records.flights[flight].id) follows none")
        }
        records.flights.stopFollowing(child, by: flight)
        let failure = Outcome.failure(.tooManyRedirects, of: flight, in: &records)
        let step = concludeFlight(flight, with: records.outcomes.insertWithOneReference(failure), now: now)
        endFlightIfUnwanted(child)
        return step
    }

    // MARK: Requests that begin again

    /// Assigns a flight to the principal of its first request if users may not share a response with these fields.
    @inline(__always)
    private mutating func makeFlightPrivateIfNeeded(_ flight: Handle<Flight>, _ fields: HeaderFields) {
        guard records.principals.count > 1, records.flights[flight].partition == nil else { return }
        makeFlightPrivate(flight, fields)
    }

    @inline(never)
    private mutating func makeFlightPrivate(_ flight: Handle<Flight>, _ fields: HeaderFields) {
        guard let separation = Principals.unshareableRequests(of: flight, fields, in: &records) else { return }
        if separation.newPartition != nil { reportFlightEvent(.responseWithheld(flight)) }
        for interest in separation.detachedInterests {
            guard let former = records.requests[interest].flight else { continue }
            let start = Flights.detachFromFlight(former, interest, in: &records)
            // Its first request needs the flight with the response. A flight that was redirected to it may be empty.
            if case .following = records.flights[former].phase { endFlightIfUnwanted(former) }
            let principal = records.principal(of: interest)
            restartRequest(interest, start, partition: Principals.exclusivePartition(of: principal, in: &records))
        }
        if let partition = separation.newPartition { records.flights.isolateFlight(flight, in: partition) }
    }

    /// Restarts the requests of a flight that do not match its response. Returns true if none is left, so that the
    /// flight has ended.
    @inline(never)
    private mutating func restartMismatchedRequests(
        of flight: Handle<Flight>, _ response: Outcome.Response, _ fields: HeaderFields
    ) -> Bool {
        let leaving = Flights.requestsMismatched(by: fields, of: flight, in: &records)
        guard !leaving.isEmpty else { return false }
        var formers: [Handle<Flight>] = []
        var starts: [Flights.FlightParameters] = []
        for interest in leaving {
            guard let former = records.requests[interest].flight else { continue }
            formers.append(former)
            starts.append(Flights.detachFromFlight(former, interest, in: &records))
        }
        let isLeft =
            records.flights.interests(of: flight).isEmpty && !records.flights[flight].isRevalidation
            && !records.flights[flight].isAwaitedByOtherNodes
        if isLeft {
            records.releaseResponse(response)
            for parent in records.flights.detachParents(of: flight) { freeFlight(parent) }
            freeFlight(flight)
        } else {
            for former in formers where former != flight && records.flights.contains(former) {
                endFlightIfUnwanted(former)
            }
        }
        for (interest, start) in zip(leaving, starts) {
            restartRequest(interest, start, partition: start.partition, isExact: true)
        }
        return isLeft
    }

    /// Attaches a request to a flight for its first URL.
    ///
    /// - Parameter isExact: whether only requests with the same fields may share the flight.
    private mutating func restartRequest(
        _ interest: Handle<Interest>, _ start: Flights.FlightParameters, partition: String?, isExact: Bool = false
    ) {
        Flights.releaseRequestFields(of: interest, in: &records)
        let sender = records.requests[interest].owner.map { records.clients[$0].id } ?? RequestHeads.noClientID
        let flight = openFlight(
            start.request, redirect: start.redirect, partition: partition, servesSingleRequest: false, body: nil,
            mode: start.mode, isExact: isExact)
        joinOpenedFlight(flight, start.request, for: interest, start.options, of: sender)
    }

    // MARK: Outcomes

    /// Ends one request with its own failure. The flight continues for the others.
    mutating func endSingleRequest(_ interest: Handle<Interest>, _ code: FailureCode, now: MonotonicTime) {
        endSingleRequest(
            interest, Outcome.failure(code, of: records.lastRedirectedFlight(ofOpen: interest), in: &records), now: now)
    }

    mutating func endSingleRequest(_ interest: Handle<Interest>, _ failure: Outcome, now: MonotonicTime) {
        guard !records.isAwaitingRemoval(interest) else {
            removeRequest(interest)
            return
        }
        detachRequest(interest)
        endRequest(interest, with: records.outcomes.insert(failure), now: now)
    }

    /// Ends a flight and all requests that waited for it with an outcome. May instead return a step that uses a stored
    /// response in place of a failure.
    private mutating func concludeFlight(
        _ flight: Handle<Flight>, with outcome: Handle<Outcome>, now: MonotonicTime
    ) -> FlightStep {
        if records.shellFeatures.isCaching,
            let step = Cache.useStaleResponse(for: flight, after: outcome, now: now, in: &records)
        {
            return step
        }
        guard !records.flights.retainOutcomeIfDeferred(outcome, of: flight) else {
            reportFlightEvent(.flightUnneeded(flight))
            return .noFurtherAction
        }
        reportFlightEvent(.attemptConcluded(flight, outcome, allowed: nil))
        if let start = Flights.recordFlightEnd(flight, with: outcome, in: &records) {
            requestTimes.transferHistogram.recordDuration(
                from: start, to: records.outcomes[outcome].response?.endedAt ?? start)
            records.ledger.flights.responseBodyBytes &+= records.outcomes[outcome].response?.bodyLength ?? 0
        }
        endRequests(of: flight, with: outcome, now: now)
        return .noFurtherAction
    }

    /// Ends the requests of a flight with its outcome, and then the flight. With more requests than
    /// `CoreLimits.maximumFlightRequestEndsPerPass` this takes several passes, so that a flight with 100,000 requests
    /// does not stop the bus.
    private mutating func endRequests(of flight: Handle<Flight>, with outcome: Handle<Outcome>, now: MonotonicTime) {
        let start = Flights.transferStartTime(of: outcome, in: &records)
        var budget = max(records.limits.maximumFlightRequestEndsPerPass, 1)
        while true {
            let next = records.flights.nextFlightToEnd(upTo: flight)
            if let interest = records.flights[next].interests.first {
                guard budget > 0 else {
                    Flights.endInSlices(flight, with: outcome, in: &records)
                    return
                }
                budget -= 1
                records.queue.remove(interest)
                records.flights.detachInterest(interest, from: next)
                endDetachedRequest(interest, with: outcome, transferStartedAt: start, now: now)
                continue
            }
            guard next != flight else { break }
            if case .following(let child) = records.flights[next].phase {
                records.flights.stopFollowing(child, by: next)
            }
            freeFlight(next)
        }
        _ = records.flights.takeRetainedOutcome(of: flight)
        freeFlight(flight)
        records.releaseOutcome(outcome)
    }

    /// Whether requests of ended flights remain to be ended.
    package var isEndingRequests: Bool { records.flights.nextFlightEndingInSlices != nil }

    /// Ends one slice of the requests of a flight that has ended. The flights take turns. Called once per pass.
    package mutating func continueEndingRequests(now: MonotonicTime) {
        if let next = records.flights.nextFlightEndingInSlices {
            endRequests(of: next.flight, with: next.outcome, now: now)
        }
    }

    /// Ends some of the requests of a flight with the outcome of its attempt. The flight continues for the others.
    private mutating func endInterests(
        _ ending: [Handle<Interest>], of flight: Handle<Flight>, with outcome: Handle<Outcome>, now: MonotonicTime
    ) {
        reportFlightEvent(.attemptConcluded(flight, outcome, allowed: nil))
        let start = Flights.recordFlightEnd(flight, with: outcome, in: &records)
        for interest in ending {
            guard let former = records.requests[interest].flight else { continue }
            records.flights.detachInterest(interest, from: former)
            // A flight that was redirected to this one may now be empty.
            if former != flight { endFlightIfUnwanted(former) }
            endDetachedRequest(interest, with: outcome, transferStartedAt: start, now: now)
        }
        records.releaseOutcome(outcome)
    }

    /// Ends a request that has left the chain of its flight.
    @inline(__always)
    private mutating func endDetachedRequest(
        _ interest: Handle<Interest>, with outcome: Handle<Outcome>, transferStartedAt start: MonotonicTime?,
        now: MonotonicTime
    ) {
        records.requests[interest].flight = nil
        if records.isAwaitingRemoval(interest) {
            removeRequest(interest)
        } else if let own = Flights.individualOutcome(of: interest, insteadOf: outcome, in: &records) {
            let start = own.failure == nil ? start : nil
            endRequest(interest, with: records.outcomes.insert(own), transferStartedAt: start, now: now)
        } else {
            // A durable request gets its form when its result has been stored.
            let formed = records.isDurable(interest) ? outcome : outcomeInDemandedForm(outcome, for: interest)
            endRequest(interest, with: formed, transferStartedAt: start, now: now)
            if formed != outcome { records.releaseOutcome(formed) }
        }
    }
}
