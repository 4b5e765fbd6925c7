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
        var method = "GET"
        var isCredentialed = false
        var maxBytes: Int?
        var hasDeadline = false
        /// Subscribers without a terminal.
        var awaiting: Set<ClientID>
        /// Whether it was removed: its owner gets no terminal, and other subscribers a failure.
        var isRemoved = false
    }

    private struct Arrival: Hashable {
        let fetch: Int
        let node: Int
    }

    private(set) var requests: [Int: Request] = [:]
    /// Times at which a fetch ended, or the engine learned of it.
    private var endTimes: [Int: Int] = [:]
    /// Times at which another node learned of a fetch, or had read its body. Until then requests may join there.
    private var arrivals: [Arrival: Int] = [:]
    private var lastRequest = 0
    /// Numbers of open requests by key.
    private(set) var openKeys: [Int: Int] = [:]

    /// Failures that origins and faults cause for any request.
    private static let plainCodes: Set<String> = [
        "http-status", "reset", "connect-failed", "timeout", "truncated", "spool-full", "poisonous",
    ]

    mutating func nextID() -> Int {
        lastRequest += 1
        return lastRequest
    }

    mutating func requested(_ id: Int, _ request: Request) {
        requests[id] = request
        openKeys[request.key, default: 0] += 1
    }

    mutating func ended(_ fetch: Int, at time: Int) { endTimes[fetch] = max(time, endTimes[fetch] ?? 0) }

    mutating func arrived(_ fetch: Int, in node: Int, at time: Int) {
        arrivals[Arrival(fetch: fetch, node: node)] = time
    }

    func end(of fetch: Int) -> Int? { endTimes[fetch] }

    /// Open requests of a client and handler, in order.
    func open(of client: ClientID, _ handler: HandlerID? = nil) -> [Int] {
        requests.filter { $0.value.client == client && (handler ?? $0.value.handler) == $0.value.handler }
            .filter { !$0.value.isRemoved && $0.value.awaiting.contains(client) }.keys.sorted()
    }

    /// Notes that the owner has removed requests, just before the core hears it.
    mutating func requestsRemoved(_ ids: [Int]) {
        for id in ids {
            guard let request = requests[id], !request.isRemoved else { continue }
            requests[id]?.isRemoved = true
            requests[id]?.awaiting.remove(request.client)
            closed(request.key)
            forgetIfDone(id)
        }
    }

    /// Notes that a client is gone.
    ///
    /// - Returns: keys of its open requests.
    mutating func clientGone(_ client: ClientID) -> [Int] {
        let open = open(of: client)
        let keys = open.compactMap { requests[$0]?.key }
        requestsRemoved(open)
        for id in requests.filter({ $0.value.awaiting.contains(client) }).keys {
            requests[id]?.awaiting.remove(client)
            forgetIfDone(id)
        }
        return keys
    }

    private mutating func closed(_ key: Int) {
        openKeys[key, default: 0] -= 1
        if openKeys[key] == 0 { openKeys[key] = nil }
    }

    private mutating func forgetIfDone(_ id: Int) { if requests[id]?.awaiting.isEmpty == true { requests[id] = nil } }

    /// Checks a terminal.
    ///
    /// - Parameter noWayOutUntil: end of the latest time in which the node resolved no names.
    /// - Returns: whether it is that of the owner.
    mutating func delivered(
        _ terminal: Terminal, _ content: ClusterCatalogue.Content?, to client: ClientID, isDraining: Bool,
        noWayOutUntil: Int, now: Int, clockWindowEnd: Int
    ) throws(Violation) -> Bool {
        let name = "\(terminal.handler) \(terminal.request)"
        let text = Self.text(terminal)
        guard let id = Int(terminal.request.description), let request = requests[id], request.awaiting.contains(client)
        else { throw Violation(1, "client \(client.rawValue) gets \(name) \(text), which is not due", kind: "not due") }
        let isOwner = request.client == client
        requests[id]?.awaiting.remove(client)
        if isOwner { closed(request.key) }
        forgetIfDone(id)
        switch terminal.outcome {
        case .result(let status, let response):
            guard !request.isRemoved else { throw Violation(2, "\(name) was removed, and is told \(text)") }
            guard status == 200 else { throw Violation(1, "\(name) is told \(text)") }
            try check(response, content, request, name, now: now, clockWindowEnd: clockWindowEnd)
        case .failed(let failure):
            if let response = failure.response {
                try check(response, content, request, name, now: now, clockWindowEnd: clockWindowEnd)
            }
            let isExpected =
                switch failure.code {
                case "removed": request.isRemoved && !isOwner
                case "deadline": request.hasDeadline
                case "too-large": request.maxBytes != nil
                case "worker-lost": request.method == "POST"
                case "stopping": isDraining
                // A node that drains cannot try itself.
                case "unknown-host": isDraining || noWayOutUntil >= request.requestedAt
                default: Self.plainCodes.contains(failure.code)
                }
            guard isExpected else { throw Violation(1, "\(name) is told \(text)", kind: "told \(failure.code)") }
        }
        return isOwner
    }

    private func check(
        _ response: Terminal.Response, _ content: ClusterCatalogue.Content?, _ request: Request, _ name: String,
        now: Int, clockWindowEnd: Int
    ) throws(Violation) {
        guard let reported = ClusterCatalogue.Content(fields: response.httpFields) else {
            throw Violation(1, "\(name) has the fields of no fetch")
        }
        let chain = [request.key, ClusterCatalogue.target(of: request.key)]
        guard chain.contains(reported.key), response.url == ClusterCatalogue.url(of: reported.key) else {
            throw Violation(1, "\(name) of key \(request.key) has a response of key \(reported.key)", kind: "wrong key")
        }
        if let content {
            guard content == reported, response.length == ClusterCatalogue.length(of: reported.key) else {
                throw Violation(1, "\(name) has fields of \(reported) and a body of \(content)", kind: "wrong body")
            }
        } else if response.length > 0 {
            throw Violation(1, "\(name) has \(response.length) bytes without a body", kind: "no body")
        }
        guard let end = endTimes[reported.fetch] else { throw Violation(1, "\(name) has a response that never ended") }
        let arrival = arrivals[Arrival(fetch: reported.fetch, node: request.node)] ?? 0
        guard max(end, arrival) >= request.requestedAt || now < clockWindowEnd else {
            throw Violation(
                1, "\(name) was made at \(request.requestedAt), and has fetch \(reported.fetch), which ended at \(end)",
                kind: "older response")
        }
    }

    /// The oldest request that a client still waits for.
    func oldestRequest(before time: Int) -> (id: Int, request: Request)? {
        requests.filter { $0.value.requestedAt < time }.min { $0.key < $1.key }.map { ($0.key, $0.value) }
    }

    static func text(_ terminal: Terminal) -> String {
        switch terminal.outcome {
        case .result(let status, _): "\(status)"
        case .failed(let failure): failure.code + (failure.status.map { " \($0)" } ?? "")
        }
    }
}
