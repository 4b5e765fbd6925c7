internal import EarshotHTTP
internal import EarshotWire

/// Requests that share a flight although their HTTP fields differ: in conditions, and with `decode: no` in the fields
/// that `HTTPRequest.sharedFields` leaves out.
///
/// The server gets the fields of the request that began the flight, and conditions only if all requests have the same
/// ones. When the response is known, each request gets the response, or a 304 by its own conditions. One that the
/// response does not suit begins again, in a flight of requests with the same fields.
extension BrokerCore {
    /// Beginning of a request's flights, from which it can begin again.
    struct FlightStart {
        let request: HTTPRequest
        let redirect: RedirectMode
        let partition: String?
        let mode: CacheMode
        let options: Fetch.Options
    }

    /// Attaches a request to the flight for its content.
    ///
    /// - Parameter client: sender, whose budget a new flight's head counts against.
    mutating func wait(
        _ interest: Handle<Interest>, for request: HTTPRequest, _ options: Fetch.Options, body: BodyID?,
        of client: ClientID
    ) {
        // By all fields: a validator may identify a user.
        let partition = Principals.partition(of: interest, request, options, in: &records)
        // Without a variable for both requests: a copy costs a twentieth of a submission.
        if options.coalesces, !request.fields.isEmpty,
            let (plain, conditions) = RequestConditions.separated(from: request)
        {
            records.requests.changeExtras(of: interest) { $0.conditions = conditions }
            joinOrBegin(plain, partition, for: interest, options, body: body, of: client)
        } else {
            joinOrBegin(request, partition, for: interest, options, body: body, of: client)
        }
    }

    /// Keeps the fields of a request that joins a flight, if they differ from those of the flight.
    mutating func keepFields(
        of request: HTTPRequest, for interest: Handle<Interest>, _ flight: Handle<Flight>, of client: ClientID
    ) {
        guard records.flights[flight].fields != request.fields else { return }
        records.requests.changeExtras(of: interest) { $0.fields = request.fields }
        records.holdHead(of: request, for: .joined(interest), of: client, by: records.principal(of: interest))
    }

    private mutating func dropFields(of interest: Handle<Interest>) {
        guard let number = records.requests[interest].extras, records.requests[number].fields != nil else { return }
        records.requests[number].fields = nil
        records.releaseHead(of: .joined(interest))
    }

    // MARK: Beginning again

    /// Detaches a request from its flight.
    ///
    /// - Returns: the beginning of that flight, with the fields of the request.
    mutating func leave(_ former: Handle<Flight>, _ interest: Handle<Interest>) -> FlightStart {
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
        return FlightStart(
            request: request, redirect: record.redirect, partition: record.partition, mode: record.mode,
            options: options)
    }

    /// Attaches a request to a flight from its beginning.
    ///
    /// - Parameter isExact: whether only requests with the same fields share the flight.
    mutating func beginAgain(
        _ interest: Handle<Interest>, _ start: FlightStart, partition: String?, isExact: Bool = false
    ) {
        dropFields(of: interest)
        let (flight, isNew) = openFlight(
            start.request, redirect: start.redirect, partition: partition, isAlone: false, body: nil,
            mode: start.mode, isExact: isExact)
        let sender = records.requests[interest].owner.map { records.clients[$0].id } ?? RequestHeads.nobody
        if isNew {
            records.holdHead(of: start.request, for: .flight(flight), of: sender, by: records.principal(of: interest))
        } else if !start.request.route.decodes {
            keepFields(of: start.request, for: interest, flight, of: sender)
        }
        attach(interest, to: flight, start.options, joined: !isNew)
    }

    // MARK: Users

    /// Gives a flight to the principal of its first request if users may not share a response with these fields.
    @inline(__always)
    mutating func separateUsers(of flight: Handle<Flight>, _ fields: HeaderFields) {
        guard records.principals.count > 1, records.flights[flight].partition == nil else { return }
        separate(flight, fields)
    }

    @inline(never)
    private mutating func separate(_ flight: Handle<Flight>, _ fields: HeaderFields) {
        guard let separation = Principals.separation(of: flight, fields, in: &records) else { return }
        if separation.partition != nil { report(.withheld(flight)) }
        for interest in separation.leaving {
            guard let former = records.requests[interest].flight else { continue }
            let start = leave(former, interest)
            // The flight with the response is needed by its first request. One that was redirected to it may be empty.
            if case .following = records.flights[former].phase { dropIfUnwanted(former) }
            let principal = records.principal(of: interest)
            beginAgain(interest, start, partition: Principals.ownPartition(of: principal, in: &records))
        }
        if let partition = separation.partition { records.flights.isolate(flight, in: partition) }
    }

    // MARK: Fields

    /// Whether a response with this status may not suit all requests of a flight.
    @inline(__always)
    func mayBeginAgain(_ flight: Handle<Flight>, after status: Int) -> Bool {
        !records.flights[flight].route.decodes || status == 304
    }

    /// Lets the requests of a flight begin again that its response does not suit.
    ///
    /// - Returns: whether the response needs nothing further.
    @inline(never)
    mutating func beginAgain(
        _ flight: Handle<Flight>, after response: Outcome.Response, _ fields: HeaderFields, now: Tick
    ) -> Bool {
        separateReaders(of: flight, response, fields)
            || continuesWithoutConditions(flight, after: response, now: now)
    }

    /// - Returns: whether the flight has ended, because no request is left.
    private mutating func separateReaders(
        of flight: Handle<Flight>, _ response: Outcome.Response, _ fields: HeaderFields
    ) -> Bool {
        guard !records.flights[flight].route.decodes, !records.flights[flight].isExact else { return false }
        let asked = records.flights[flight].request
        let leaving = records.flights.interests(of: flight).filter { interest in
            guard !records.isDoomed(interest), let own = ownFields(of: interest) else { return false }
            var request = asked
            request.fields = own
            return !request.isSuited(by: fields, to: asked)
        }
        guard !leaving.isEmpty else { return false }
        var formers: [Handle<Flight>] = []
        var starts: [FlightStart] = []
        for interest in leaving {
            guard let former = records.requests[interest].flight else { continue }
            formers.append(former)
            starts.append(leave(former, interest))
        }
        let isLeft =
            records.flights.interests(of: flight).isEmpty && !records.flights[flight].isRevalidation
            && !records.flights[flight].isHosted
        if isLeft {
            records.drop(response)
            let (_, redirected) = records.flights.detachAll(from: flight)
            for parent in redirected { forget(parent) }
            forget(flight)
        } else {
            for former in formers where former != flight && records.flights.contains(former) { dropIfUnwanted(former) }
        }
        for (interest, start) in zip(leaving, starts) {
            beginAgain(interest, start, partition: start.partition, isExact: true)
        }
        return isLeft
    }

    /// Whether a streaming request may read the growing body of a response with these fields, which are empty while the
    /// head is unknown: the response suits it.
    func mayRead(_ response: HeaderFields, _ interest: Handle<Interest>) -> Bool {
        let leaf = records.leaf(ofOpen: interest)
        guard !records.flights[leaf].route.decodes, !records.flights[leaf].isExact else { return true }
        let asked = records.flights[leaf].request
        guard let own = ownFields(of: interest), own != asked.fields else { return true }
        var request = asked
        request.fields = own
        return !response.isEmpty && request.isSuited(by: response, to: asked)
    }

    /// Fields of a request: its own, or those of the flight that it began.
    private func ownFields(of interest: Handle<Interest>) -> HeaderFields? {
        if let number = records.requests[interest].extras, let fields = records.requests[number].fields {
            return fields
        }
        return records.requests[interest].flight.map { records.flights[$0].fields }
    }

    // MARK: Conditions

    /// Plans to send the conditions that all requests of a flight have in common, unless the cache has a response to
    /// validate, or the flight is not only for them.
    @inline(__always)
    mutating func planConditions(of flight: Handle<Flight>, isResuming: Bool) {
        if !records.cachePlans.isEmpty { records.cachePlans[flight]?.conditions = nil }
        guard !isResuming, records.cluster == nil, let first = records.flights.firstInterest(of: flight),
            let number = records.requests[first].extras, let conditions = records.requests[number].conditions
        else { return }
        plan(conditions, of: flight)
    }

    @inline(never)
    private mutating func plan(_ conditions: RequestConditions, of flight: Handle<Flight>) {
        guard !records.flights[flight].isRevalidation, records.cachePlans[flight]?.stored == nil,
            records.flights.interests(of: flight).allSatisfy({ self.conditions(of: $0) == conditions })
        else { return }
        records.cachePlans[flight, default: CachePlan()].conditions = conditions
    }

    private func conditions(of interest: Handle<Interest>) -> RequestConditions? {
        records.requests[interest].extras.flatMap { records.requests[$0].conditions }
    }

    /// Ends the requests whose conditions the server has met with a 304, and queues the flight again for those that
    /// have joined it with others.
    ///
    /// - Returns: whether the response needs nothing further.
    private mutating func continuesWithoutConditions(
        _ flight: Handle<Flight>, after response: Outcome.Response, now: Tick
    ) -> Bool {
        guard response.status == 304, response.source == nil, let sent = records.cachePlans[flight]?.conditions else {
            return false
        }
        let waiting = records.flights.interests(of: flight)
        let met = waiting.filter { conditions(of: $0) == sent }
        guard waiting.isEmpty || met.count < waiting.count else { return false }
        records.cachePlans[flight]?.conditions = nil
        guard !waiting.isEmpty else {
            // A request that rejoined the flight would get the 304.
            records.drop(response)
            forget(flight)
            return true
        }
        let attempts = Int(records.flights[flight].attempts)
        conclude(met, of: flight, with: Outcome(response: response, attempts: attempts), now: now)
        enqueue(flight: flight, first: true)
        return true
    }

    @inline(__always)
    func hasConditions(_ interest: Handle<Interest>) -> Bool {
        guard let number = records.requests[interest].extras else { return false }
        return records.requests[number].conditions != nil
    }

    /// A 304 in place of the outcome of a flight, if a request has conditions that its response meets. PROGRESS may
    /// have named the response of a transfer to a streaming request.
    @inline(never)
    func notModified(_ outcome: Outcome, for interest: Handle<Interest>) -> Outcome? {
        guard let number = records.requests[interest].extras, let conditions = records.requests[number].conditions,
            outcome.failure == nil, let response = outcome.response, response.status == 200,
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
