internal import EarshotHTTP
internal import EarshotWire

/// The end of an attempt: a redirect, a retry, or an outcome for all waiting requests.
extension BrokerCore {
    /// Carries out a step of a flight, and those that follow from it. The only place where one step leads to the next.
    mutating func apply(_ first: consuming FlightStep, to flight: Handle<Flight>, now: Tick) {
        var step = first
        while true {
            switch consume step {
            case .done: return
            case .judge(let response, let fields): step = judge(flight, response, fields, now: now)
            case .queue(let isFirst): return enqueue(flight: flight, first: isFirst)
            case .conclude(let outcome): step = conclude(flight, with: outcome, now: now)
            case .forget: return forget(flight)
            case .failRedirected(let farthest):
                for flight in farthest {
                    guard case .following(let child) = records.flights[flight].phase else {
                        preconditionFailure("flight \(records.flights[flight].id) follows none")
                    }
                    // The followed flight continues for its other requests.
                    records.flights.unfollow(child, by: flight)
                    fail(flight, .tooManyRedirects, now: now)
                    dropIfUnwanted(child)
                }
                return
            }
        }
    }

    /// Handles the response of an origin: cool-down and cookies, then the cache and the requests.
    mutating func responded(_ flight: Handle<Flight>, _ response: Outcome.Response, now: Tick) {
        let fields = HeaderFields(lines: response.fields)
        if Self.asksToWait(response.status) {
            let asked = fields.first("retry-after").flatMap { RetryAfter($0, now: records.calendarSeconds) }
            let scope = records.flights[flight].scope
            if asked != nil || response.status == 429
                || records.governor.isOutage(of: scope, url: records.flights[flight].url.description)
            {
                report(.refused(flight, asked: asked))
                Origins.cool(scope, asked: asked, now: now, in: &records)
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
        _ response: Outcome.Response, _ fields: HeaderFields, for flight: Handle<Flight>, now: Tick
    ) {
        if records.facilities.isCaching,
            let step = Cache.received(
                response, fields, for: flight, triesAgain: triesAgain(flight, after: response.status), now: now,
                in: &records)
        {
            apply(step, to: flight, now: now)
        } else {
            apply(judge(flight, response, fields, now: now), to: flight, now: now)
        }
    }

    /// Decides between a redirect, a retry and an outcome for a response of an origin or of the cache.
    private mutating func judge(
        _ flight: Handle<Flight>, _ response: Outcome.Response, _ fields: HeaderFields, now: Tick
    ) -> FlightStep {
        // Merged fields of an earlier response, or those of a user's own worker, can exceed the limit of a RESULT.
        guard response.fields.count <= WireLimits.responseFieldBytes else {
            records.drop(response)
            return conclude(flight, with: failure(.protocolError, of: flight), now: now)
        }
        let attempts = Int(records.flights[flight].attempts)
        separateUsers(of: flight, fields)
        guard !mayBeginAgain(flight, after: response.status) || !beginAgain(flight, after: response, fields, now: now)
        else { return .done }
        switch redirect(of: flight, response.status, fields) {
        case .follow(let next):
            report(.redirected(flight, response))
            records.drop(response)
            guard !endIfHostedOnly(flight) else { return .done }
            return follow(flight, next, after: response.status, now: now)
        case .refused(let code):
            report(.redirected(flight, response))
            records.drop(response)
            return conclude(flight, with: Outcome(failure: code, attempts: attempts), now: now)
        case .invalidTarget(let error):
            report(.redirected(flight, response))
            records.drop(response)
            let detail = Self.sentence(error, ofTarget: fields.first("location") ?? "")
            return conclude(flight, with: Outcome(failure: .malformedURL, detail: detail, attempts: attempts), now: now)
        case .notARedirect where response.status >= 400 && records.flights[flight].route.deliversErrors:
            guard !response.isCut else {
                records.drop(response)
                return conclude(flight, with: failure(.protocolError, of: flight), now: now)
            }
            return conclude(flight, with: Outcome(response: response, attempts: attempts), now: now)
        case .notARedirect where response.status >= 400 && response.source != nil:
            return conclude(
                flight, with: Outcome(failure: .httpStatus, response: response, attempts: attempts), now: now)
        case .notARedirect where response.status >= 400:
            return retryOrFail(flight, .httpStatus, response, now: now)
        case .notARedirect:
            return conclude(flight, with: Outcome(response: response, attempts: attempts), now: now)
        }
    }

    @inline(__always)
    private mutating func redirect(of flight: Handle<Flight>, _ status: Int, _ fields: HeaderFields) -> RedirectOutcome
    {
        guard (300..<400).contains(status) else { return .notARedirect }
        let record = records.flights[flight]
        let rule = RedirectRule(mode: record.redirect, hopLimit: records.limits.redirectHops)
        return rule.outcome(
            status: status, response: fields, request: record.request, hops: 0,
            ancestors: record.isAlone ? records.flights.ancestors(of: flight) : [], hosts: records.facilities.hosts,
            withCookies: { Cookies.replace(inRedirected: $0, in: &records) })
    }

    /// Describes an invalid target of a redirect by its fault and its start, without user information and query.
    static func sentence(_ error: FetchURL.ParseError, ofTarget target: String) -> String {
        let visible = target.prefix { $0 != "?" && $0 != "#" }
        let bare = visible.lastIndex(of: "@").map { visible[visible.index(after: $0)...] } ?? visible
        let start = bare.utf8.prefix(targetBytes).map { (0x20...0x7e).contains($0) ? $0 : UInt8(ascii: "?") }
        let isCut = bare.utf8.count > targetBytes
        // The next step in a description is for the one who wrote the URL.
        let fault = error.description.prefix { $0 != ";" }
        return "The server redirects to \(String(decoding: start, as: UTF8.self))\(isCut ? "..." : ""): \(fault)"
    }

    /// Maximum bytes of a redirect's target in a detail.
    private static let targetBytes = 80

    /// Makes a flight wait for the flight of its redirect's target, which other requests may share.
    private mutating func follow(_ flight: Handle<Flight>, _ next: HTTPRequest, after status: Int, now: Tick)
        -> FlightStep
    {
        records.flights[extras: flight].redirectStatus = status
        let record = records.flights[flight]
        let (child, isNew) = openFlight(
            next, redirect: record.redirect, partition: record.partition, isAlone: record.isAlone,
            body: next.method == record.method ? record.body : nil, mode: record.mode, isExact: record.isExact)
        if isNew {
            let sender = records.requests.heads[.flight(flight)]?.client ?? RequestHeads.nobody
            records.holdHead(of: next, for: .flight(child), of: sender, by: records.firstPrincipal(of: flight))
        }
        guard records.flights.leaf(of: child) != flight else {
            return conclude(flight, with: failure(.redirectLoop, of: flight), now: now)
        }
        records.flights.follow(child, by: flight)
        records.flights[child].timeoutMilliseconds = max(
            records.flights[child].timeoutMilliseconds, records.flights[flight].timeoutMilliseconds)
        records.flights[child].retries = max(records.flights[child].retries, records.flights[flight].retries)
        if isNew {
            let history = records.flights[extras: flight]
            records.flights[extras: child].workerDeaths = history.workerDeaths
            records.flights[extras: child].isAccused = history.isAccused
        }
        let leaf = records.flights.leaf(of: child)
        if case .queued = records.flights[leaf].phase {
            forEachInterest(of: flight) { core, interest in core.enqueue(interest, for: leaf) }
        }
        return .failRedirected(records.flights.tooFar(flight, hops: records.limits.redirectHops))
    }

    /// Retries a flight after a pause, or lets it end with this failure. Counts the failure.
    ///
    /// - Parameter isAskedToWait: whether a proxy requested the pause.
    mutating func retryOrFail(
        _ flight: Handle<Flight>, _ code: FailureCode, _ response: Outcome.Response?, detail: String? = nil,
        isAskedToWait: Bool = false, now: Tick
    ) -> FlightStep {
        records.flights[extras: flight].failures += 1
        records.flights[extras: flight].fruitless += 1
        let (record, history) = (records.flights[flight], records.flights[extras: flight])
        let decision = RetryRule().decision(
            after: code, status: response?.status, method: record.method, attempts: Int(history.failures),
            fruitless: Int(history.fruitless), retries: Int(record.retries), random: records.generator.next())
        switch decision {
        case .retry(let pause):
            let leaving = interestsTriedOnce(of: flight)
            let outcome = Outcome(
                failure: code, detail: detail, response: response, attempts: Int(record.attempts))
            guard
                leaving.isEmpty || record.isRevalidation || leaving.count < records.flights.interests(of: flight).count
            else {
                return conclude(flight, with: outcome, now: now)
            }
            records.ledger.flights.retried += 1
            let scope = record.scope
            let isAnswerToWait = response.map { Self.asksToWait($0.status) } ?? false
            let waitsForOrigin = (isAskedToWait || isAnswerToWait) && records.governor.isCoolingDown(scope)
            if !leaving.isEmpty {
                conclude(leaving, of: flight, with: outcome, now: now)
            } else {
                reportFailure(of: flight, outcome)
            }
            guard !endIfHostedOnly(flight) else { return .done }
            if waitsForOrigin {
                enqueue(flight: flight, first: !records.governor.hasProbed(scope, record.id))
                return .done
            }
            let at = now.advanced(byNanoseconds: pause)
            records.flights.backOff(flight, until: at)
            records.setTimer(at, .retry(records.flights.name(of: flight)))
            return .done
        case .giveUp:
            return conclude(
                flight,
                with: Outcome(failure: code, detail: detail, response: response, attempts: Int(record.attempts)),
                now: now)
        }
    }

    /// Requests of a flight that end with its present attempt, also if another one follows. O(requests).
    private mutating func interestsTriedOnce(of flight: Handle<Flight>) -> [Handle<Interest>] {
        records.flights.interests(of: flight).filter { records.requests[$0].isTriedOnce }
    }

    /// Ends some of the requests of a flight with the outcome of its attempt. The flight continues for the others.
    mutating func conclude(
        _ leaving: [Handle<Interest>], of flight: Handle<Flight>, with outcome: Outcome, now: Tick
    ) {
        var outcome = outcome
        if outcome.response == nil { outcome.url = records.flights[flight].url.description }
        let number = records.outcomes.insert(outcome)
        records.outcomes.retain(number)
        report(.concluded(flight, number, allowed: nil))
        if records.flights.hasParents(flight), outcome.response != nil { noteRedirects(to: flight, before: []) }
        for interest in leaving {
            guard let former = records.requests[interest].flight else { continue }
            records.requests[interest].flight = nil
            records.flights.detach(interest, from: former)
            // One that was redirected to the flight may be empty.
            if former != flight { dropIfUnwanted(former) }
            conclude(interest, with: number, outcome, transferStartedAt: outcome.response?.startedAt, now: now)
        }
        records.release(number)
    }

    /// Whether another attempt follows a response with this status, so that the response is not stored.
    private mutating func triesAgain(_ flight: Handle<Flight>, after status: Int) -> Bool {
        guard FailureCode.httpStatus.isRetryable(status: status) else { return false }
        let record = records.flights[flight]
        guard !record.route.deliversErrors else { return false }
        let history = records.flights[extras: flight]
        let decision = RetryRule().decision(
            after: .httpStatus, status: status, method: record.method, attempts: Int(history.failures) + 1,
            fruitless: Int(history.fruitless) + 1, retries: Int(record.retries), random: 0)
        return decision != .giveUp
    }

    /// Whether a status means that the origin is overloaded: 429 (RFC 6585, section 4) or 503 (RFC 9110, section
    /// 15.6.4).
    static func asksToWait(_ status: Int) -> Bool { status == 429 || status == 503 }

    /// Ends a flight with a failure that has no response.
    ///
    /// - Parameter detail: sentence that replaces the standard sentence of the code; nil for the standard one.
    mutating func fail(_ flight: Handle<Flight>, _ code: FailureCode, detail: String? = nil, now: Tick) {
        end(flight, failure(code, of: flight, detail: detail), now: now)
    }

    /// Outcome of a flight with a failure that has no response.
    @inline(__always)
    private func failure(_ code: FailureCode, of flight: Handle<Flight>, detail: String? = nil) -> Outcome {
        Outcome(failure: code, detail: detail, attempts: Int(records.flights[flight].attempts))
    }

    /// Handles a body that exceeded the attempt's limit. Requests that allow no more fail; the others are queued again
    /// with their own limits.
    ///
    /// - Parameter allowed: limit in the attempt's JOB, without raises: a RAISE may have arrived too late.
    mutating func requeueOrFailTooLarge(_ flight: Handle<Flight>, allowed: Int?, now: Tick) {
        guard let allowed else {
            fail(flight, .tooLarge, now: now)
            return
        }
        var exceeded: [Handle<Interest>] = []
        var others = 0
        records.forEachInterest(of: flight) { records, interest in
            let number = records.requests[interest].extras
            let limit = if let number { records.requests[number].maxBytes } else { Int?.none }
            if let limit, limit <= allowed { exceeded.append(interest) } else { others += 1 }
        }
        // A request that rejoins a flight without requests may allow more.
        guard others > 0 || !records.flights.isAwaited(flight) else {
            fail(flight, .tooLarge, now: now)
            return
        }
        enqueue(flight: flight, first: true)
        for interest in exceeded { endAlone(interest, .tooLarge, now: now) }
    }

    /// Ends one request with its own failure. The flight continues for the others.
    mutating func endAlone(_ interest: Handle<Interest>, _ code: FailureCode, now: Tick) {
        let attempts = records.flights[records.leaf(ofOpen: interest)].attempts
        endAlone(interest, Outcome(failure: code, attempts: Int(attempts)), now: now)
    }

    mutating func endAlone(_ interest: Handle<Interest>, _ failure: Outcome, now: Tick) {
        guard !records.isDoomed(interest) else {
            removeRequest(interest)
            return
        }
        var outcome = failure
        outcome.url = records.flights[records.leaf(ofOpen: interest)].url.description
        detach(interest)
        endRequest(interest, with: records.outcomes.insert(outcome), now: now)
    }

    /// Ends a flight with an outcome, unless a stored response replaces a failure.
    mutating func end(_ flight: Handle<Flight>, _ outcome: Outcome, now: Tick) {
        apply(conclude(flight, with: outcome, now: now), to: flight, now: now)
    }

    /// Ends a flight and settles all requests that waited for it with its outcome.
    ///
    /// - Returns: the use of a stored response in place of a failure; otherwise nothing.
    private mutating func conclude(
        _ flight: Handle<Flight>, with outcome: Outcome, now: Tick
    ) -> FlightStep {
        if records.facilities.isCaching, let step = Cache.useStale(for: flight, after: outcome, now: now, in: &records)
        {
            return step
        }
        guard !records.flights.keep(outcome, of: flight) else {
            report(.left(flight))
            return .done
        }
        var outcome = outcome
        if outcome.response == nil { outcome.url = records.flights[flight].url.description }
        let number = records.outcomes.insert(outcome)
        records.outcomes.retain(number)
        report(.concluded(flight, number, allowed: nil))
        var start: Tick?
        if let response = outcome.response, response.source == nil {
            start = response.startedAt
            times.transfer.observe(from: response.startedAt, to: response.endedAt)
            records.ledger.flights.bytes &+= response.length
        }
        if records.flights.hasParents(flight), outcome.response != nil { noteRedirects(to: flight, before: []) }
        let (waiting, redirected) = records.flights.detachAll(from: flight)
        for flight in redirected { forget(flight) }
        forget(flight)
        for interest in waiting {
            records.queue.remove(interest)
            records.requests[interest].flight = nil
            conclude(interest, with: number, outcome, transferStartedAt: start, now: now)
        }
        records.release(number)
        return .done
    }

    /// Ends a request that has left its flight.
    ///
    /// - Parameter outcome: the record of the outcome.
    @inline(__always)
    private mutating func conclude(
        _ interest: Handle<Interest>, with number: Handle<Outcome>, _ outcome: Outcome, transferStartedAt start: Tick?,
        now: Tick
    ) {
        if records.isDoomed(interest) {
            removeRequest(interest)
        } else if hasConditions(interest), let notModified = notModified(outcome, for: interest) {
            endRequest(interest, with: records.outcomes.insert(notModified), transferStartedAt: start, now: now)
        } else if let code = objection(of: interest, to: outcome) {
            endRequest(interest, with: records.outcomes.insert(outcome.replaced(by: code)), now: now)
        } else {
            // A durable request gets its form when its result has been stored.
            let formed = records.isDurable(interest) ? number : formed(number, for: interest)
            endRequest(interest, with: formed, transferStartedAt: start, now: now)
            if formed != number { records.release(formed) }
        }
    }

    /// Notes the redirects to a flight for the terminals of the requests. O(requests that were redirected to it).
    ///
    /// - Parameter later: redirects after those to this flight.
    private mutating func noteRedirects(to flight: Handle<Flight>, before later: [Terminal.Redirect]) {
        let url = records.flights[flight].url.description
        for parent in records.flights.parents(of: flight) {
            let redirects =
                [Terminal.Redirect(status: records.flights[extras: parent].redirectStatus, url: url)] + later
            let listed = redirects.bounded
            for interest in records.flights.ownInterests(of: parent) {
                records.requests.changeExtras(of: interest) { $0.redirects = listed }
            }
            noteRedirects(to: parent, before: redirects)
        }
    }

    /// Reason why an outcome fails one request although it serves the others: its size limit or digest.
    @inline(__always)
    private func objection(of interest: Handle<Interest>, to outcome: Outcome) -> FailureCode? {
        guard outcome.failure == nil, let response = outcome.response, let number = records.requests[interest].extras
        else {
            return nil
        }
        if let limit = records.requests[number].maxBytes, response.length > limit { return .tooLarge }
        if let digest = records.requests[number].digest, digest != response.sha256 { return .digestMismatch }
        return nil
    }
}
