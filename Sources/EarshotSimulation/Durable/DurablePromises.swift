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
        var waitingConnections: Set<ClientID> = []
    }

    /// Closed expectation whose name was reused.
    private struct EarlierPromise: Hashable {
        let name: RequestName
        /// URLs permitted in its terminals.
        let urls: Set<String>
    }

    /// Failure codes that carry no durability guarantee.
    private static let nonDurableCodes: Set<String> = ["removed", "queue-full", "quota"]

    private var promises: [RequestName: Promise] = [:]
    private var namesByURL: [String: RequestName] = [:]
    /// Connections to which earlier results may still be delivered.
    private var earlierConnections: [EarlierPromise: Set<ClientID>] = [:]
    /// Names that may be requested again or removed, in the order of the first request.
    private(set) var reusableNames: [RequestName] = []

    /// Names of accepted requests that are still open.
    var openNames: [RequestName] { promises.filter { $0.value.isAccepted && !$0.value.isClosed }.map(\.key) }

    /// URL with which a request of a name is repeated; nil if the next one is a new request.
    func url(of name: RequestName) -> String? {
        promises[name].flatMap { $0.isClosed ? nil : $0.url }
    }

    /// Records a request that the broker carries out: a repetition, or a new one if an earlier one of its name is
    /// closed.
    mutating func recordRequest(_ name: RequestName, _ url: String, by client: ClientID) {
        defer {
            // An earlier request is delivered to new subscribers until its owner has acknowledged it.
            for each in earlierConnections.keys where each.name == name { earlierConnections[each]?.insert(client) }
        }
        guard promises[name]?.isClosed != false else { return }
        if promises[name] == nil { reusableNames.append(name) }
        namesByURL[url] = name
        if let old = promises[name] {
            earlierConnections[EarlierPromise(name: name, urls: old.urls)] = old.waitingConnections
        }
        promises[name] = Promise(url: url, urls: [url])
    }

    /// Records that a request is on disk.
    mutating func recordStored(_ name: RequestName, _ id: DurableID) {
        if promises[name]?.id == id, promises[name]?.isClosed == false { promises[name]?.isAccepted = true }
    }

    /// Records that a request was repeated: its next result is delivered to all subscribers.
    mutating func recordReopening(_ name: RequestName, _ id: DurableID) {
        if promises[name]?.id == id { promises[name]?.recipients = [] }
    }

    /// Records that a request was submitted to the disk.
    mutating func recordSubmission(_ name: RequestName, _ id: DurableID) { promises[name]?.id = id }

    mutating func recordAcceptance(_ name: RequestName, isOnDisk: Bool) throws(Violation) {
        guard let promise = promises[name], !promise.isClosed else {
            throw Violation(2, "\(name) is accepted after its removal was answered")
        }
        guard isOnDisk else { throw Violation(1, "\(name) is accepted and not on the disk") }
    }

    mutating func checkTransferStart(_ url: String, isOnDisk: (RequestName) -> Bool) throws(Violation) {
        guard let name = namesByURL[url] else { return }
        guard isOnDisk(name) else { throw Violation(1, "\(name) is fetched and not on the disk") }
    }

    /// - Parameter content: Content of the delivered body; nil without one.
    mutating func recordDelivery(_ terminal: Terminal, _ content: String?, to client: ClientID) throws(Violation) {
        let name = RequestName(handler: terminal.handler, request: terminal.request)
        // After a removal or refusal the name is free. It may have been requested again while this terminal waited for
        // a window.
        if case .failed(let failure) = terminal.outcome, Self.nonDurableCodes.contains(failure.code) { return }
        guard let promise = promises[name], let url = terminal.answeringURL else {
            throw Violation(1, "\(name) is told and was not asked for")
        }
        let isAwaited =
            promise.urls.contains(url)
            ? promises[name]?.waitingConnections.remove(client) != nil
            : removeEarlierConnection(name, url: url, from: client)
        guard !isAwaited else {
            try checkTerminal(terminal, content, of: name)
            return
        }
        guard promise.urls.contains(url) else { throw Violation(1, "\(name) is told the terminal of another: \(url)") }
        guard !promise.isClosed, !promise.isForgotten else { throw Violation(1, "\(name) is told again") }
        guard !promise.recipients.contains(client) else { throw Violation(1, "\(name) is told twice to one client") }
        if promise.isAccepted { promises[name]?.recipients.insert(client) }
        try checkTerminal(terminal, content, of: name)
    }

    /// Removes a client from the connections of an earlier request with a URL.
    /// - Returns: Whether the earlier result was still to be delivered to it.
    private mutating func removeEarlierConnection(_ name: RequestName, url: String, from client: ClientID) -> Bool {
        let request = earlierConnections.first {
            $0.key.name == name && $0.key.urls.contains(url) && $0.value.contains(client)
        }
        guard let request else { return false }
        earlierConnections[request.key]?.remove(client)
        return true
    }

    private func checkTerminal(_ terminal: Terminal, _ content: String?, of name: RequestName) throws(Violation) {
        guard case .result(_, let response) = terminal.outcome else { return }
        guard content == response.url else {
            throw Violation(1, "\(name) is told another's response: \(response.url), \(content ?? "no body")")
        }
    }

    /// Records an acknowledgement or removal, after which no new delivery may begin.
    /// - Parameter waiting: Other clients with a full window.
    mutating func recordClosing(_ name: RequestName, waiting: Set<ClientID>) {
        guard let promise = promises[name], !promise.isClosed else { return }
        promises[name]?.isClosed = true
        promises[name]?.waitingConnections.formUnion(waiting.subtracting(promise.recipients))
    }

    mutating func recordAcknowledgement(_ name: RequestName, by client: ClientID, waiting: Set<ClientID>) {
        if promises[name]?.recipients.contains(client) == true { recordClosing(name, waiting: waiting) }
    }

    /// Records that a client removed it, after which it must not receive even waiting deliveries.
    mutating func recordWithdrawal(_ name: RequestName, by client: ClientID) {
        promises[name]?.waitingConnections.remove(client)
        for each in earlierConnections.keys where each.name == name { earlierConnections[each]?.remove(client) }
    }

    mutating func recordDeletion(_ name: RequestName, _ id: DurableID) {
        if promises[name]?.id == id, promises[name]?.isClosed == true { promises[name]?.isForgotten = true }
    }

    /// Records that the broker was killed. Recently closed requests may reappear; accepted ones must.
    /// - Parameter kept: Rows on disk by request name; of two with the same name the older ID, with the URLs of both.
    mutating func recordRestart(kept: [RequestName: (id: DurableID, url: String, urls: Set<String>)]) throws(Violation)
    {
        earlierConnections = [:]
        for (name, promise) in promises {
            promises[name]?.recipients = []
            promises[name]?.waitingConnections = []
            let isKept = kept[name] != nil
            promises[name]?.id = kept[name]?.id
            if let row = kept[name] {
                promises[name]?.url = row.url
                promises[name]?.urls.formUnion(row.urls)
                for url in row.urls { namesByURL[url] = name }
            }
            guard !promise.isAccepted || promise.isClosed || isKept else {
                throw Violation(1, "\(name) was accepted and is lost")
            }
            if promise.isClosed, !promise.isForgotten, isKept {
                promises[name]?.isClosed = false
                promises[name]?.isAccepted = true
            } else if !isKept {
                // Closed, or never stored: a later delivery would be unexpected.
                namesByURL[promise.url] = nil
                promises[name] = nil
            } else {
                promises[name]?.isAccepted = true
            }
        }
        reusableNames.removeAll { promises[$0] == nil }
    }
}

extension Terminal {
    /// The URL that answered, or that of the request.
    fileprivate var answeringURL: String? {
        switch outcome {
        case .result(_, let response): response.url
        case .failed(let failure): failure.errorPageResponse?.url ?? failure.url
        }
    }
}
