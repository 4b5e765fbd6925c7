internal import EarshotCore
internal import EarshotWire

/// Expected terminals of all clients: each subscriber gets exactly one for each request, with a response of the right
/// URL that ended after the request was made.
struct ClusterExpectations {
    struct Request {
        let node: Int
        let client: ClientID
        let handler: HandlerID
        let key: Int
        let requestedAt: Int
        /// Time at which its broker got it, later than `requestedAt` if it had waited.
        let receivedAt: Int
        var method = "GET"
        var isCredentialed = false
        var maximumBodyBytes: Int?
        var hasDeadline = false
        /// Subscribers without a terminal.
        var awaitingClients: Set<ClientID>
        /// Whether it was removed: its owner gets no terminal, and other subscribers a failure.
        var isRemoved = false
    }

    private struct Arrival: Hashable {
        let fetch: Int
        let node: Int
    }

    private(set) var requests: [Int: Request] = [:]
    /// Times at which a fetch ended, or the engine learned of it.
    private var fetchEndTimes: [Int: Int] = [:]
    /// Times at which another node learned of a fetch, or had read its body. Until then requests may join there.
    private var arrivals: [Arrival: Int] = [:]
    private var lastRequestID = 0
    /// Numbers of open requests by key.
    private(set) var openRequestCounts: [Int: Int] = [:]

    /// Failures that origins and faults cause for any request.
    private static let failureCodesOfAnyRequest: Set<String> = [
        "http-status", "reset", "connect-failed", "timeout", "truncated", "spool-full", "poisonous",
    ]

    mutating func nextRequestID() -> Int {
        lastRequestID += 1
        return lastRequestID
    }

    mutating func recordRequest(_ id: Int, _ request: Request) {
        requests[id] = request
        openRequestCounts[request.key, default: 0] += 1
    }

    mutating func recordFetchEnd(_ fetch: Int, at time: Int) {
        fetchEndTimes[fetch] = max(time, fetchEndTimes[fetch] ?? 0)
    }

    mutating func recordArrival(_ fetch: Int, in node: Int, at time: Int) {
        arrivals[Arrival(fetch: fetch, node: node)] = time
    }

    func endTime(ofFetch fetch: Int) -> Int? { fetchEndTimes[fetch] }

    /// Open requests of a client and handler, in order.
    func openRequests(of client: ClientID, _ handler: HandlerID? = nil) -> [Int] {
        requests.filter { $0.value.client == client && (handler ?? $0.value.handler) == $0.value.handler }
            .filter { !$0.value.isRemoved && $0.value.awaitingClients.contains(client) }.keys.sorted()
    }

    /// Notes that the owner has removed requests, just before the core hears it.
    mutating func recordRemovals(_ ids: [Int]) {
        for id in ids {
            guard let request = requests[id], !request.isRemoved else { continue }
            requests[id]?.isRemoved = true
            requests[id]?.awaitingClients.remove(request.client)
            decrementOpenRequests(request.key)
            removeIfAllDelivered(id)
        }
    }

    /// Notes that a client is gone.
    ///
    /// - Returns: keys of its open requests.
    mutating func recordClientLoss(_ client: ClientID) -> [Int] {
        let open = openRequests(of: client)
        let keys = open.compactMap { requests[$0]?.key }
        recordRemovals(open)
        for id in requests.filter({ $0.value.awaitingClients.contains(client) }).keys {
            requests[id]?.awaitingClients.remove(client)
            removeIfAllDelivered(id)
        }
        return keys
    }

    private mutating func decrementOpenRequests(_ key: Int) {
        openRequestCounts[key, default: 0] -= 1
        if openRequestCounts[key] == 0 { openRequestCounts[key] = nil }
    }

    private mutating func removeIfAllDelivered(_ id: Int) {
        if requests[id]?.awaitingClients.isEmpty == true { requests[id] = nil }
    }

    /// Checks a terminal.
    ///
    /// - Parameter noWayOutUntil: end of the latest time in which the node resolved no names.
    /// - Returns: whether it is that of the owner.
    mutating func checkTerminal(
        _ terminal: Terminal, _ content: ClusterCatalogue.Content?, to client: ClientID, isDraining: Bool,
        noWayOutUntil: Int, now: Int, clockWindowEnd: Int
    ) throws(Violation) -> Bool {
        let name = "\(terminal.handler) \(terminal.request)"
        let text = Self.description(terminal)
        guard let id = Int(terminal.request.description), let request = requests[id],
            request.awaitingClients.contains(client)
        else { throw Violation(1, "client \(client.rawValue) gets \(name) \(text), which is not due", kind: "not due") }
        let isOwner = request.client == client
        requests[id]?.awaitingClients.remove(client)
        if isOwner { decrementOpenRequests(request.key) }
        removeIfAllDelivered(id)
        switch terminal.outcome {
        case .result(let status, let response):
            guard !request.isRemoved else { throw Violation(2, "\(name) was removed, and is told \(text)") }
            guard status == 200 else { throw Violation(1, "\(name) is told \(text)") }
            try checkResponse(response, content, request, name, now: now, clockWindowEnd: clockWindowEnd)
        case .failed(let failure):
            if let response = failure.errorPageResponse {
                try checkResponse(response, content, request, name, now: now, clockWindowEnd: clockWindowEnd)
            }
            let isExpected =
                switch failure.code {
                case "removed": request.isRemoved && !isOwner
                case "deadline": request.hasDeadline
                case "too-large": request.maximumBodyBytes != nil
                case "worker-lost": request.method == "POST"
                case "stopping": isDraining
                // A node that drains cannot try itself.
                case "unknown-host": isDraining || noWayOutUntil >= request.requestedAt
                default: Self.failureCodesOfAnyRequest.contains(failure.code)
                }
            guard isExpected else { throw Violation(1, "\(name) is told \(text)", kind: "told \(failure.code)") }
        }
        return isOwner
    }

    private func checkResponse(
        _ response: Terminal.Response, _ content: ClusterCatalogue.Content?, _ request: Request, _ name: String,
        now: Int, clockWindowEnd: Int
    ) throws(Violation) {
        guard let reported = ClusterCatalogue.Content(headerFields: response.httpFields) else {
            throw Violation(1, "\(name) has the fields of no fetch")
        }
        let chain = [request.key, ClusterCatalogue.finalKey(of: request.key)]
        guard chain.contains(reported.key), response.url == ClusterCatalogue.url(of: reported.key) else {
            throw Violation(1, "\(name) of key \(request.key) has a response of key \(reported.key)", kind: "wrong key")
        }
        if let content {
            guard content == reported, response.bodyByteCount == ClusterCatalogue.bodyLength(of: reported.key) else {
                throw Violation(1, "\(name) has fields of \(reported) and a body of \(content)", kind: "wrong body")
            }
        } else if response.bodyByteCount > 0 {
            throw Violation(1, "\(name) has \(response.bodyByteCount) bytes without a body", kind: "no body")
        }
        guard let end = fetchEndTimes[reported.fetch] else {
            throw Violation(1, "\(name) has a response that never ended")
        }
        let arrival = arrivals[Arrival(fetch: reported.fetch, node: request.node)] ?? 0
        guard max(end, arrival) >= request.requestedAt || now < clockWindowEnd else {
            throw Violation(
                1, "\(name) was made at \(request.requestedAt), and has fetch \(reported.fetch), which ended at \(end)",
                kind: "older response")
        }
    }

    /// The oldest request that a client still waits for.
    func oldestRequest(before time: Int) -> (id: Int, request: Request)? {
        requests.filter { $0.value.receivedAt < time }.min { $0.key < $1.key }.map { ($0.key, $0.value) }
    }

    static func description(_ terminal: Terminal) -> String {
        switch terminal.outcome {
        case .result(let status, _): "\(status)"
        case .failed(let failure): failure.code + (failure.status.map { " \($0)" } ?? "")
        }
    }
}
