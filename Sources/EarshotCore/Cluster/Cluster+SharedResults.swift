internal import EarshotHTTP
internal import EarshotWire

/// Results between the nodes of a cluster: those of this node's attempts, and those that it gets from others.
///
/// The engine carries status, fields and failures. A body stays on the node that received it, for some seconds. Another
/// node *pulls* it: the flight moves to the pool of the scheme `earshot-node`, whose worker reads the body as a client
/// of that node. It then ends with the response as if this node had received it. A flight whose body cannot be read
/// claims again, and so does one whose failure may be that of the other node. It stays on its node after the second
/// time.
extension Cluster {
    // MARK: Results of this node

    /// Reports the result of a flight's attempt to the engine, if the attempt has the flight.
    ///
    /// - Parameters:
    ///   - outcome: end of the flight, whose body this node holds for others.
    ///   - allowed: size limit that the body exceeded.
    static func publishResult(
        of flight: Handle<Flight>, _ outcome: Handle<Outcome>, allowed: Int? = nil, in records: inout Records
    ) {
        guard let (local, claim) = runningClaim(of: flight, in: &records) else { return }
        let response = records.outcomes[outcome].response
        if claim.isHosted { recordHostedOutcome(response, records.outcomes[outcome].failure, in: &records) }
        guard claim.want.lane == .shared, let token = claim.token else {
            records.clusterState?.value.book.endAttempt(
                of: local, result: [], isAnswered: isOriginAnswer(response), now: records.latestEventTime)
            return
        }
        var content: SharedResult.Content
        if let response {
            content = .response(sharedResponse(response))
            if response.bodyLength > 0, response.sha256 != nil,
                let address = records.clusterState?.value.services.address
            {
                let body = HeldBody(key: claim.want.key, token: token)
                holdBody(outcome, as: body, in: &records)
                var placed = sharedResponse(response)
                placed.bodyAddress = BodyAddress(address: address, body: body)
                content = .response(placed)
            }
        } else if let code = records.outcomes[outcome].failure, SharedResult.isSharedFailure(code) {
            content = .failure(code, allowedBytes: allowed, detail: records.outcomes[outcome].detail)
        } else {
            // A failure of this node alone: another node may fetch it.
            records.clusterState?.value.book.removeClaim(of: local)
            return
        }
        records.clusterState?.value.book.endAttempt(
            of: local, result: SharedResult(content).encodedBytes, isAnswered: isOriginAnswer(response),
            now: records.latestEventTime)
    }

    /// Reports a response without its body, which no node needs: a redirect.
    static func publishResult(
        of flight: Handle<Flight>, withoutBody response: Outcome.Response, in records: inout Records
    ) {
        guard let (local, claim) = runningClaim(of: flight, in: &records) else { return }
        if claim.isHosted { recordHostedOutcome(response, nil, in: &records) }
        let result = claim.want.lane == .shared ? SharedResult(.response(sharedResponse(response))).encodedBytes : []
        records.clusterState?.value.book.endAttempt(
            of: local, result: result, isAnswered: isOriginAnswer(response), now: records.latestEventTime)
    }

    /// Gives up the claim of a flight whose response other nodes may not have. They fetch it themselves.
    static func withholdResult(of flight: Handle<Flight>, in records: inout Records) {
        guard let (local, claim) = runningClaim(of: flight, in: &records), claim.want.lane == .shared else { return }
        records.clusterState?.value.book.removeClaim(of: local)
    }

    private static func runningClaim(
        of flight: Handle<Flight>, in records: inout Records
    ) -> (LocalFlight, ClusterBook.Claim)? {
        let local = records.localFlightName(flight)
        guard let claim = records.clusterState?.value.book.claims[local], !claim.isOpen else { return nil }
        records.flights[flight].isAwaitedByOtherNodes = false
        return (local, claim)
    }

    /// Notes the end of an attempt that ran for other nodes. A response of the cache is no sign of a working network.
    private static func recordHostedOutcome(
        _ response: Outcome.Response?, _ code: FailureCode?, in records: inout Records
    ) {
        if let response {
            if response.cacheSource == nil { records.clusterState?.value.health.hostingSucceeded() }
        } else if let code {
            records.clusterState?.value.health.hostingFailed(code, now: records.latestEventTime)
        }
    }

    private static func isOriginAnswer(_ response: Outcome.Response?) -> Bool {
        response.map { $0.cacheSource == nil && !$0.isOriginOverloaded } ?? false
    }

    private static func sharedResponse(_ response: Outcome.Response) -> SharedResult.Response {
        SharedResult.Response(
            status: response.status, bodyLength: response.bodyLength, sha256: response.sha256, bodyAddress: nil,
            fields: response.headerFields)
    }

    /// Holds the body of an outcome for other nodes.
    private static func holdBody(_ outcome: Handle<Outcome>, as body: HeldBody, in records: inout Records) {
        records.outcomes.addReference(to: outcome)
        let bytes = records.outcomes[outcome].response.map { $0.bodyFile == nil ? $0.bodyLength : 0 } ?? 0
        let released =
            records.clusterState?.value.heldResults.hold(
                outcome, as: body, memoryBytes: bytes, now: records.latestEventTime)
            ?? [outcome]
        for outcome in released { records.releaseOutcome(outcome) }
    }

    /// Releases the oldest body that is held for other nodes, because the spool is full. False if there is none.
    static func releaseHeldBody(in records: inout Records) -> Bool {
        guard let outcome = records.clusterState?.value.heldResults.evictOldest() else { return false }
        records.clusterState?.value.health.bodyReleasedEarly(now: records.latestEventTime)
        records.releaseOutcome(outcome)
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
    enum ResultUse {
        /// To answer the flight with the response, which that node received. It has reported refusals.
        case respond(Outcome.Response)
        /// To read the body from that node, with this request, in the pool of workers that do so.
        case pull(HTTPRequest, in: Handle<WorkerPool>)
        case fail(FailureCode, allowed: Int?, detail: String?)
        case claimAgain
    }

    /// Takes the result of another node for a claiming flight.
    static func useResult(
        _ bytes: [UInt8], for flight: Handle<Flight>, now: MonotonicTime, in records: inout Records
    ) -> ResultUse {
        guard let result = SharedResult(bytes) else {
            // An engine that answers nonsense costs another fetch.
            return countUselessResult(for: flight, in: &records)
        }
        records.clusterState?.value.counts.receivedResults += 1
        switch result.content {
        case .response(let response):
            guard let place = response.bodyAddress else {
                guard response.bodyLength == 0 || (300..<400).contains(response.status) else {
                    // A body without a place, as its node holds too many, or nonsense.
                    return nodeBodyReadFailed(flight, "no-place", in: &records)
                }
                records.flights[flight].assignedAttemptCount += 1
                let url = records.flights[flight].url.description
                return .respond(
                    Outcome.Response(
                        status: response.status, url: url, bodyLength: 0, sha256: nil, body: nil,
                        headerFields: response.fields, startedAt: now, endedAt: now, isFromOtherNode: true))
            }
            return beginPull(of: flight, from: place, response, now: now, in: &records)
        // A node that drains cannot try itself.
        case .failure(let code, _, _) where SharedResult.isNodeFailure(code) && !records.isDraining:
            return countUselessResult(for: flight, in: &records)
        case .failure(let code, let allowed, let detail):
            records.flights[flight].assignedAttemptCount += 1
            return .fail(code, allowed: allowed, detail: detail)
        }
    }

    /// Begins to read the body of a flight from another node.
    private static func beginPull(
        of flight: Handle<Flight>, from place: BodyAddress, _ response: SharedResult.Response, now: MonotonicTime,
        in records: inout Records
    ) -> ResultUse {
        guard place.address != records.clusterState?.value.services.address else {
            // A body of an earlier broker of this node. Another node with this address is a warning of its own.
            records.clusterState?.value.counts.missedBodies += 1
            return countUselessResult(for: flight, in: &records)
        }
        guard let pool = records.workerPools.openPool(for: BodyAddress.scheme, of: PrincipalTable.administrator),
            let url = try? FetchURL(place.url)
        else {
            return nodeBodyReadFailed(flight, "no-puller", at: place, in: &records)
        }
        guard records.clusterState?.value.health.mayReadBody(at: place.address, now: now) == true else {
            return countUselessResult(for: flight, avoiding: place.address, in: &records)
        }
        records.clusterState?.value.pulls[flight] = ClusterState.Pull(
            bodyAddress: place, response: response, receivedAt: now)
        return .pull(HTTPRequest(method: .get, url: url), in: pool)
    }

    /// Counts a useless result of another node, and avoids the node if its bodies cannot be read.
    private static func countUselessResult(
        for flight: Handle<Flight>, avoiding address: String? = nil, in records: inout Records
    ) -> ResultUse {
        let receivedAt = records.clusterState?.value.pulls[flight]?.receivedAt
        records.clusterState?.value.uselessResults[flight, default: ClusterState.UselessResults()].count += 1
        records.clusterState?.value.uselessResults[flight]?.receivedAt = receivedAt
        if let address { records.clusterState?.value.uselessResults[flight]?.avoidedAddresses.append(address) }
        return .claimAgain
    }

    /// Handles a body that could not be read from another node. Its flight claims again.
    ///
    /// - Parameters:
    ///   - place: place of the body; nil for that which the flight reads.
    ///   - isOfNetwork: whether that node could not be reached.
    @discardableResult
    static func nodeBodyReadFailed(
        _ flight: Handle<Flight>, _ reason: String, at place: BodyAddress? = nil, isOfNetwork: Bool = false,
        in records: inout Records
    ) -> ResultUse {
        let place = place ?? records.clusterState?.value.pulls[flight]?.bodyAddress
        records.clusterState?.value.counts.missedBodies += 1
        records.clusterState?.value.health.bodyReadFailed(
            place, reason, isOfNetwork: isOfNetwork, now: records.latestEventTime)
        return countUselessResult(for: flight, avoiding: isOfNetwork ? place?.address : nil, in: &records)
    }

    /// Handles the failure of the worker that read a body. The flight claims again.
    static func pullFailed(
        _ flight: Handle<Flight>, _ code: FailureCode, _ detail: String?, in records: inout Records
    ) {
        let isOfNetwork = code == .connectFailed || code == .connectionReset || code == .timeout
        if !isOfNetwork, code == .notCached || code == .truncated || code == .digestMismatch,
            let address = records.clusterState?.value.pulls[flight]?.bodyAddress.address
        {
            records.clusterState?.value.health.peerAnswered(at: address)
        }
        let reason = detail.map { "\(code.rawValue): \($0)" } ?? code.rawValue
        nodeBodyReadFailed(flight, reason, isOfNetwork: isOfNetwork, in: &records)
    }

    /// The response whose body was read from another node; nil if it is another body, so that the flight claims again.
    static func pulledResponse(
        _ flight: Handle<Flight>, _ body: Outcome.Response, in records: inout Records
    ) -> Outcome.Response? {
        guard let pull = records.clusterState?.value.pulls[flight] else {
            preconditionFailure("\(flight) reads from no node")
        }
        guard body.bodyLength == pull.response.bodyLength, body.sha256 == pull.response.sha256 else {
            records.releaseResponse(body)
            nodeBodyReadFailed(flight, "other-body", in: &records)
            return nil
        }
        records.clusterState?.value.health.peerAnswered(at: pull.bodyAddress.address)
        records.clusterState?.value.counts.pulledBodies += 1
        records.clusterState?.value.counts.pulledBytes &+= body.bodyLength
        var response = body
        response.status = pull.response.status
        response.headerFields = pull.response.fields
        response.url = records.flights[flight].url.description
        response.isFromOtherNode = true
        return response
    }

    // MARK: Requests of other nodes

    /// Whether a principal is a node of the cluster, which reads bodies and requests nothing else.
    static func isNodePrincipal(_ principal: Handle<Principal>, in records: inout Records) -> Bool {
        records.clusterState != nil && records.principals.name(of: principal)?.description.hasPrefix("node:") == true
    }

    /// Maximum number of requests of one connection of another node, whose puller has a few hundred slots.
    private static let maximumNodeRequests = 4_096

    /// The body that the request of another node names.
    static func heldBody(
        for fetch: Fetch, of interest: Handle<Interest>, in records: inout Records
    ) throws(RequestRefusal) -> Handle<Outcome> {
        guard let place = BodyAddress(url: fetch.url) else { throw RequestRefusal(code: .unsupportedScheme) }
        if let owner = records.requests[interest].owner,
            Int(records.clients[owner].ownedRequests.count) > maximumNodeRequests
        {
            throw RequestRefusal(code: .queueFull)
        }
        guard let outcome = records.clusterState?.value.heldResults[place.body] else {
            records.clusterState?.value.health.requestedBodyMissing(place)
            throw RequestRefusal(code: .notCached)
        }
        records.clusterState?.value.counts.servedBodies += 1
        records.clusterState?.value.health.bodyServed()
        return outcome
    }
}
