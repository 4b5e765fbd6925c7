internal import EarshotCore
internal import EarshotWire

/// What was promised for durable requests over all lives of a broker, held against what is said.
///
/// Accepted means on the disk; what was accepted is told to whoever listens, once each, until somebody has acknowledged
/// it or it was removed, and never again when the disk has forgotten it. For whom it waited then, it waits all the
/// same.
struct DurablePromises {
    private struct Promise {
        let url: String
        /// With which it is asked for: an earlier one of its name had another.
        let tag: String
        /// Those that its terminals may have: of what is on the disk when a broker begins any may be it.
        var tags: Set<String>
        /// By which the disk names it; nil before it was given to it.
        var id: DurableID?
        var isAccepted = false
        /// Acknowledged by somebody, or removed.
        var isClosed = false
        /// Forgotten by the disk as well.
        var isForgotten = false
        /// Connections that were told, in this life.
        var told: Set<ClientID> = []
        /// Connections for whose windows it may have waited when it was closed.
        var waiting: Set<ClientID> = []
    }

    /// A promise that was closed, whose name is another's.
    private struct Earlier: Hashable {
        let name: RequestName
        let tag: String
    }

    /// Codes of what nothing was promised for.
    private static let settled: Set<String> = ["removed", "queue-full"]

    private var promises: [RequestName: Promise] = [:]
    private var byURL: [String: RequestName] = [:]
    /// To whom they may still be told.
    private var earlier: [Earlier: Set<ClientID>] = [:]
    private var lastTag = 0
    /// What may be asked again or removed, in the order in which it was asked first.
    private(set) var names: [RequestName] = []

    /// Names that were accepted and are open still.
    var open: [RequestName] { promises.filter { $0.value.isAccepted && !$0.value.isClosed }.map(\.key) }

    func url(of name: RequestName) -> String? { promises[name]?.url }

    func tag(of name: RequestName) -> String? { promises[name]?.tag }

    /// A request is asked for: again, or anew when an earlier one of its name is over.
    mutating func asked(_ name: RequestName, _ url: String, by client: ClientID) {
        defer {
            // As long as its owner has not acknowledged it, an earlier one is told to whoever asks.
            for each in earlier.keys where each.name == name { earlier[each]?.insert(client) }
        }
        guard promises[name]?.isClosed != false else { return }
        if promises[name] == nil { names.append(name) }
        byURL[url] = name
        if let old = promises[name] { earlier[Earlier(name: name, tag: old.tag)] = old.waiting }
        lastTag += 1
        promises[name] = Promise(url: url, tag: "\(lastTag)", tags: ["\(lastTag)"])
    }

    /// It is on the disk, be there somebody to be told or not.
    mutating func stored(_ name: RequestName, _ id: DurableID) {
        if promises[name]?.id == id, promises[name]?.isClosed == false { promises[name]?.isAccepted = true }
    }

    /// It was given to the disk.
    mutating func given(_ name: RequestName, _ id: DurableID) { promises[name]?.id = id }

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

    /// - Parameter content: of the body that comes along; nil if there is none.
    mutating func told(_ terminal: Terminal, _ content: String?, to client: ClientID) throws(Violation) {
        let name = RequestName(handler: terminal.handler, request: terminal.request)
        // Of a removal or a refusal there is nothing to be told again, and its name is free: it may have been asked for
        // anew while that waited for a window.
        if case .failed(let failure) = terminal.outcome, Self.settled.contains(failure.code) { return }
        guard let promise = promises[name], let tag = terminal.tag else {
            throw Violation(1, "\(name) is told and was not asked for")
        }
        let isAwaited =
            promise.tags.contains(tag)
            ? promises[name]?.waiting.remove(client) != nil
            : earlier[Earlier(name: name, tag: tag)]?.remove(client) != nil
        guard !isAwaited else {
            try check(terminal, content, of: name, promise)
            return
        }
        guard !promise.isClosed, !promise.isForgotten else { throw Violation(1, "\(name) is told again") }
        guard !promise.told.contains(client) else { throw Violation(1, "\(name) is told twice to one client") }
        if promise.isAccepted { promises[name]?.told.insert(client) }
        try check(terminal, content, of: name, promise)
    }

    private func check(
        _ terminal: Terminal, _ content: String?, of name: RequestName, _ promise: Promise
    ) throws(Violation) {
        guard case .result(_, let response) = terminal.outcome else { return }
        guard response.url == promise.url, content == promise.url else {
            throw Violation(1, "\(name) is told another's response: \(response.url), \(content ?? "no body")")
        }
    }

    /// Acknowledged by somebody, or removed: by the answer to that nothing of it follows.
    /// - Parameter waiting: others whose windows are full.
    mutating func closed(_ name: RequestName, waiting: Set<ClientID>) {
        guard let promise = promises[name], !promise.isClosed else { return }
        promises[name]?.isClosed = true
        promises[name]?.waiting.formUnion(waiting.subtracting(promise.told))
    }

    mutating func acknowledged(_ name: RequestName, by client: ClientID, waiting: Set<ClientID>) {
        if promises[name]?.told.contains(client) == true { closed(name, waiting: waiting) }
    }

    /// Nothing of it follows for one who removed it, whatever waited for its window.
    mutating func withdrawn(_ name: RequestName, by client: ClientID) {
        promises[name]?.waiting.remove(client)
        for each in earlier.keys where each.name == name { earlier[each]?.remove(client) }
    }

    mutating func forgotten(_ name: RequestName, _ id: DurableID) {
        if promises[name]?.id == id, promises[name]?.isClosed == true { promises[name]?.isForgotten = true }
    }

    /// A broker was killed. What was closed in its last moments may be back; what was accepted must be there.
    /// - Parameter kept: what is on the disk of each request, of two of one name the older, and the tags of both.
    mutating func restarted(kept: [RequestName: (id: DurableID, tags: Set<String>)]) throws(Violation) {
        earlier = [:]
        for (name, promise) in promises {
            promises[name]?.told = []
            promises[name]?.waiting = []
            let isKept = kept[name] != nil
            promises[name]?.id = kept[name]?.id
            promises[name]?.tags.formUnion(kept[name]?.tags ?? [])
            guard !promise.isAccepted || promise.isClosed || isKept else {
                throw Violation(1, "\(name) was accepted and is lost")
            }
            if promise.isClosed, !promise.isForgotten, isKept {
                promises[name]?.isClosed = false
                promises[name]?.isAccepted = true
            } else if !isKept {
                // Over, or never there: whoever is told of it now is told of what nobody asked for.
                byURL[promise.url] = nil
                promises[name] = nil
            } else {
                promises[name]?.isAccepted = true
            }
        }
        names.removeAll { promises[$0] == nil }
    }
}
