internal import EarshotHTTP
internal import EarshotWire

/// Requests that share a flight although their HTTP fields differ: in conditions, and with `decode: no` in the fields
/// that `HTTPRequest.coalescingFields` leaves out.
///
/// The server gets the fields of the request that began the flight, and conditions only if all requests have the same
/// ones. When the response is known, each request gets the response, or a 304 by its own conditions. One that the
/// response does not suit begins again, in a flight of requests with the same fields.
extension Flights {
    /// Parameters with which a request can begin a new flight.
    struct FlightParameters {
        let request: HTTPRequest
        let redirect: RedirectMode
        let partition: String?
        let mode: CacheMode
        let options: Fetch.Options
    }

    // MARK: Fields

    /// Keeps the fields of a request that joins a flight, if they differ from those of the flight. They count against
    /// the budget of the sender.
    static func retainRequestFields(
        of request: HTTPRequest, for interest: Handle<Interest>, _ flight: Handle<Flight>, of client: ClientID,
        in records: inout Records
    ) {
        guard records.flights[flight].headerFields != request.fields else { return }
        records.requests.updateRareOptions(of: interest) { $0.ownHeaderFields = request.fields }
        records.countRequestHead(
            of: request, for: .joinedRequest(interest), of: client, by: records.principal(of: interest))
    }

    static func releaseRequestFields(of interest: Handle<Interest>, in records: inout Records) {
        guard let number = records.requests[interest].rareOptions, records.requests[number].ownHeaderFields != nil
        else { return }
        records.requests[number].ownHeaderFields = nil
        records.uncountRequestHead(of: .joinedRequest(interest))
    }

    /// Detaches a request from its flight. Returns the parameters of that flight, with the fields of the request.
    static func detachFromFlight(
        _ former: Handle<Flight>, _ interest: Handle<Interest>, in records: inout Records
    ) -> FlightParameters {
        let record = records.flights[former]
        var request = record.request
        var options = Fetch.Options()
        options.timeoutMilliseconds = Int(record.timeoutMilliseconds)
        options.retries = records.requests[interest].endsAfterOneAttempt ? 0 : Int(record.maximumRetries)
        if let number = records.requests[interest].rareOptions {
            options.delivery = records.requests[number].demandedBodyForm
            options.maximumBodyBytes = records.requests[number].maximumBodyBytes
            if let fields = records.requests[number].ownHeaderFields { request.fields = fields }
        }
        records.queue.remove(interest)
        records.requests[interest].flight = nil
        records.flights.detachInterest(interest, from: former)
        return FlightParameters(
            request: request, redirect: record.redirect, partition: record.partition, mode: record.cacheMode,
            options: options)
    }

    /// Whether a response with this status may not suit all requests of a flight.
    @inline(__always)
    static func mayMismatchRequests(_ flight: Handle<Flight>, after status: Int, in records: inout Records) -> Bool {
        !records.flights[flight].route.decodesBody || status == 304
    }

    /// Requests that a response with these fields does not suit.
    static func requestsMismatched(
        by fields: HeaderFields, of flight: Handle<Flight>, in records: inout Records
    ) -> [Handle<Interest>] {
        guard !records.flights[flight].route.decodesBody, !records.flights[flight].requiresEqualFields else {
            return []
        }
        let shared = records.flights[flight].request
        return records.flights.interests(of: flight).filter { interest in
            guard !records.isAwaitingRemoval(interest), let own = requestFields(of: interest, in: &records) else {
                return false
            }
            var request = shared
            request.fields = own
            return !request.acceptsResponse(fields, to: shared)
        }
    }

    /// Whether a streaming request may read the growing body of a response with these fields, which are empty while the
    /// head is unknown: the response suits it.
    static func mayReadGrowingBody(
        _ response: HeaderFields, _ interest: Handle<Interest>, in records: inout Records
    ) -> Bool {
        let leaf = records.lastRedirectedFlight(ofOpen: interest)
        guard !records.flights[leaf].route.decodesBody, !records.flights[leaf].requiresEqualFields else { return true }
        let shared = records.flights[leaf].request
        guard let own = requestFields(of: interest, in: &records), own != shared.fields else { return true }
        var request = shared
        request.fields = own
        return !response.isEmpty && request.acceptsResponse(response, to: shared)
    }

    /// Fields of a request: its own, or those of the flight that it began.
    private static func requestFields(of interest: Handle<Interest>, in records: inout Records) -> HeaderFields? {
        if let number = records.requests[interest].rareOptions, let fields = records.requests[number].ownHeaderFields {
            return fields
        }
        return records.requests[interest].flight.map { records.flights[$0].headerFields }
    }

    // MARK: Conditions

    /// Plans to send the conditions that all requests of a flight have in common, unless the cache has a response to
    /// validate, or the flight is not only for them.
    @inline(__always)
    static func planConditionalRequest(of flight: Handle<Flight>, isResuming: Bool, in records: inout Records) {
        if !records.cachePlans.isEmpty { records.cachePlans[flight]?.requestConditions = nil }
        guard !isResuming, records.clusterState == nil, let first = records.flights.firstInterest(of: flight),
            let conditions = conditions(of: first, in: &records)
        else { return }
        storePlannedConditions(conditions, of: flight, in: &records)
    }

    @inline(never)
    private static func storePlannedConditions(
        _ conditions: RequestConditions, of flight: Handle<Flight>, in records: inout Records
    ) {
        guard !records.flights[flight].isRevalidation, records.cachePlans[flight]?.storedVariant == nil,
            records.flights.interests(of: flight).allSatisfy({ self.conditions(of: $0, in: &records) == conditions })
        else { return }
        records.cachePlans[flight, default: CachePlan()].requestConditions = conditions
    }

    @inline(__always)
    private static func conditions(of interest: Handle<Interest>, in records: inout Records) -> RequestConditions? {
        guard let number = records.requests[interest].rareOptions else { return nil }
        return records.requests[number].clientConditions
    }

    /// The step after a 304 that the server sent because of conditions: the requests with these conditions end, and the
    /// flight is repeated for those that have joined it with others. Nil if the response goes to all requests.
    static func stepWithoutConditions(
        of flight: Handle<Flight>, after response: Outcome.Response, in records: inout Records
    ) -> FlightStep? {
        guard response.status == 304, response.cacheSource == nil,
            let sent = records.cachePlans[flight]?.requestConditions
        else {
            return nil
        }
        let waiting = records.flights.interests(of: flight)
        let met = waiting.filter { conditions(of: $0, in: &records) == sent }
        guard waiting.isEmpty || met.count < waiting.count else { return nil }
        records.cachePlans[flight]?.requestConditions = nil
        guard waiting.isEmpty else {
            let outcome = Outcome(response: response, attempts: Int(records.flights[flight].assignedAttemptCount))
            return .retryFlight(after: records.outcomes.insertWithOneReference(outcome), ending: met, .immediately)
        }
        // A request that rejoined the flight would get the 304.
        records.releaseResponse(response)
        return .discardFlight
    }

    /// A 304 in place of the response of a flight, if the request's conditions are met. PROGRESS may have named the
    /// response of a transfer to a streaming request.
    @inline(never)
    static func notModifiedOutcome(
        _ outcome: Outcome, _ response: Outcome.Response, for number: Handle<Interest.RareOptions>,
        in records: inout Records
    ) -> Outcome? {
        guard let conditions = records.requests[number].clientConditions, response.status == 200,
            response.cacheSource != nil || !records.requests[number].isStreaming
        else { return nil }
        let fields = HeaderFields(lines: response.headerFields)
        guard conditions.areMet(by: fields, now: records.calendarSeconds) else { return nil }
        var unchanged = response
        unchanged.status = 304
        unchanged.headerFields = RequestConditions.notModifiedFields(fields).bytes
        (unchanged.bodyLength, unchanged.resumedBytes, unchanged.isBodyOmitted) = (0, 0, false)
        (unchanged.sha256, unchanged.body, unchanged.bodyGeneration) = (nil, nil, nil)
        return Outcome(response: unchanged, attempts: outcome.attempts)
    }
}
