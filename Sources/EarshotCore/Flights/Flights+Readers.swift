internal import EarshotHTTP
internal import EarshotWire

/// Requests that share a flight although their HTTP fields differ: in conditions, and with `decode: no` in the fields
/// that `HTTPRequest.sharedFields` leaves out.
///
/// The server gets the fields of the request that began the flight, and conditions only if all requests have the same
/// ones. When the response is known, each request gets the response, or a 304 by its own conditions. One that the
/// response does not suit begins again, in a flight of requests with the same fields.
extension Flights {
    /// Beginning of a request's flights, from which it can begin again.
    struct Start {
        let request: HTTPRequest
        let redirect: RedirectMode
        let partition: String?
        let mode: CacheMode
        let options: Fetch.Options
    }

    // MARK: Fields

    /// Keeps the fields of a request that joins a flight, if they differ from those of the flight. They count against the
    /// budget of the sender.
    static func keepFields(
        of request: HTTPRequest, for interest: Handle<Interest>, _ flight: Handle<Flight>, of client: ClientID,
        in records: inout Records
    ) {
        guard records.flights[flight].fields != request.fields else { return }
        records.requests.changeExtras(of: interest) { $0.fields = request.fields }
        records.holdHead(of: request, for: .joined(interest), of: client, by: records.principal(of: interest))
    }

    static func dropFields(of interest: Handle<Interest>, in records: inout Records) {
        guard let number = records.requests[interest].extras, records.requests[number].fields != nil else { return }
        records.requests[number].fields = nil
        records.releaseHead(of: .joined(interest))
    }

    /// Detaches a request from its flight. Returns the beginning of that flight, with the fields of the request.
    static func leaveFlight(_ former: Handle<Flight>, _ interest: Handle<Interest>, in records: inout Records) -> Start
    {
        let record = records.flights[former]
        var request = record.request
        var options = Fetch.Options()
        options.timeoutMilliseconds = Int(record.timeoutMilliseconds)
        options.retries = records.requests[interest].isTriedOnce ? 0 : Int(record.retries)
        if let number = records.requests[interest].extras {
            options.delivery = records.requests[number].delivery
            options.maxBytes = records.requests[number].maxBytes
            if let fields = records.requests[number].fields { request.fields = fields }
        }
        records.queue.remove(interest)
        records.requests[interest].flight = nil
        records.flights.detach(interest, from: former)
        return Start(
            request: request, redirect: record.redirect, partition: record.partition, mode: record.mode,
            options: options)
    }

    /// Whether a response with this status may not suit all requests of a flight.
    @inline(__always)
    static func mayBeginAgain(_ flight: Handle<Flight>, after status: Int, in records: inout Records) -> Bool {
        !records.flights[flight].route.decodes || status == 304
    }

    /// Requests that a response with these fields does not suit.
    static func unsuitedRequests(
        by fields: HeaderFields, of flight: Handle<Flight>, in records: inout Records
    ) -> [Handle<Interest>] {
        guard !records.flights[flight].route.decodes, !records.flights[flight].isExact else { return [] }
        let shared = records.flights[flight].request
        return records.flights.interests(of: flight).filter { interest in
            guard !records.isDoomed(interest), let own = ownFields(of: interest, in: &records) else { return false }
            var request = shared
            request.fields = own
            return !request.isSuited(by: fields, to: shared)
        }
    }

    /// Whether a streaming request may read the growing body of a response with these fields, which are empty while the
    /// head is unknown: the response suits it.
    static func mayRead(_ response: HeaderFields, _ interest: Handle<Interest>, in records: inout Records) -> Bool {
        let leaf = records.leaf(ofOpen: interest)
        guard !records.flights[leaf].route.decodes, !records.flights[leaf].isExact else { return true }
        let shared = records.flights[leaf].request
        guard let own = ownFields(of: interest, in: &records), own != shared.fields else { return true }
        var request = shared
        request.fields = own
        return !response.isEmpty && request.isSuited(by: response, to: shared)
    }

    /// Fields of a request: its own, or those of the flight that it began.
    private static func ownFields(of interest: Handle<Interest>, in records: inout Records) -> HeaderFields? {
        if let number = records.requests[interest].extras, let fields = records.requests[number].fields {
            return fields
        }
        return records.requests[interest].flight.map { records.flights[$0].fields }
    }

    // MARK: Conditions

    /// Plans to send the conditions that all requests of a flight have in common, unless the cache has a response to
    /// validate, or the flight is not only for them.
    @inline(__always)
    static func planConditions(of flight: Handle<Flight>, isResuming: Bool, in records: inout Records) {
        if !records.cachePlans.isEmpty { records.cachePlans[flight]?.conditions = nil }
        guard !isResuming, records.cluster == nil, let first = records.flights.firstInterest(of: flight),
            let conditions = conditions(of: first, in: &records)
        else { return }
        plan(conditions, of: flight, in: &records)
    }

    @inline(never)
    private static func plan(_ conditions: RequestConditions, of flight: Handle<Flight>, in records: inout Records) {
        guard !records.flights[flight].isRevalidation, records.cachePlans[flight]?.storedVariant == nil,
            records.flights.interests(of: flight).allSatisfy({ self.conditions(of: $0, in: &records) == conditions })
        else { return }
        records.cachePlans[flight, default: CachePlan()].conditions = conditions
    }

    @inline(__always)
    private static func conditions(of interest: Handle<Interest>, in records: inout Records) -> RequestConditions? {
        guard let number = records.requests[interest].extras else { return nil }
        return records.requests[number].conditions
    }

    /// The step after a 304 that the server sent because of conditions: the requests with these conditions end, and the
    /// flight is repeated for those that have joined it with others. Nil if the response goes to all requests.
    static func stepWithoutConditions(
        of flight: Handle<Flight>, after response: Outcome.Response, in records: inout Records
    ) -> FlightStep? {
        guard response.status == 304, response.source == nil, let sent = records.cachePlans[flight]?.conditions else {
            return nil
        }
        let waiting = records.flights.interests(of: flight)
        let met = waiting.filter { conditions(of: $0, in: &records) == sent }
        guard waiting.isEmpty || met.count < waiting.count else { return nil }
        records.cachePlans[flight]?.conditions = nil
        guard waiting.isEmpty else {
            let outcome = Outcome(response: response, attempts: Int(records.flights[flight].attempts))
            return .retry(after: records.outcomes.insertRetained(outcome), ending: met, .atOnce)
        }
        // A request that rejoined the flight would get the 304.
        records.drop(response)
        return .forget
    }

    /// A 304 in place of the response of a flight, if the request's conditions are met. PROGRESS may have named the
    /// response of a transfer to a streaming request.
    @inline(never)
    static func notModified(
        _ outcome: Outcome, _ response: Outcome.Response, for number: Handle<Interest.Extras>, in records: inout Records
    ) -> Outcome? {
        guard let conditions = records.requests[number].conditions, response.status == 200,
            response.source != nil || !records.requests[number].streams
        else { return nil }
        let fields = HeaderFields(lines: response.fields)
        guard conditions.areMet(by: fields, now: records.calendarSeconds) else { return nil }
        var unchanged = response
        unchanged.status = 304
        unchanged.fields = RequestConditions.notModified(fields).bytes
        (unchanged.length, unchanged.resumedBytes, unchanged.isCut) = (0, 0, false)
        (unchanged.sha256, unchanged.body, unchanged.generation) = (nil, nil, nil)
        return Outcome(response: unchanged, attempts: outcome.attempts)
    }
}
