internal import EarshotHTTP
internal import EarshotWire

/// Steps of flights: the step after an attempt, and the beginning and end of flights. `Flights` decides.
extension BrokerCore {
    // MARK: Steps

    /// Carries out a step of a flight, and those that follow from it. The only place where one step leads to the next.
    mutating func apply(_ first: consuming FlightStep, to flight: Handle<Flight>, now: Tick) {
        var (step, flight) = (first, flight)
        var tooFar: [Handle<Flight>] = []
        while true {
            switch consume step {
            case .done: break
            case .judge(let response, let fields):
                step = judgeResponse(flight, response, fields, now: now)
                continue
            case .follow(let next, let status):
                guard !endIfHostedOnly(flight) else { break }
                step = followRedirect(next, by: flight, after: status)
                continue
            case .followed(let farthest):
                let leaf = records.flights.leaf(of: flight)
                if case .queued = records.flights[leaf].phase {
                    forEachInterest(of: flight) { core, interest in core.enqueue(interest, for: leaf) }
                }
                tooFar = farthest
            case .retry(let outcome, let ending, let start):
                if ending.isEmpty {
                    reportFailure(of: flight, outcome)
                } else {
                    end(ending, of: flight, with: outcome, now: now)
                }
                guard !endIfHostedOnly(flight) else { break }
                retry(flight, start)
            case .tooLarge(let exceeded):
                enqueue(flight: flight, first: true)
                for interest in exceeded { endAlone(interest, .tooLarge, now: now) }
            case .queue(let isFirst): enqueue(flight: flight, first: isFirst)
            case .conclude(let outcome):
                step = conclude(flight, with: outcome, now: now)
                continue
            case .forget: forget(flight)
            }
            guard !tooFar.isEmpty else { return }
            flight = tooFar.removeFirst()
            step = leaveChain(flight, now: now)
        }
    }

    /// Ends a flight with a failure that has no response. A detail replaces the standard sentence of the code.
    mutating func fail(_ flight: Handle<Flight>, _ code: FailureCode, detail: String? = nil, now: Tick) {
        apply(.failure(code, of: flight, detail: detail, in: &records), to: flight, now: now)
    }

    private mutating func retry(_ flight: Handle<Flight>, _ start: FlightStep.Start) {
        switch start {
        case .atOnce: enqueue(flight: flight, first: true)
        case .afterCoolDown:
            let isFirst = !records.governor.hasProbed(records.flights[flight].scope, records.flights[flight].id)
            enqueue(flight: flight, first: isFirst)
        case .at(let time): Flights.backOff(flight, until: time, in: &records)
        }
    }

    // MARK: Responses

    /// Handles the response of an origin: cool-down and cookies, then the cache and the requests.
    mutating func responded(_ flight: Handle<Flight>, _ response: consuming Outcome.Response, now: Tick) {
        let fields = HeaderFields(lines: response.fields)
        if response.isOverloaded {
            let retryAfter = fields.first("retry-after").flatMap { RetryAfter($0, now: records.calendarSeconds) }
            let scope = records.flights[flight].scope
            if retryAfter != nil || response.status == 429
                || records.governor.isOutage(of: scope, url: records.flights[flight].url.description)
            {
                report(.refused(flight, retryAfter: retryAfter))
                Origins.cool(scope, retryAfter: retryAfter, now: now, in: &records)
            }
        } else {
            records.governor.answered(records.flights[flight].scope)
            Origins.probeEnded(flight, isAnswered: true, in: &records)
        }
        if records.flights[flight].jar != nil {
            Cookies.received(fields, for: records.flights[flight].request, in: &records)
        }
        evaluate(response, fields, for: flight, now: now)
    }

    /// Gives a response from outside to the cache, and to the requests of its flight.
    mutating func evaluate(
        _ response: consuming Outcome.Response, _ fields: HeaderFields, for flight: Handle<Flight>, now: Tick
    ) {
        if records.features.isCaching,
            let step = Cache.received(
                response, fields, for: flight,
                triesAgain: Flights.triesAgain(flight, after: response.status, in: &records), now: now, in: &records)
        {
            apply(step, to: flight, now: now)
        } else {
            apply(judgeResponse(flight, response, fields, now: now), to: flight, now: now)
        }
    }

    /// Decides about a response of an origin or of the cache.
    private mutating func judgeResponse(
        _ flight: Handle<Flight>, _ response: consuming Outcome.Response, _ fields: HeaderFields, now: Tick
    ) -> FlightStep {
        // Merged fields of an earlier response, or those of a user's own worker, can exceed the limit of a RESULT.
        guard response.fields.count <= WireLimits.responseFieldBytes else {
            records.drop(response)
            return .failure(.protocolError, of: flight, in: &records)
        }
        separateUsers(of: flight, fields)
        if Flights.mayBeginAgain(flight, after: response.status, in: &records) {
            guard !separateReaders(of: flight, response, fields) else { return .done }
            if let step = Flights.stepWithoutConditions(of: flight, after: response, in: &records) { return step }
        }
        let redirect = redirect(of: flight, response.status, fields)
        switch redirect {
        case .notARedirect: break
        case .follow, .refused, .invalidTarget:
            report(.redirected(flight, response))
            records.drop(response)
        }
        return Flights.step(of: flight, after: response, fields, redirect: redirect, now: now, in: &records)
    }

    @inline(__always)
    private mutating func redirect(of flight: Handle<Flight>, _ status: Int, _ fields: HeaderFields) -> RedirectOutcome
    {
        guard (300..<400).contains(status) else { return .notARedirect }
        let record = records.flights[flight]
        let rule = RedirectRule(mode: record.redirect, hopLimit: records.limits.redirectHops)
        return rule.outcome(
            status: status, response: fields, request: record.request, hops: 0,
            ancestors: record.isAlone ? records.flights.ancestors(of: flight) : [], hosts: records.features.hosts,
            withCookies: { Cookies.replace(inRedirected: $0, in: &records) })
    }

    /// Makes a flight wait for the flight of its redirect's target, which is begun if there is none.
    private mutating func followRedirect(_ next: HTTPRequest, by flight: Handle<Flight>, after status: Int)
        -> FlightStep
    {
        records.flights[extras: flight].redirectStatus = status
        let record = records.flights[flight]
        let (child, isNew) = openFlight(
            next, redirect: record.redirect, partition: record.partition, isAlone: record.isAlone,
            body: next.method == record.method ? record.body : nil, mode: record.mode, isExact: record.isExact)
        if isNew {
            let sender = records.requests.heads[.flight(flight)]?.client ?? RequestHeads.noClient
            records.holdHead(of: next, for: .flight(child), of: sender, by: records.firstPrincipal(of: flight))
        }
        return Flights.followRedirect(child, isNew: isNew, by: flight, in: &records)
    }

    /// Ends a flight whose chain of redirects has become too long. The flight that it followed continues for its other
    /// requests.
    private mutating func leaveChain(_ flight: Handle<Flight>, now: Tick) -> FlightStep {
        guard case .following(let child) = records.flights[flight].phase else {
            preconditionFailure("flight \(records.flights[flight].id) follows none")
        }
        records.flights.unfollow(child, by: flight)
        let failure = Outcome.failure(.tooManyRedirects, of: flight, in: &records)
        let step = conclude(flight, with: records.outcomes.insertRetained(failure), now: now)
        dropIfUnwanted(child)
        return step
    }

    // MARK: Requests that begin again

    /// Gives a flight to the principal of its first request if users may not share a response with these fields.
    @inline(__always)
    private mutating func separateUsers(of flight: Handle<Flight>, _ fields: HeaderFields) {
        guard records.principals.count > 1, records.flights[flight].partition == nil else { return }
        separate(flight, fields)
    }

    @inline(never)
    private mutating func separate(_ flight: Handle<Flight>, _ fields: HeaderFields) {
        guard let separation = Principals.separation(of: flight, fields, in: &records) else { return }
        if separation.partition != nil { report(.withheld(flight)) }
        for interest in separation.leaving {
            guard let former = records.requests[interest].flight else { continue }
            let start = Flights.leaveFlight(former, interest, in: &records)
            // The flight with the response is needed by its first request. One that was redirected to it may be empty.
            if case .following = records.flights[former].phase { dropIfUnwanted(former) }
            let principal = records.principal(of: interest)
            beginAgain(interest, start, partition: Principals.ownPartition(of: principal, in: &records))
        }
        if let partition = separation.partition { records.flights.isolate(flight, in: partition) }
    }

    /// Lets the requests of a flight begin again that its response does not suit. True if none is left, so that the
    /// flight has ended.
    @inline(never)
    private mutating func separateReaders(
        of flight: Handle<Flight>, _ response: Outcome.Response, _ fields: HeaderFields
    ) -> Bool {
        let leaving = Flights.unsuitedRequests(by: fields, of: flight, in: &records)
        guard !leaving.isEmpty else { return false }
        var formers: [Handle<Flight>] = []
        var starts: [Flights.Start] = []
        for interest in leaving {
            guard let former = records.requests[interest].flight else { continue }
            formers.append(former)
            starts.append(Flights.leaveFlight(former, interest, in: &records))
        }
        let isLeft =
            records.flights.interests(of: flight).isEmpty && !records.flights[flight].isRevalidation
            && !records.flights[flight].isHosted
        if isLeft {
            records.drop(response)
            for parent in records.flights.detachParents(of: flight) { forget(parent) }
            forget(flight)
        } else {
            for former in formers where former != flight && records.flights.contains(former) { dropIfUnwanted(former) }
        }
        for (interest, start) in zip(leaving, starts) {
            beginAgain(interest, start, partition: start.partition, isExact: true)
        }
        return isLeft
    }

    /// Attaches a request to a flight from its beginning; to an exact one if only requests with the same fields share it.
    private mutating func beginAgain(
        _ interest: Handle<Interest>, _ start: Flights.Start, partition: String?, isExact: Bool = false
    ) {
        Flights.dropFields(of: interest, in: &records)
        let sender = records.requests[interest].owner.map { records.clients[$0].id } ?? RequestHeads.noClient
        let flight = openFlight(
            start.request, redirect: start.redirect, partition: partition, isAlone: false, body: nil,
            mode: start.mode, isExact: isExact)
        join(flight, start.request, for: interest, start.options, of: sender)
    }

    // MARK: Outcomes

    /// Ends one request with its own failure. The flight continues for the others.
    mutating func endAlone(_ interest: Handle<Interest>, _ code: FailureCode, now: Tick) {
        endAlone(
            interest, Outcome.failure(code, of: records.leaf(ofOpen: interest), in: &records), now: now)
    }

    mutating func endAlone(_ interest: Handle<Interest>, _ failure: Outcome, now: Tick) {
        guard !records.isDoomed(interest) else {
            removeRequest(interest)
            return
        }
        detach(interest)
        endRequest(interest, with: records.outcomes.insert(failure), now: now)
    }

    /// Ends a flight and all requests that waited for it with an outcome, or returns the use of a stored response in place
    /// of a failure.
    private mutating func conclude(_ flight: Handle<Flight>, with outcome: Handle<Outcome>, now: Tick) -> FlightStep {
        if records.features.isCaching, let step = Cache.useStale(for: flight, after: outcome, now: now, in: &records) {
            return step
        }
        guard !records.flights.keepOutcome(outcome, of: flight) else {
            report(.left(flight))
            return .done
        }
        report(.concluded(flight, outcome, allowed: nil))
        if let start = Flights.concluded(flight, with: outcome, in: &records) {
            times.transfer.observe(from: start, to: records.outcomes[outcome].response?.endedAt ?? start)
            records.ledger.flights.bytes &+= records.outcomes[outcome].response?.length ?? 0
        }
        endRequests(of: flight, with: outcome, now: now)
        return .done
    }

    /// Ends the requests of a flight with its outcome, and then the flight. With more requests than `CoreLimits.endsPerPass`
    /// it takes several passes, so that a flight with 100,000 requests does not stop the bus.
    private mutating func endRequests(of flight: Handle<Flight>, with outcome: Handle<Outcome>, now: Tick) {
        let start = Flights.transferStart(of: outcome, in: &records)
        var budget = max(records.limits.endsPerPass, 1)
        while true {
            let next = records.flights.firstAwaited(upTo: flight)
            if let interest = records.flights[next].interests.first {
                guard budget > 0 else {
                    Flights.endLater(flight, with: outcome, in: &records)
                    return
                }
                budget -= 1
                records.queue.remove(interest)
                records.flights.detach(interest, from: next)
                end(interest, with: outcome, transferStartedAt: start, now: now)
                continue
            }
            guard next != flight else { break }
            if case .following(let child) = records.flights[next].phase { records.flights.unfollow(child, by: next) }
            forget(next)
        }
        _ = records.flights.takeOutcome(of: flight)
        forget(flight)
        records.release(outcome)
    }

    /// Whether requests of flights that have ended still wait for their ends.
    package var isEndingRequests: Bool { records.flights.nextToEnd != nil }

    /// Ends one slice of the requests of a flight that has ended. The flights take turns. Called once per pass.
    package mutating func continueEnds(now: Tick) {
        if let next = records.flights.nextToEnd { endRequests(of: next.flight, with: next.outcome, now: now) }
    }

    /// Ends some of the requests of a flight with the outcome of its attempt. The flight continues for the others.
    private mutating func end(
        _ ending: [Handle<Interest>], of flight: Handle<Flight>, with outcome: Handle<Outcome>, now: Tick
    ) {
        report(.concluded(flight, outcome, allowed: nil))
        let start = Flights.concluded(flight, with: outcome, in: &records)
        for interest in ending {
            guard let former = records.requests[interest].flight else { continue }
            records.flights.detach(interest, from: former)
            // One that was redirected to the flight may be empty.
            if former != flight { dropIfUnwanted(former) }
            end(interest, with: outcome, transferStartedAt: start, now: now)
        }
        records.release(outcome)
    }

    /// Ends a request that has left the chain of its flight.
    @inline(__always)
    private mutating func end(
        _ interest: Handle<Interest>, with outcome: Handle<Outcome>, transferStartedAt start: Tick?, now: Tick
    ) {
        records.requests[interest].flight = nil
        if records.isDoomed(interest) {
            removeRequest(interest)
        } else if let own = Flights.ownOutcome(of: interest, insteadOf: outcome, in: &records) {
            let start = own.failure == nil ? start : nil
            endRequest(interest, with: records.outcomes.insert(own), transferStartedAt: start, now: now)
        } else {
            // A durable request gets its form when its result has been stored.
            let formed = records.isDurable(interest) ? outcome : outcomeInDemandedForm(outcome, for: interest)
            endRequest(interest, with: formed, transferStartedAt: start, now: now)
            if formed != outcome { records.release(formed) }
        }
    }
}
