internal import EarshotHTTP
internal import EarshotWire

/// Flights: the step after an attempt, redirects, and the requests that one outcome ends. The functions return the next
/// step of the flight.
enum Flights {
    /// Decides between a redirect, a retry and an outcome for a response of an origin or of the cache.
    ///
    /// - Parameter redirect: the result of the rule of redirects. The body of a redirect is dropped already.
    static func step(
        of flight: Handle<Flight>, after response: consuming Outcome.Response, _ fields: HeaderFields,
        redirect: RedirectOutcome, now: Tick, in records: inout Records
    ) -> FlightStep {
        switch redirect {
        case .follow(let next): return .follow(next, status: response.status)
        case .refused(let code): return .failure(code, of: flight, in: &records)
        case .invalidTarget(let error):
            let detail = sentence(error, ofTarget: fields.first("location") ?? "")
            return .failure(.malformedURL, of: flight, detail: detail, in: &records)
        case .notARedirect: break
        }
        let isError = response.status >= 400
        if isError, !records.flights[flight].route.deliversErrors {
            guard response.source != nil else { return failed(flight, .httpStatus, response, now: now, in: &records) }
            let attempts = Int(records.flights[flight].attempts)
            return .conclude(
                records.outcomes.insertRetained(Outcome(failure: .httpStatus, response: response, attempts: attempts)))
        }
        guard !isError || !response.isCut else {
            records.drop(response)
            return .failure(.protocolError, of: flight, in: &records)
        }
        let attempts = Int(records.flights[flight].attempts)
        return .conclude(records.outcomes.insertRetained(Outcome(response: response, attempts: attempts)))
    }

    /// Counts a failed attempt, and decides between a retry and the failure.
    ///
    /// - Parameter isPauseRequested: whether a proxy requested the pause.
    static func failed(
        _ flight: Handle<Flight>, _ code: FailureCode, _ response: Outcome.Response? = nil, detail: String? = nil,
        isPauseRequested: Bool = false, now: Tick, in records: inout Records
    ) -> FlightStep {
        records.flights[extras: flight].failures += 1
        records.flights[extras: flight].failedAttempts += 1
        let record = records.flights[flight]
        var failure = Outcome.failure(code, of: flight, detail: detail, in: &records)
        if let response { (failure.response, failure.url) = (response, nil) }
        let outcome = records.outcomes.insertRetained(failure)
        let random = records.generator.next()
        guard case .retry(let pause) = decision(of: flight, code, response?.status, random: random, in: &records)
        else { return .conclude(outcome) }
        let waiting = records.flights.interests(of: flight)
        let ending = waiting.filter { records.requests[$0].isTriedOnce }
        guard ending.isEmpty || record.isRevalidation || ending.count < waiting.count else { return .conclude(outcome) }
        records.ledger.flights.retried += 1
        let waitsForOrigin =
            (isPauseRequested || response?.isOverloaded == true) && records.governor.isCoolingDown(record.scope)
        return .retry(
            after: outcome, ending: ending,
            waitsForOrigin ? .afterCoolDown : .at(now.advanced(byNanoseconds: pause)))
    }

    /// Begins the pause before the next attempt.
    static func backOff(_ flight: Handle<Flight>, until end: Tick, in records: inout Records) {
        records.flights.backOff(flight, until: end)
        records.setTimer(end, .retry(records.flights.name(of: flight)))
    }

    /// Whether another attempt follows a response with this status, so that the response is not stored.
    static func triesAgain(_ flight: Handle<Flight>, after status: Int, in records: inout Records) -> Bool {
        FailureCode.httpStatus.isRetryable(status: status) && !records.flights[flight].route.deliversErrors
            && decision(of: flight, .httpStatus, status, uncounted: 1, random: 0, in: &records) != .fail
    }

    /// - Parameter uncounted: number of failed attempts that are not counted yet.
    private static func decision(
        of flight: Handle<Flight>, _ code: FailureCode, _ status: Int?, uncounted: Int = 0, random: UInt64,
        in records: inout Records
    ) -> RetryDecision {
        let (record, history) = (records.flights[flight], records.flights[extras: flight])
        return RetryRule().decision(
            after: code, status: status, method: record.method, attempts: Int(history.failures) + uncounted,
            failedAttempts: Int(history.failedAttempts) + uncounted, retries: Int(record.retries), random: random)
    }

    /// Handles a body that exceeded the attempt's limit. Requests that allow no more fail; the others are queued again
    /// with their own limits.
    ///
    /// - Parameter allowed: limit in the attempt's JOB, without raises: a RAISE may have arrived too late.
    static func sizeExceeded(_ flight: Handle<Flight>, allowed: Int?, in records: inout Records) -> FlightStep {
        var exceeded: [Handle<Interest>] = []
        var others = 0
        records.forEachInterest(of: flight) { records, interest in
            let limit = records.requests[interest].extras.flatMap { records.requests[$0].maxBytes }
            if let limit, let allowed, limit <= allowed { exceeded.append(interest) } else { others += 1 }
        }
        // A request that rejoins a flight without requests may allow more.
        guard allowed != nil, others > 0 || !records.flights.isAwaited(flight) else {
            return .failure(.tooLarge, of: flight, in: &records)
        }
        return .tooLarge(for: exceeded)
    }

    // MARK: Redirects

    /// Makes a flight wait for the flight of its redirect's target, which is new or which other requests share.
    static func followRedirect(
        _ child: Handle<Flight>, isNew: Bool, by flight: Handle<Flight>, in records: inout Records
    ) -> FlightStep {
        guard records.flights.leaf(of: child) != flight else {
            return .failure(.redirectLoop, of: flight, in: &records)
        }
        records.flights.followRedirect(child, by: flight)
        let (timeout, retries) = (records.flights[flight].timeoutMilliseconds, records.flights[flight].retries)
        raiseLimits(of: child, timeoutMilliseconds: timeout, retries: retries, in: &records)
        if isNew {
            let history = records.flights[extras: flight]
            records.flights[extras: child].workerDeaths = history.workerDeaths
            records.flights[extras: child].isSuspected = history.isSuspected
        }
        return .followed(tooFar: records.flights.tooFar(flight, hops: records.limits.redirectHops))
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

    /// Notes the redirects to a flight, and those after it, for the terminals of the requests. O(redirected requests).
    private static func noteRedirects(
        to flight: Handle<Flight>, before later: [Terminal.Redirect] = [], in records: inout Records
    ) {
        let url = records.flights[flight].url.description
        for parent in records.flights.parents(of: flight) {
            let redirects =
                [Terminal.Redirect(status: records.flights[extras: parent].redirectStatus, url: url)] + later
            let listed = redirects.bounded
            for interest in records.flights.ownInterests(of: parent) {
                records.requests.changeExtras(of: interest) { $0.redirects = listed }
            }
            noteRedirects(to: parent, before: redirects, in: &records)
        }
    }

    // MARK: Outcomes

    /// Counts an outcome with which a flight ends, and notes the redirects to it.
    ///
    /// - Returns: the start of the transfer; nil without one.
    @inline(__always)
    static func concluded(_ flight: Handle<Flight>, with outcome: Handle<Outcome>, in records: inout Records) -> Tick? {
        guard records.outcomes[outcome].response != nil else { return nil }
        if records.flights.hasParents(flight) { noteRedirects(to: flight, in: &records) }
        return transferStart(of: outcome, in: &records)
    }

    /// Leaves the requests of a flight that has ended, beyond a slice, to later passes.
    static func endLater(_ flight: Handle<Flight>, with outcome: Handle<Outcome>, in records: inout Records) {
        guard records.flights.endLater(flight, with: outcome) else { return }
        records.forEachInterest(of: flight) { records, interest in records.queue.remove(interest) }
    }

    /// The start of the transfer of an outcome; nil without one.
    @inline(__always)
    static func transferStart(of outcome: Handle<Outcome>, in records: inout Records) -> Tick? {
        let response = records.outcomes[outcome].response
        return response?.source == nil ? response?.startedAt : nil
    }

    /// The outcome of one request where that of its flight does not serve it: a 304 by its own conditions, or a failure by
    /// its size limit or digest. Nil if it gets the flight's outcome.
    @inline(__always)
    static func ownOutcome(
        of interest: Handle<Interest>, insteadOf outcome: Handle<Outcome>, in records: inout Records
    ) -> Outcome? {
        guard let number = records.requests[interest].extras else { return nil }
        return ownOutcome(ofExtras: number, insteadOf: outcome, in: &records)
    }

    @inline(never)
    private static func ownOutcome(
        ofExtras number: Handle<Interest.Extras>, insteadOf handle: Handle<Outcome>, in records: inout Records
    ) -> Outcome? {
        let outcome = records.outcomes[handle]
        guard outcome.failure == nil, let response = outcome.response else { return nil }
        if records.requests[number].conditions != nil,
            let notModified = notModified(outcome, response, for: number, in: &records)
        {
            return notModified
        }
        if let limit = records.requests[number].maxBytes, response.length > limit {
            return outcome.replaced(by: .tooLarge)
        }
        if let digest = records.requests[number].digest, digest != response.sha256 {
            return outcome.replaced(by: .digestMismatch)
        }
        return nil
    }

    /// Raises timeout and retries of a flight, and of the flights it was redirected to, to those of its newest request.
    static func raiseLimits(of flight: Handle<Flight>, to options: Fetch.Options, in records: inout Records) {
        let timeout = UInt32(clamping: options.timeoutMilliseconds)
        let retries = UInt8(clamping: options.retries)
        var next = flight
        while true {
            raiseLimits(of: next, timeoutMilliseconds: timeout, retries: retries, in: &records)
            guard case .following(let child) = records.flights[next].phase else { return }
            next = child
        }
    }

    @inline(__always)
    static func raiseLimits(
        of flight: Handle<Flight>, timeoutMilliseconds: UInt32, retries: UInt8 = 0, in records: inout Records
    ) {
        records.flights[flight].timeoutMilliseconds = max(
            records.flights[flight].timeoutMilliseconds, timeoutMilliseconds)
        records.flights[flight].retries = max(records.flights[flight].retries, retries)
    }

    /// Inserts a new flight in phase `queued`, without interests and not yet in the queue.
    static func begin(
        _ request: HTTPRequest, redirect: RedirectMode, partition: String?, _ key: FlightKey,
        scope: Handle<OriginScope>, isAlone: Bool, body: BodyID?, in records: inout Records
    ) -> Handle<Flight> {
        records.governor.flightJoined(scope)
        let flight = records.flights.begin(
            request, redirect: redirect, partition: partition, key, scope: scope, isAlone: isAlone, body: body)
        if let body { records.requests.bodies.retain(body) }
        records.ledger.flights.started += 1
        return flight
    }
}
