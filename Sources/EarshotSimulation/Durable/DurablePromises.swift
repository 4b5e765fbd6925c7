internal import EarshotCore
internal import EarshotWire

/// Expectations for durable requests over the lifetimes of several brokers.
///
/// An accepted request is on disk. Its result is delivered to each subscriber once, until a subscriber acknowledges it
/// or it is removed, and never again after it is deleted from disk. Deliveries already waiting at that time still take
/// place.
struct DurablePromises {
    private struct Promise {
        /// URL with which it is repeated. After it is closed, the next request of its name has another URL.
        var url: String
        /// URLs permitted in its terminals, including those of rows on disk when a broker starts.
        var urls: Set<String>
        /// Identifier on disk; nil before it was submitted to the disk.
        var id: DurableID?
        var isAccepted = false
        /// Whether it was acknowledged or removed.
        var isClosed = false
        /// Whether it was also deleted from disk.
        var isForgotten = false
        /// Connections to which this broker has delivered it.
        var recipients: Set<ClientID> = []
        /// Connections with a full window when it was closed, for which it may still wait.
        var waiting: Set<ClientID> = []
    }

    /// Closed expectation whose name was reused.
    private struct Earlier: Hashable {
        let name: RequestName
        /// URLs permitted in its terminals.
        let urls: Set<String>
    }

    /// Failure codes that carry no durability guarantee.
    private static let nonDurableCodes: Set<String> = ["removed", "queue-full", "quota"]

    private var promises: [RequestName: Promise] = [:]
    private var byURL: [String: RequestName] = [:]
    /// Connections to which earlier results may still be delivered.
    private var earlierConnections: [Earlier: Set<ClientID>] = [:]
    /// Names that may be requested again or removed, in the order of the first request.
    private(set) var names: [RequestName] = []

    /// Names of accepted requests that are still open.
    var open: [RequestName] { promises.filter { $0.value.isAccepted && !$0.value.isClosed }.map(\.key) }

    /// URL with which a request of a name is repeated; nil if the next one is a new request.
    func url(of name: RequestName) -> String? {
        promises[name].flatMap { $0.isClosed ? nil : $0.url }
    }

    /// Records a request that the broker carries out: a repetition, or a new one if an earlier one of its name is
    /// closed.
    mutating func requested(_ name: RequestName, _ url: String, by client: ClientID) {
        defer {
            // An earlier request is delivered to new subscribers until its owner has acknowledged it.
            for each in earlierConnections.keys where each.name == name { earlierConnections[each]?.insert(client) }
        }
        guard promises[name]?.isClosed != false else { return }
        if promises[name] == nil { names.append(name) }
        byURL[url] = name
        if let old = promises[name] { earlierConnections[Earlier(name: name, urls: old.urls)] = old.waiting }
        promises[name] = Promise(url: url, urls: [url])
    }

    /// Records that a request is on disk.
    mutating func requestStored(_ name: RequestName, _ id: DurableID) {
        if promises[name]?.id == id, promises[name]?.isClosed == false { promises[name]?.isAccepted = true }
    }

    /// Records that a request was repeated: its next result is delivered to all subscribers.
    mutating func reopened(_ name: RequestName, _ id: DurableID) {
        if promises[name]?.id == id { promises[name]?.recipients = [] }
    }

    /// Records that a request was submitted to the disk.
    mutating func submitted(_ name: RequestName, _ id: DurableID) { promises[name]?.id = id }

    mutating func accepted(_ name: RequestName, isOnDisk: Bool) throws(Violation) {
        guard let promise = promises[name], !promise.isClosed else {
            throw Violation(2, "\(name) is accepted after its removal was answered")
        }
        guard isOnDisk else { throw Violation(1, "\(name) is accepted and not on the disk") }
    }

    mutating func started(_ url: String, isOnDisk: (RequestName) -> Bool) throws(Violation) {
        guard let name = byURL[url] else { return }
        guard isOnDisk(name) else { throw Violation(1, "\(name) is fetched and not on the disk") }
    }

    /// - Parameter content: Content of the delivered body; nil without one.
    mutating func delivered(_ terminal: Terminal, _ content: String?, to client: ClientID) throws(Violation) {
        let name = RequestName(handler: terminal.handler, request: terminal.request)
        // After a removal or refusal the name is free. It may have been requested again while this terminal waited for
        // a window.
        if case .failed(let failure) = terminal.outcome, Self.nonDurableCodes.contains(failure.code) { return }
        guard let promise = promises[name], let url = terminal.url else {
            throw Violation(1, "\(name) is told and was not asked for")
        }
        let isAwaited =
            promise.urls.contains(url)
            ? promises[name]?.waiting.remove(client) != nil
            : withdraw(name, url: url, from: client)
        guard !isAwaited else {
            try check(terminal, content, of: name)
            return
        }
        guard promise.urls.contains(url) else { throw Violation(1, "\(name) is told the terminal of another: \(url)") }
        guard !promise.isClosed, !promise.isForgotten else { throw Violation(1, "\(name) is told again") }
        guard !promise.recipients.contains(client) else { throw Violation(1, "\(name) is told twice to one client") }
        if promise.isAccepted { promises[name]?.recipients.insert(client) }
        try check(terminal, content, of: name)
    }

    /// Removes a client from the connections of an earlier request with a URL.
    /// - Returns: Whether the earlier result was still to be delivered to it.
    private mutating func withdraw(_ name: RequestName, url: String, from client: ClientID) -> Bool {
        let request = earlierConnections.first {
            $0.key.name == name && $0.key.urls.contains(url) && $0.value.contains(client)
        }
        guard let request else { return false }
        earlierConnections[request.key]?.remove(client)
        return true
    }

    private func check(_ terminal: Terminal, _ content: String?, of name: RequestName) throws(Violation) {
        guard case .result(_, let response) = terminal.outcome else { return }
        guard content == response.url else {
            throw Violation(1, "\(name) is told another's response: \(response.url), \(content ?? "no body")")
        }
    }

    /// Records an acknowledgement or removal, after which no new delivery may begin.
    /// - Parameter waiting: Other clients with a full window.
    mutating func closed(_ name: RequestName, waiting: Set<ClientID>) {
        guard let promise = promises[name], !promise.isClosed else { return }
        promises[name]?.isClosed = true
        promises[name]?.waiting.formUnion(waiting.subtracting(promise.recipients))
    }

    mutating func acknowledged(_ name: RequestName, by client: ClientID, waiting: Set<ClientID>) {
        if promises[name]?.recipients.contains(client) == true { closed(name, waiting: waiting) }
    }

    /// Records that a client removed it, after which it must not receive even waiting deliveries.
    mutating func withdrawn(_ name: RequestName, by client: ClientID) {
        promises[name]?.waiting.remove(client)
        for each in earlierConnections.keys where each.name == name { earlierConnections[each]?.remove(client) }
    }

    mutating func requestForgotten(_ name: RequestName, _ id: DurableID) {
        if promises[name]?.id == id, promises[name]?.isClosed == true { promises[name]?.isForgotten = true }
    }

    /// Records that the broker was killed. Recently closed requests may reappear; accepted ones must.
    /// - Parameter kept: Rows on disk by request name; of two with the same name the older ID, with the URLs of both.
    mutating func restarted(kept: [RequestName: (id: DurableID, url: String, urls: Set<String>)]) throws(Violation) {
        earlierConnections = [:]
        for (name, promise) in promises {
            promises[name]?.recipients = []
            promises[name]?.waiting = []
            let isKept = kept[name] != nil
            promises[name]?.id = kept[name]?.id
            if let row = kept[name] {
                promises[name]?.url = row.url
                promises[name]?.urls.formUnion(row.urls)
                for url in row.urls { byURL[url] = name }
            }
            guard !promise.isAccepted || promise.isClosed || isKept else {
                throw Violation(1, "\(name) was accepted and is lost")
            }
            if promise.isClosed, !promise.isForgotten, isKept {
                promises[name]?.isClosed = false
                promises[name]?.isAccepted = true
            } else if !isKept {
                // Closed, or never stored: a later delivery would be unexpected.
                byURL[promise.url] = nil
                promises[name] = nil
            } else {
                promises[name]?.isAccepted = true
            }
        }
        names.removeAll { promises[$0] == nil }
    }
}

extension Terminal {
    /// The URL that answered, or that of the request.
    fileprivate var url: String? {
        switch outcome {
        case .result(_, let response): response.url
        case .failed(let failure): failure.response?.url ?? failure.url
        }
    }
}
