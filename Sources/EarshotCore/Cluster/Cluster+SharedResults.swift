internal import EarshotHTTP
internal import EarshotWire

/// Results between the nodes of a cluster: those of this node's attempts, and those that it gets from others.
///
/// The engine carries status, fields and failures. A body stays on the node that received it, for some seconds. Another
/// node *pulls* it: the flight moves to the pool of the scheme `earshot-node`, whose worker reads the body as a client of
/// that node. It then ends with the response as if this node had received it. A flight whose body cannot be read claims
/// again, and so does one whose failure may be that of the other node. It stays on its node after the second time.
extension Cluster {
    // MARK: Results of this node

    /// Reports the result of a flight's attempt to the engine, if the attempt has the flight.
    ///
    /// - Parameters:
    ///   - outcome: end of the flight, whose body this node holds for others.
    ///   - allowed: size limit that the body exceeded.
    static func publish(
        _ flight: Handle<Flight>, _ outcome: Handle<Outcome>, allowed: Int? = nil, in records: inout Records
    ) {
        guard let (local, claim) = openClaim(of: flight, in: &records) else { return }
        let response = records.outcomes[outcome].response
        if claim.isHosted { noteHosted(response, records.outcomes[outcome].failure, in: &records) }
        guard claim.want.lane == .shared, let token = claim.token else {
            records.cluster?.value.book.ended(local, [], isAnswered: isAnswer(response), now: records.clock)
            return
        }
        var content: SharedResult.Content
        if let response {
            content = .response(shared(response))
            if response.length > 0, response.sha256 != nil, let address = records.cluster?.value.services.address {
                let body = HeldBody(key: claim.want.key, token: token)
                holdBody(outcome, as: body, in: &records)
                var placed = shared(response)
                placed.place = BodyAddress(address: address, body: body)
                content = .response(placed)
            }
        } else if let code = records.outcomes[outcome].failure, SharedResult.isShared(code) {
            content = .failure(code, allowedBytes: allowed, detail: records.outcomes[outcome].detail)
        } else {
            // A failure of this node alone: another node may fetch it.
            records.cluster?.value.book.drop(local)
            return
        }
        records.cluster?.value.book.ended(
            local, SharedResult(content).bytes, isAnswered: isAnswer(response), now: records.clock)
    }

    /// Reports a response without its body, which no node needs: a redirect.
    static func publish(_ flight: Handle<Flight>, withoutBody response: Outcome.Response, in records: inout Records) {
        guard let (local, claim) = openClaim(of: flight, in: &records) else { return }
        if claim.isHosted { noteHosted(response, nil, in: &records) }
        let result = claim.want.lane == .shared ? SharedResult(.response(shared(response))).bytes : []
        records.cluster?.value.book.ended(local, result, isAnswered: isAnswer(response), now: records.clock)
    }

    /// Gives up the claim of a flight whose response other nodes may not have. They fetch it themselves.
    static func withhold(_ flight: Handle<Flight>, in records: inout Records) {
        guard let (local, claim) = openClaim(of: flight, in: &records), claim.want.lane == .shared else { return }
        records.cluster?.value.book.drop(local)
    }

    private static func openClaim(
        of flight: Handle<Flight>, in records: inout Records
    ) -> (LocalFlight, ClusterBook.Claim)? {
        let local = records.local(flight)
        guard let claim = records.cluster?.value.book.claims[local], !claim.isOpen else { return nil }
        records.flights[flight].isHosted = false
        return (local, claim)
    }

    /// Notes the end of an attempt that ran for other nodes. A response of the cache says nothing about the network.
    private static func noteHosted(_ response: Outcome.Response?, _ code: FailureCode?, in records: inout Records) {
        if let response {
            if response.source == nil { records.cluster?.value.health.hosted() }
        } else if let code {
            records.cluster?.value.health.failedToHost(code, now: records.clock)
        }
    }

    private static func isAnswer(_ response: Outcome.Response?) -> Bool {
        response.map { $0.source == nil && !$0.isOverloaded } ?? false
    }

    private static func shared(_ response: Outcome.Response) -> SharedResult.Response {
        SharedResult.Response(
            status: response.status, length: response.length, sha256: response.sha256, place: nil,
            fields: response.fields)
    }

    /// Holds the body of an outcome for other nodes.
    private static func holdBody(_ outcome: Handle<Outcome>, as body: HeldBody, in records: inout Records) {
        records.outcomes.retain(outcome)
        let bytes = records.outcomes[outcome].response.map { $0.file == nil ? $0.length : 0 } ?? 0
        let released =
            records.cluster?.value.heldResults.hold(outcome, as: body, memoryBytes: bytes, now: records.clock) ?? [
                outcome
            ]
        for outcome in released { records.release(outcome) }
    }

    /// Releases the oldest body that is held for other nodes, because the spool is full. False if there is none.
    static func releaseHeldBody(in records: inout Records) -> Bool {
        guard let outcome = records.cluster?.value.heldResults.evictOldest() else { return false }
        records.cluster?.value.health.releasedBody(now: records.clock)
        records.release(outcome)
        return true
    }

    /// Releases all bodies that are held for other nodes. False if there are none.
    static func releaseHeldBodies(in records: inout Records) -> Bool {
        guard releaseHeldBody(in: &records) else { return false }
        while releaseHeldBody(in: &records) {}
        return true
    }

    // MARK: Results of other nodes

    /// Use of the result of another node.
    enum Use {
        /// To answer the flight with the response, which that node received. It has reported refusals.
        case respond(Outcome.Response)
        /// To read the body from that node, with this request, in the pool of workers that do so.
        case pull(HTTPRequest, in: Handle<WorkerPool>)
        case fail(FailureCode, allowed: Int?, detail: String?)
        case claimAgain
    }

    /// Takes the result of another node for a claiming flight.
    static func use(of bytes: [UInt8], for flight: Handle<Flight>, now: Tick, in records: inout Records) -> Use {
        guard let result = SharedResult(bytes) else {
            // An engine that answers nonsense costs another fetch.
            return setBack(flight, in: &records)
        }
        records.cluster?.value.counts.results += 1
        switch result.content {
        case .response(let response):
            guard let place = response.place else {
                guard response.length == 0 || (300..<400).contains(response.status) else {
                    // A body without a place, as its node holds too many, or nonsense.
                    return bodyMissed(flight, "no-place", in: &records)
                }
                records.flights[flight].attempts += 1
                let url = records.flights[flight].url.description
                return .respond(
                    Outcome.Response(
                        status: response.status, url: url, length: 0, sha256: nil, body: nil,
                        fields: response.fields, startedAt: now, endedAt: now, isOfNode: true))
            }
            return pull(flight, from: place, response, now: now, in: &records)
        // A node that drains cannot try itself.
        case .failure(let code, _, _) where SharedResult.isOfNode(code) && !records.isDraining:
            return setBack(flight, in: &records)
        case .failure(let code, let allowed, let detail):
            records.flights[flight].attempts += 1
            return .fail(code, allowed: allowed, detail: detail)
        }
    }

    /// Begins to read the body of a flight from another node.
    private static func pull(
        _ flight: Handle<Flight>, from place: BodyAddress, _ response: SharedResult.Response, now: Tick,
        in records: inout Records
    ) -> Use {
        guard place.address != records.cluster?.value.services.address else {
            return bodyMissed(flight, "own-address", at: place, in: &records)
        }
        guard let pool = records.pools.open(for: BodyAddress.scheme, of: PrincipalTable.administrator),
            let url = try? FetchURL(place.url)
        else {
            return bodyMissed(flight, "no-puller", at: place, in: &records)
        }
        guard records.cluster?.value.health.mayRead(at: place.address, now: now) == true else {
            return setBack(flight, avoiding: place.address, in: &records)
        }
        records.cluster?.value.pulls[flight] = ClusterState.Pull(place: place, response: response, receivedAt: now)
        return .pull(HTTPRequest(method: .get, url: url), in: pool)
    }

    /// Counts a useless result of another node, and avoids the node if its bodies cannot be read.
    private static func setBack(
        _ flight: Handle<Flight>, avoiding address: String? = nil, in records: inout Records
    ) -> Use {
        let receivedAt = records.cluster?.value.pulls[flight]?.receivedAt
        records.cluster?.value.uselessResults[flight, default: ClusterState.UselessResults()].count += 1
        records.cluster?.value.uselessResults[flight]?.receivedAt = receivedAt
        if let address { records.cluster?.value.uselessResults[flight]?.avoidedAddresses.append(address) }
        return .claimAgain
    }

    /// Handles a body that could not be read from another node. Its flight claims again.
    ///
    /// - Parameters:
    ///   - place: place of the body; nil for that which the flight reads.
    ///   - isOfNetwork: whether that node could not be reached.
    @discardableResult
    static func bodyMissed(
        _ flight: Handle<Flight>, _ reason: String, at place: BodyAddress? = nil, isOfNetwork: Bool = false,
        in records: inout Records
    ) -> Use {
        let place = place ?? records.cluster?.value.pulls[flight]?.place
        records.cluster?.value.counts.missed += 1
        records.cluster?.value.health.bodyMissed(place, reason, isOfNetwork: isOfNetwork, now: records.clock)
        return setBack(flight, avoiding: isOfNetwork ? place?.address : nil, in: &records)
    }

    /// Handles the failure of the worker that read a body. The flight claims again.
    static func pullFailed(
        _ flight: Handle<Flight>, _ code: FailureCode, _ detail: String?, in records: inout Records
    ) {
        let isOfNetwork = code == .connectFailed || code == .reset || code == .timeout
        if !isOfNetwork, code == .notCached || code == .truncated || code == .digestMismatch,
            let address = records.cluster?.value.pulls[flight]?.place.address
        {
            records.cluster?.value.health.answered(at: address)
        }
        let reason = detail.map { "\(code.rawValue): \($0)" } ?? code.rawValue
        bodyMissed(flight, reason, isOfNetwork: isOfNetwork, in: &records)
    }

    /// The response whose body was read from another node; nil if it is another body, so that the flight claims again.
    static func pulled(
        _ flight: Handle<Flight>, _ body: Outcome.Response, in records: inout Records
    ) -> Outcome.Response? {
        guard let pull = records.cluster?.value.pulls[flight] else {
            preconditionFailure("\(flight) reads from no node")
        }
        guard body.length == pull.response.length, body.sha256 == pull.response.sha256 else {
            records.drop(body)
            bodyMissed(flight, "other-body", in: &records)
            return nil
        }
        records.cluster?.value.health.answered(at: pull.place.address)
        records.cluster?.value.counts.pulled += 1
        records.cluster?.value.counts.pulledBytes &+= body.length
        var response = body
        response.status = pull.response.status
        response.fields = pull.response.fields
        response.url = records.flights[flight].url.description
        response.isOfNode = true
        return response
    }

    // MARK: Requests of other nodes

    /// Whether a principal is a node of the cluster, which reads bodies and requests nothing else.
    static func isNode(_ principal: Handle<Principal>, in records: inout Records) -> Bool {
        records.cluster != nil && records.principals.name(of: principal)?.description.hasPrefix("node:") == true
    }

    /// Maximum number of requests of one connection of another node, whose puller has a few hundred slots.
    private static let mostNodeRequests = 4_096

    /// The body that the request of another node names.
    static func heldBody(
        for fetch: Fetch, of interest: Handle<Interest>, in records: inout Records
    ) throws(RequestRefusal) -> Handle<Outcome> {
        guard let place = BodyAddress(url: fetch.url) else { throw RequestRefusal(code: .unsupportedScheme) }
        if let owner = records.requests[interest].owner,
            Int(records.clients[owner].ownedRequests.count) > mostNodeRequests
        {
            throw RequestRefusal(code: .queueFull)
        }
        guard let outcome = records.cluster?.value.heldResults[place.body] else {
            records.cluster?.value.health.lacksBody(place)
            throw RequestRefusal(code: .notCached)
        }
        records.cluster?.value.counts.served += 1
        records.cluster?.value.health.servedBody()
        return outcome
    }
}
