internal import EarshotHTTP
internal import EarshotWire

/// The end of an attempt: a redirect, a retry, or an outcome for all waiting requests.
extension BrokerCore {
    /// Handles the response of an origin: cool-down, cookies, cache, then `judge`.
    mutating func conclude(_ flight: Handle<Flight>, _ response: Outcome.Response, now: Tick) {
        let fields = HeaderFields(lines: response.fields)
        if Self.asksToWait(response.status) {
            let asked = fields.first("retry-after").flatMap { RetryAfter($0, now: calendarSeconds) }
            let scope = flights[flight].scope
            if asked != nil || response.status == 429
                || governor.isOutage(of: scope, url: flights[flight].url.description)
            {
                if cluster != nil { reportRefusal(to: flight, asked: asked) }
                cool(scope, asked: asked, now: now)
            }
        } else {
            governor.answered(flights[flight].scope)
            probeEnded(flight, isAnswered: true)
        }
        if flights[flight].jar != nil { takeCookies(fields, of: flights[flight].request) }
        guard !facilities.isCaching || !takeForCache(flight, response, fields, now: now) else { return }
        judge(flight, response, fields, now: now)
    }

    /// Decides between a redirect, a retry and an outcome for a response of an origin or of the cache.
    mutating func judge(_ flight: Handle<Flight>, _ response: Outcome.Response, _ fields: HeaderFields, now: Tick) {
        // Merged fields of an earlier response, or those of a user's own worker, can exceed the limit of a RESULT.
        guard response.fields.count <= WireLimits.responseFieldBytes else {
            drop(response)
            fail(flight, .protocolError, now: now)
            return
        }
        let attempts = Int(flights[flight].attempts)
        separateUsers(of: flight, fields)
        guard !mayBeginAgain(flight, after: response.status) || !beginAgain(flight, after: response, fields, now: now)
        else { return }
        switch redirect(of: flight, response.status, fields) {
        case .follow(let next):
            if cluster != nil { publish(flight, withoutBody: response) }
            drop(response)
            guard !endIfHostedOnly(flight) else { return }
            follow(flight, next, after: response.status, now: now)
        case .refused(let code):
            if cluster != nil { publish(flight, withoutBody: response) }
            drop(response)
            end(flight, Outcome(failure: code, attempts: attempts), now: now)
        case .invalidTarget(let error):
            if cluster != nil { publish(flight, withoutBody: response) }
            drop(response)
            let detail = Self.sentence(error, ofTarget: fields.first("location") ?? "")
            end(flight, Outcome(failure: .malformedURL, detail: detail, attempts: attempts), now: now)
        case .notARedirect where response.status >= 400 && flights[flight].route.deliversErrors:
            guard !response.isCut else {
                drop(response)
                fail(flight, .protocolError, now: now)
                return
            }
            end(flight, Outcome(response: response, attempts: attempts), now: now)
        case .notARedirect where response.status >= 400 && response.source != nil:
            end(flight, Outcome(failure: .httpStatus, response: response, attempts: attempts), now: now)
        case .notARedirect where response.status >= 400:
            retryOrFail(flight, .httpStatus, response, now: now)
        case .notARedirect:
            end(flight, Outcome(response: response, attempts: attempts), now: now)
        }
    }

    @inline(__always)
    private mutating func redirect(of flight: Handle<Flight>, _ status: Int, _ fields: HeaderFields) -> RedirectOutcome
    {
        guard (300..<400).contains(status) else { return .notARedirect }
        let record = flights[flight]
        let rule = RedirectRule(mode: record.redirect, hopLimit: limits.redirectHops)
        return rule.outcome(
            status: status, response: fields, request: record.request, hops: 0,
            ancestors: record.isAlone ? flights.ancestors(of: flight) : [], hosts: facilities.hosts,
            withCookies: { withCookies(redirected: $0) })
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
    private mutating func follow(_ flight: Handle<Flight>, _ next: HTTPRequest, after status: Int, now: Tick) {
        flights[flight].redirectStatus = status
        let record = flights[flight]
        let (child, isNew) = openFlight(
            next, redirect: record.redirect, partition: record.partition, isAlone: record.isAlone,
            body: next.method == record.method ? record.body : nil, mode: record.mode, isExact: record.isExact)
        if isNew {
            let sender = requestHeads[.flight(flight)]?.client ?? RequestHeads.nobody
            holdHead(of: next, for: .flight(child), of: sender, by: firstPrincipal(of: flight))
        }
        guard flights.leaf(of: child) != flight else {
            fail(flight, .redirectLoop, now: now)
            return
        }
        flights.follow(child, by: flight)
        flights[child].timeoutMilliseconds = max(
            flights[child].timeoutMilliseconds, flights[flight].timeoutMilliseconds)
        flights[child].retries = max(flights[child].retries, flights[flight].retries)
        if isNew {
            flights[child].workerDeaths = flights[flight].workerDeaths
            flights[child].isAccused = flights[flight].isAccused
        }
        let leaf = flights.leaf(of: child)
        if case .queued = flights[leaf].phase {
            forEachInterest(of: flight) { core, interest in core.enqueue(interest, for: leaf) }
        }
        for farthest in flights.tooFar(flight, hops: limits.redirectHops) { failRedirected(farthest, now: now) }
    }

    /// Fails a flight that follows another. The followed flight continues for its other requests.
    private mutating func failRedirected(_ flight: Handle<Flight>, now: Tick) {
        guard case .following(let child) = flights[flight].phase else {
            preconditionFailure("flight \(flights[flight].id) follows none")
        }
        flights.unfollow(child, by: flight)
        fail(flight, .tooManyRedirects, now: now)
        dropIfUnwanted(child)
    }

    /// Retries a flight after a pause, or ends it with this failure. Counts the failure.
    ///
    /// - Parameter isAskedToWait: whether a proxy requested the pause.
    mutating func retryOrFail(
        _ flight: Handle<Flight>, _ code: FailureCode, _ response: Outcome.Response?, detail: String? = nil,
        isAskedToWait: Bool = false, now: Tick
    ) {
        flights[flight].failures += 1
        flights[flight].fruitless += 1
        let record = flights[flight]
        let decision = RetryRule().decision(
            after: code, status: response?.status, method: record.method, attempts: Int(record.failures),
            fruitless: Int(record.fruitless), retries: Int(record.retries), random: generator.next())
        switch decision {
        case .retry(let pause):
            let leaving = interestsTriedOnce(of: flight)
            let outcome = Outcome(
                failure: code, detail: detail, response: response, attempts: Int(record.attempts))
            guard leaving.isEmpty || record.isRevalidation || leaving.count < flights.interests(of: flight).count else {
                end(flight, outcome, now: now)
                return
            }
            ledger.flights.retried += 1
            let scope = record.scope
            let isAnswerToWait = response.map { Self.asksToWait($0.status) } ?? false
            let waitsForOrigin = (isAskedToWait || isAnswerToWait) && governor.isCoolingDown(scope)
            if !leaving.isEmpty {
                conclude(leaving, of: flight, with: outcome, now: now)
            } else if cluster != nil {
                publish(flight, code, response, detail: detail)
            } else if let response {
                drop(response)
            }
            guard !endIfHostedOnly(flight) else { return }
            if waitsForOrigin {
                enqueue(flight: flight, first: !governor.hasProbed(scope, record.id))
                return
            }
            let at = now.advanced(byNanoseconds: pause)
            flights.backOff(flight, until: at)
            setTimer(at, .retry(flights.name(of: flight)))
        case .giveUp:
            let outcome = Outcome(
                failure: code, detail: detail, response: response, attempts: Int(record.attempts))
            end(flight, outcome, now: now)
        }
    }

    /// Requests of a flight that end with its present attempt, also if another one follows. O(requests).
    private func interestsTriedOnce(of flight: Handle<Flight>) -> [Handle<Interest>] {
        flights.interests(of: flight).filter { interests[$0].isTriedOnce }
    }

    /// Ends some of the requests of a flight with the outcome of its attempt. The flight continues for the others.
    mutating func conclude(
        _ leaving: [Handle<Interest>], of flight: Handle<Flight>, with outcome: Outcome, now: Tick
    ) {
        var outcome = outcome
        if outcome.response == nil { outcome.url = flights[flight].url.description }
        let number = outcomes.insert(outcome)
        outcomes.retain(number)
        if cluster != nil { publish(flight, number) }
        if !flights[flight].parents.isEmpty, outcome.response != nil { noteRedirects(to: flight, before: []) }
        for interest in leaving {
            guard let former = interests[interest].flight else { continue }
            interests[interest].flight = nil
            flights.detach(interest, from: former)
            // One that was redirected to the flight may be empty.
            if former != flight { dropIfUnwanted(former) }
            conclude(interest, with: number, outcome, transferStartedAt: outcome.response?.startedAt, now: now)
        }
        release(number)
    }

    /// Whether another attempt follows a response with this status, so that the response is not stored.
    func triesAgain(_ flight: Handle<Flight>, after status: Int) -> Bool {
        guard FailureCode.httpStatus.isRetryable(status: status) else { return false }
        let record = flights[flight]
        guard !record.route.deliversErrors else { return false }
        let decision = RetryRule().decision(
            after: .httpStatus, status: status, method: record.method, attempts: Int(record.failures) + 1,
            fruitless: Int(record.fruitless) + 1, retries: Int(record.retries), random: 0)
        return decision != .giveUp
    }

    /// Whether a status means that the origin is overloaded: 429 (RFC 6585, section 4) or 503 (RFC 9110, section
    /// 15.6.4).
    static func asksToWait(_ status: Int) -> Bool { status == 429 || status == 503 }

    /// Ends a flight with a failure that has no response.
    ///
    /// - Parameter detail: sentence that replaces the standard sentence of the code; nil for the standard one.
    mutating func fail(_ flight: Handle<Flight>, _ code: FailureCode, detail: String? = nil, now: Tick) {
        end(flight, Outcome(failure: code, detail: detail, attempts: Int(flights[flight].attempts)), now: now)
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
        forEachInterest(of: flight) { core, interest in
            let number = core.interests[interest].extras
            let limit = if let number { core.extras[number].maxBytes } else { Int?.none }
            if let limit, limit <= allowed { exceeded.append(interest) } else { others += 1 }
        }
        // A request that rejoins a flight without requests may allow more.
        guard others > 0 || !flights[flight].isAwaited else {
            fail(flight, .tooLarge, now: now)
            return
        }
        enqueue(flight: flight, first: true)
        for interest in exceeded { endAlone(interest, .tooLarge, now: now) }
    }

    /// Ends one request with its own failure. The flight continues for the others.
    mutating func endAlone(_ interest: Handle<Interest>, _ code: FailureCode, now: Tick) {
        let attempts = flights[leaf(ofOpen: interest)].attempts
        endAlone(interest, Outcome(failure: code, attempts: Int(attempts)), now: now)
    }

    mutating func endAlone(_ interest: Handle<Interest>, _ failure: Outcome, now: Tick) {
        guard !isDoomed(interest) else {
            removeRequest(interest)
            return
        }
        var outcome = failure
        outcome.url = flights[leaf(ofOpen: interest)].url.description
        detach(interest)
        settle(interest, with: outcomes.insert(outcome), now: now)
    }

    /// Ends a flight and settles all requests that waited for it with its outcome.
    mutating func end(_ flight: Handle<Flight>, _ outcome: Outcome, now: Tick) {
        guard !facilities.isCaching || !usesStale(for: flight, after: outcome, now: now) else { return }
        guard !flights.keep(outcome, of: flight) else {
            if cluster != nil { leaveCluster(flight) }
            return
        }
        var outcome = outcome
        if outcome.response == nil { outcome.url = flights[flight].url.description }
        let number = outcomes.insert(outcome)
        outcomes.retain(number)
        if cluster != nil { publish(flight, number) }
        var start: Tick?
        if let response = outcome.response, response.source == nil {
            start = response.startedAt
            times.transfer.observe(from: response.startedAt, to: response.endedAt)
            ledger.flights.bytes &+= response.length
        }
        if !flights[flight].parents.isEmpty, outcome.response != nil { noteRedirects(to: flight, before: []) }
        let (waiting, redirected) = flights.detachAll(from: flight)
        for flight in redirected { forget(flight) }
        forget(flight)
        for interest in waiting {
            queue.remove(interest)
            interests[interest].flight = nil
            conclude(interest, with: number, outcome, transferStartedAt: start, now: now)
        }
        release(number)
    }

    /// Ends a request that has left its flight.
    ///
    /// - Parameter outcome: the record of the outcome.
    @inline(__always)
    private mutating func conclude(
        _ interest: Handle<Interest>, with number: Handle<Outcome>, _ outcome: Outcome, transferStartedAt start: Tick?,
        now: Tick
    ) {
        if isDoomed(interest) {
            removeRequest(interest)
        } else if hasConditions(interest), let notModified = notModified(outcome, for: interest) {
            settle(interest, with: outcomes.insert(notModified), transferStartedAt: start, now: now)
        } else if let code = objection(of: interest, to: outcome) {
            settle(interest, with: outcomes.insert(outcome.replaced(by: code)), now: now)
        } else {
            // A durable request gets its form when its result has been stored.
            let formed = isDurable(interest) ? number : formed(number, for: interest)
            settle(interest, with: formed, transferStartedAt: start, now: now)
            if formed != number { release(formed) }
        }
    }

    /// Notes the redirects to a flight for the owners of the requests. O(requests that were redirected to it).
    ///
    /// - Parameter later: redirects after those to this flight.
    private mutating func noteRedirects(to flight: Handle<Flight>, before later: [Terminal.Redirect]) {
        let url = flights[flight].url.description
        for parent in flights.parents(of: flight) {
            let redirects = [Terminal.Redirect(status: flights[parent].redirectStatus, url: url)] + later
            let listed = redirects.bounded
            for interest in flights.ownInterests(of: parent) where interests[interest].owner != nil {
                changeExtras(of: interest) { $0.redirects = listed }
            }
            noteRedirects(to: parent, before: redirects)
        }
    }

    /// Reason why an outcome fails one request although it serves the others: its size limit or digest.
    @inline(__always)
    private func objection(of interest: Handle<Interest>, to outcome: Outcome) -> FailureCode? {
        guard outcome.failure == nil, let response = outcome.response, let number = interests[interest].extras else {
            return nil
        }
        if let limit = extras[number].maxBytes, response.length > limit { return .tooLarge }
        if let digest = extras[number].digest, digest != response.sha256 { return .digestMismatch }
        return nil
    }
}
