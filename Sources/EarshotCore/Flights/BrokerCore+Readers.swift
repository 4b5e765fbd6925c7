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
        let partition = partition(of: interest, request, options)
        // Without a variable for both requests: a copy costs a twentieth of a submission.
        if options.coalesces, !request.fields.isEmpty,
            let (plain, conditions) = RequestConditions.separated(from: request)
        {
            changeExtras(of: interest) { $0.conditions = conditions }
            joinOrBegin(plain, partition, for: interest, options, body: body, of: client)
        } else {
            joinOrBegin(request, partition, for: interest, options, body: body, of: client)
        }
    }

    /// Changes the extras of a request, which are added if needed.
    mutating func changeExtras(of interest: Handle<Interest>, _ change: (inout Interest.Extras) -> Void) {
        let number = interests[interest].extras ?? extras.insert(Interest.Extras())
        interests[interest].extras = number
        change(&extras[number])
    }

    /// Keeps the fields of a request that joins a flight, if they differ from those of the flight.
    mutating func keepFields(
        of request: HTTPRequest, for interest: Handle<Interest>, _ flight: Handle<Flight>, of client: ClientID
    ) {
        guard flights[flight].fields != request.fields else { return }
        changeExtras(of: interest) { $0.fields = request.fields }
        holdHead(of: request, for: .joined(interest), of: client, by: principal(of: interest))
    }

    private mutating func dropFields(of interest: Handle<Interest>) {
        guard let number = interests[interest].extras, extras[number].fields != nil else { return }
        extras[number].fields = nil
        releaseHead(of: .joined(interest))
    }

    // MARK: Beginning again

    /// Detaches a request from its flight.
    ///
    /// - Returns: the beginning of that flight, with the fields of the request.
    mutating func leave(_ former: Handle<Flight>, _ interest: Handle<Interest>) -> FlightStart {
        let record = flights[former]
        var request = record.request
        var options = Fetch.Options()
        options.timeoutMilliseconds = Int(record.timeoutMilliseconds)
        options.retries = interests[interest].isTriedOnce ? 0 : Int(record.retries)
        if let number = interests[interest].extras {
            options.delivery = extras[number].delivery
            options.maxBytes = extras[number].maxBytes
            if let fields = extras[number].fields { request.fields = fields }
        }
        queue.remove(interest)
        interests[interest].flight = nil
        flights.detach(interest, from: former)
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
        let sender = interests[interest].owner.map { clients[$0].id } ?? RequestHeads.nobody
        if isNew {
            holdHead(of: start.request, for: .flight(flight), of: sender, by: principal(of: interest))
        } else if !start.request.route.decodes {
            keepFields(of: start.request, for: interest, flight, of: sender)
        }
        attach(interest, to: flight, start.options, joined: !isNew)
    }

    // MARK: Fields

    /// Whether a response with this status may not suit all requests of a flight.
    @inline(__always)
    func mayBeginAgain(_ flight: Handle<Flight>, after status: Int) -> Bool {
        !flights[flight].route.decodes || status == 304
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
        guard !flights[flight].route.decodes, !flights[flight].isExact else { return false }
        let asked = flights[flight].request
        let leaving = flights.interests(of: flight).filter { interest in
            guard !isDoomed(interest), let own = ownFields(of: interest) else { return false }
            var request = asked
            request.fields = own
            return !request.isSuited(by: fields, to: asked)
        }
        guard !leaving.isEmpty else { return false }
        var formers: [Handle<Flight>] = []
        var starts: [FlightStart] = []
        for interest in leaving {
            guard let former = interests[interest].flight else { continue }
            formers.append(former)
            starts.append(leave(former, interest))
        }
        let isLeft =
            flights.interests(of: flight).isEmpty && !flights[flight].isRevalidation
            && !flights[flight].isHosted
        if isLeft {
            drop(response)
            let (_, redirected) = flights.detachAll(from: flight)
            for parent in redirected { forget(parent) }
            forget(flight)
        } else {
            for former in formers where former != flight && flights.contains(former) { dropIfUnwanted(former) }
        }
        for (interest, start) in zip(leaving, starts) {
            beginAgain(interest, start, partition: start.partition, isExact: true)
        }
        return isLeft
    }

    /// Whether a streaming request may read the growing body of a response with these fields, which are empty while the
    /// head is unknown: the response suits it.
    func mayRead(_ response: HeaderFields, _ interest: Handle<Interest>) -> Bool {
        let leaf = leaf(ofOpen: interest)
        guard !flights[leaf].route.decodes, !flights[leaf].isExact else { return true }
        let asked = flights[leaf].request
        guard let own = ownFields(of: interest), own != asked.fields else { return true }
        var request = asked
        request.fields = own
        return !response.isEmpty && request.isSuited(by: response, to: asked)
    }

    /// Fields of a request: its own, or those of the flight that it began.
    private func ownFields(of interest: Handle<Interest>) -> HeaderFields? {
        if let number = interests[interest].extras, let fields = extras[number].fields { return fields }
        return interests[interest].flight.map { flights[$0].fields }
    }

    // MARK: Conditions

    /// Plans to send the conditions that all requests of a flight have in common, unless the cache has a response to
    /// validate, or the flight is not only for them.
    @inline(__always)
    mutating func planConditions(of flight: Handle<Flight>, isResuming: Bool) {
        if !cachePlans.isEmpty { cachePlans[flight]?.conditions = nil }
        guard !isResuming, cluster == nil, let first = flights.firstInterest(of: flight),
            let number = interests[first].extras, let conditions = extras[number].conditions
        else { return }
        plan(conditions, of: flight)
    }

    @inline(never)
    private mutating func plan(_ conditions: RequestConditions, of flight: Handle<Flight>) {
        guard !flights[flight].isRevalidation, cachePlans[flight]?.stored == nil,
            flights.interests(of: flight).allSatisfy({ self.conditions(of: $0) == conditions })
        else { return }
        cachePlans[flight, default: CachePlan()].conditions = conditions
    }

    private func conditions(of interest: Handle<Interest>) -> RequestConditions? {
        interests[interest].extras.flatMap { extras[$0].conditions }
    }

    /// Ends the requests whose conditions the server has met with a 304, and queues the flight again for those that
    /// have joined it with others.
    ///
    /// - Returns: whether the response needs nothing further.
    private mutating func continuesWithoutConditions(
        _ flight: Handle<Flight>, after response: Outcome.Response, now: Tick
    ) -> Bool {
        guard response.status == 304, response.source == nil, let sent = cachePlans[flight]?.conditions else {
            return false
        }
        let waiting = flights.interests(of: flight)
        let met = waiting.filter { conditions(of: $0) == sent }
        guard waiting.isEmpty || met.count < waiting.count else { return false }
        cachePlans[flight]?.conditions = nil
        guard !waiting.isEmpty else {
            // A request that rejoined the flight would get the 304.
            drop(response)
            forget(flight)
            return true
        }
        let attempts = Int(flights[flight].attempts)
        conclude(met, of: flight, with: Outcome(response: response, attempts: attempts), now: now)
        enqueue(flight: flight, first: true)
        return true
    }

    @inline(__always)
    func hasConditions(_ interest: Handle<Interest>) -> Bool {
        guard let number = interests[interest].extras else { return false }
        return extras[number].conditions != nil
    }

    /// A 304 in place of the outcome of a flight, if a request has conditions that its response meets. PROGRESS may
    /// have named the response of a transfer to a streaming request.
    @inline(never)
    func notModified(_ outcome: Outcome, for interest: Handle<Interest>) -> Outcome? {
        guard let number = interests[interest].extras, let conditions = extras[number].conditions,
            outcome.failure == nil, let response = outcome.response, response.status == 200,
            response.source != nil || !extras[number].streams
        else { return nil }
        return Self.notModified(outcome, response, conditions, now: calendarSeconds)
    }

    private static func notModified(
        _ outcome: Outcome, _ response: Outcome.Response, _ conditions: RequestConditions, now: Int64
    ) -> Outcome? {
        let fields = HeaderFields(lines: response.fields)
        guard conditions.areMet(by: fields, now: now) else { return nil }
        var unchanged = response
        unchanged.status = 304
        unchanged.fields = RequestConditions.notModified(fields).bytes
        (unchanged.length, unchanged.resumedBytes, unchanged.isCut) = (0, 0, false)
        (unchanged.sha256, unchanged.file, unchanged.body) = (nil, nil, nil)
        (unchanged.spilled, unchanged.generation) = (nil, nil)
        return Outcome(response: unchanged, attempts: outcome.attempts)
    }
}
