internal import EarshotHTTP
internal import EarshotWire

/// Results between the nodes of a cluster: those of this node's attempts, and those that it gets from others.
///
/// The engine carries status, fields and failures. A body stays on the node that received it, for some seconds. Another
/// node *pulls* it: the flight moves to the pool of the scheme `earshot-node`, whose worker reads the body as a client of
/// that node. It then ends with the response as if this node had received it. A flight whose body cannot be read claims
/// again, and so does one whose failure may be that of the other node. It stays on its node after the second time.
extension BrokerCore {
    // MARK: Results of this node

    /// Reports the result of a flight's attempt to the engine, if the attempt has the flight.
    ///
    /// - Parameters:
    ///   - outcome: end of the flight, whose body this node holds for others.
    ///   - allowed: size limit that the body exceeded.
    mutating func publish(_ flight: Handle<Flight>, _ outcome: Handle<Outcome>, allowed: Int? = nil) {
        guard let (local, claim) = openClaim(of: flight) else { return }
        let response = records.outcomes[outcome].response
        if claim.isHosted { noteHosted(response, records.outcomes[outcome].failure) }
        guard claim.want.lane == .shared, let token = claim.token else {
            records.cluster?.value.book.ended(local, [], isAnswered: Self.isAnswer(response), now: records.clock)
            return
        }
        var content: SharedResult.Content
        if let response {
            content = .response(Self.shared(response))
            if response.length > 0, response.sha256 != nil, let address = records.cluster?.value.facility.address {
                let body = HeldBody(key: claim.want.key, token: token)
                hold(outcome, as: body)
                var told = Self.shared(response)
                told.place = BodyPlace(address: address, body: body)
                content = .response(told)
            }
        } else if let code = records.outcomes[outcome].failure, SharedResult.isShared(code) {
            content = .failure(code, allowedBytes: allowed, detail: records.outcomes[outcome].detail)
        } else {
            // A failure of this node alone: another node may fetch it.
            records.cluster?.value.book.drop(local)
            return
        }
        records.cluster?.value.book.ended(
            local, SharedResult(content).bytes, isAnswered: Self.isAnswer(response), now: records.clock)
    }

    /// Reports a response without its body, which no node needs: a redirect.
    mutating func publish(_ flight: Handle<Flight>, withoutBody response: Outcome.Response) {
        guard let (local, claim) = openClaim(of: flight) else { return }
        if claim.isHosted { noteHosted(response, nil) }
        let result = claim.want.lane == .shared ? SharedResult(.response(Self.shared(response))).bytes : []
        records.cluster?.value.book.ended(local, result, isAnswered: Self.isAnswer(response), now: records.clock)
    }

    /// Gives up the claim of a flight whose response other nodes may not have. They fetch it themselves.
    mutating func withhold(_ flight: Handle<Flight>) {
        guard let (local, claim) = openClaim(of: flight), claim.want.lane == .shared else { return }
        records.cluster?.value.book.drop(local)
    }

    /// Ends a flight without local requests, which served other nodes only.
    ///
    /// - Returns: whether it has ended.
    mutating func endIfHostedOnly(_ flight: Handle<Flight>) -> Bool {
        guard records.cluster != nil, !records.flights.isWanted(flight), records.flights.deferrals[flight] == nil else {
            return false
        }
        forget(flight)
        return true
    }

    private mutating func openClaim(of flight: Handle<Flight>) -> (LocalFlight, ClusterBook.Claim)? {
        let local = local(flight)
        guard let claim = records.cluster?.value.book.claims[local], !claim.isOpen else { return nil }
        records.flights[flight].isHosted = false
        return (local, claim)
    }

    /// Notes the end of an attempt that ran for other nodes. A response of the cache says nothing about the network.
    private mutating func noteHosted(_ response: Outcome.Response?, _ code: FailureCode?) {
        if let response {
            if response.source == nil { records.cluster?.value.health.hosted() }
        } else if let code {
            records.cluster?.value.health.failedToHost(code, now: records.clock)
        }
    }

    private static func isAnswer(_ response: Outcome.Response?) -> Bool {
        response.map { $0.source == nil && !asksToWait($0.status) } ?? false
    }

    private static func shared(_ response: Outcome.Response) -> SharedResult.Response {
        SharedResult.Response(
            status: response.status, length: response.length, sha256: response.sha256, place: nil,
            fields: response.fields)
    }

    /// Holds the body of an outcome for other nodes.
    private mutating func hold(_ outcome: Handle<Outcome>, as body: HeldBody) {
        records.outcomes.retain(outcome)
        let bytes = records.outcomes[outcome].response.map { $0.file == nil ? $0.length : 0 } ?? 0
        let released =
            records.cluster?.value.held.hold(outcome, as: body, memoryBytes: bytes, now: records.clock) ?? [outcome]
        for outcome in released { records.release(outcome) }
    }

    /// Releases the oldest body that is held for other nodes, because the spool is full.
    ///
    /// - Returns: whether one was released.
    mutating func releaseHeldBody() -> Bool {
        guard let outcome = records.cluster?.value.held.evictOldest() else { return false }
        records.cluster?.value.health.releasedBody(now: records.clock)
        records.release(outcome)
        return true
    }

    /// Releases all bodies that are held for other nodes.
    ///
    /// - Returns: whether one was released.
    mutating func releaseHeldBodies() -> Bool {
        guard releaseHeldBody() else { return false }
        while releaseHeldBody() {}
        return true
    }

    // MARK: Results of other nodes

    /// Ends a claiming flight with the result of another node.
    mutating func take(_ bytes: [UInt8], for flight: Handle<Flight>, now: Tick) {
        guard let result = SharedResult(bytes) else {
            // An engine that answers nonsense costs another fetch.
            claimAgain(flight)
            return
        }
        records.cluster?.value.counts.results += 1
        switch result.content {
        case .response(let response):
            guard let place = response.place else {
                guard response.length == 0 || (300..<400).contains(response.status) else {
                    // A body without a place, as its node holds too many, or nonsense.
                    missedPull(flight, "no-place")
                    return
                }
                records.flights[flight].attempts += 1
                concludeShared(
                    flight, Self.local(response, of: records.flights[flight].url.description, at: now), now: now)
                return
            }
            pull(flight, from: place, response, now: now)
        // A node that drains cannot try itself.
        case .failure(let code, _, _) where SharedResult.isOfNode(code) && !isDraining: claimAgain(flight)
        case .failure(let code, let allowed, let detail):
            records.flights[flight].attempts += 1
            if code == .tooLarge {
                requeueOrFailTooLarge(flight, allowed: allowed, now: now)
            } else {
                apply(retryOrFail(flight, code, nil, detail: detail, now: now), to: flight, now: now)
            }
        }
    }

    private static func local(
        _ response: SharedResult.Response, of url: String, at now: Tick
    ) -> Outcome.Response {
        Outcome.Response(
            status: response.status, url: url, length: 0, sha256: nil, file: nil, body: nil, fields: response.fields,
            startedAt: now, endedAt: now)
    }

    /// Concludes a flight with a response that another node received. That node has reported refusals.
    private mutating func concludeShared(_ flight: Handle<Flight>, _ received: Outcome.Response, now: Tick) {
        var response = received
        response.isOfNode = true
        let fields = HeaderFields(lines: response.fields)
        evaluate(response, fields, for: flight, now: now)
    }

    /// Moves a flight to the pool of workers that read bodies from other nodes.
    private mutating func pull(
        _ flight: Handle<Flight>, from place: BodyPlace, _ response: SharedResult.Response, now: Tick
    ) {
        guard place.address != records.cluster?.value.facility.address else {
            missedPull(flight, "own-address", at: place)
            return
        }
        guard let pool = records.pools.open(for: BodyPlace.scheme, of: PrincipalTable.administrator),
            let url = try? FetchURL(place.url)
        else {
            missedPull(flight, "no-puller", at: place)
            return
        }
        guard records.cluster?.value.health.mayRead(at: place.address, now: now) == true else {
            claimAgain(flight, avoiding: place.address)
            return
        }
        move(flight, to: scopeNumber(of: HTTPRequest(method: .get, url: url), in: pool))
        records.cluster?.value.pulls[flight] = ClusterState.Pull(
            place: place, response: response, receivedAt: now)
        records.flights.enter(.queued, flight)
        forEachInterest(of: flight) { core, interest in core.enqueue(interest, for: flight, first: true) }
    }

    private mutating func move(_ flight: Handle<Flight>, to scope: Handle<OriginScope>) {
        records.governor.flightJoined(scope)
        let former = records.flights[flight].scope
        records.flights[flight].scope = scope
        leave(records.governor.flightLeft(former))
    }

    /// Returns a flight to its own origin after its body was read from another node, or was not.
    private mutating func endPull(of flight: Handle<Flight>) {
        guard records.cluster?.value.pulls.removeValue(forKey: flight) != nil else { return }
        move(flight, to: scopeNumber(of: records.flights[flight].request, in: WorkerPool.web))
    }

    /// Claims a flight again after the worker could not read its body from another node.
    mutating func pullFailed(_ flight: Handle<Flight>, _ code: FailureCode, _ detail: String?) {
        let isOfNetwork = code == .connectFailed || code == .reset || code == .timeout
        if !isOfNetwork, code == .notCached || code == .truncated || code == .digestMismatch,
            let address = records.cluster?.value.pulls[flight]?.place.address
        {
            records.cluster?.value.health.answered(at: address)
        }
        missedPull(flight, detail.map { "\(code.rawValue): \($0)" } ?? code.rawValue, isOfNetwork: isOfNetwork)
    }

    /// Claims a flight again whose body could not be read from another node.
    ///
    /// - Parameters:
    ///   - place: place of the body; nil for that which the flight reads.
    ///   - isOfNetwork: whether that node could not be reached.
    mutating func missedPull(
        _ flight: Handle<Flight>, _ reason: String, at place: BodyPlace? = nil, isOfNetwork: Bool = false
    ) {
        let place = place ?? records.cluster?.value.pulls[flight]?.place
        records.cluster?.value.counts.missed += 1
        records.cluster?.value.health.missed(place, reason, isOfNetwork: isOfNetwork, now: records.clock)
        claimAgain(flight, avoiding: isOfNetwork ? place?.address : nil)
    }

    /// Claims a flight again after a useless result of another node.
    ///
    /// - Parameter address: node whose bodies cannot be read; nil for none.
    private mutating func claimAgain(_ flight: Handle<Flight>, avoiding address: String? = nil) {
        forEachInterest(of: flight) { core, interest in core.records.queue.remove(interest) }
        let receivedAt = records.cluster?.value.pulls[flight]?.receivedAt
        endPull(of: flight)
        records.cluster?.value.setbacks[flight, default: ClusterState.Setbacks()].count += 1
        records.cluster?.value.setbacks[flight]?.receivedAt = receivedAt
        if let address { records.cluster?.value.setbacks[flight]?.avoided.append(address) }
        if records.flights[flight].phase == .queued {
            forEachInterest(of: flight) { core, interest in core.enqueue(interest, for: flight, first: true) }
        } else {
            enqueue(flight: flight, first: true)
        }
    }

    /// Whether a flight reads its body from another node now.
    @inline(__always)
    func isPulling(_ flight: Handle<Flight>) -> Bool { records.isPulling(flight) }

    /// Place of the body that a flight reads from another node.
    func pullURL(of flight: Handle<Flight>) -> String? { records.cluster?.value.pulls[flight]?.place.url }

    /// Concludes a flight with the body that was read from another node.
    mutating func pulled(_ flight: Handle<Flight>, _ body: Outcome.Response, now: Tick) {
        guard let pull = records.cluster?.value.pulls[flight] else {
            preconditionFailure("\(flight) reads from no node")
        }
        guard body.length == pull.response.length, body.sha256 == pull.response.sha256 else {
            records.drop(body)
            missedPull(flight, "other-body")
            return
        }
        records.cluster?.value.health.answered(at: pull.place.address)
        endPull(of: flight)
        records.cluster?.value.counts.pulled += 1
        records.cluster?.value.counts.pulledBytes &+= body.length
        var response = body
        response.status = pull.response.status
        response.fields = pull.response.fields
        response.url = records.flights[flight].url.description
        concludeShared(flight, response, now: now)
    }

    // MARK: Requests of other nodes

    /// Whether a principal is a node of the cluster, which reads bodies and requests nothing else.
    mutating func isNode(_ principal: Handle<Principal>) -> Bool {
        records.cluster != nil && records.principals.name(of: principal)?.description.hasPrefix("node:") == true
    }

    /// Maximum number of requests of one connection of another node, whose puller has a few hundred slots.
    private static let mostNodeRequests = 4_096

    /// Answers the request of another node with the body that it names.
    ///
    /// - Returns: the reason if there is no such body any longer.
    mutating func deliverHeld(_ fetch: Fetch, to interest: Handle<Interest>) -> Refusal? {
        guard let place = BodyPlace(url: fetch.url) else { return Refusal(code: .unsupportedScheme) }
        if let owner = records.requests[interest].owner, Int(records.clients[owner].owned.count) > Self.mostNodeRequests
        {
            return Refusal(code: .queueFull)
        }
        guard let outcome = records.cluster?.value.held[place.body] else {
            records.cluster?.value.health.lacksBody(place)
            return Refusal(code: .notCached)
        }
        records.cluster?.value.counts.given += 1
        records.cluster?.value.health.gaveBody()
        endRequest(interest, with: outcome, now: records.clock)
        return nil
    }
}
