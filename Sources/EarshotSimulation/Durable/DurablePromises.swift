internal import EarshotCore
internal import EarshotWire

/// What was promised for durable requests over all lives of a broker, held against what is said.
///
/// Accepted means on the disk; what was accepted is told to whoever listens, once each, until somebody has acknowledged
/// it or it was removed, and never again when the disk has forgotten it.
struct DurablePromises {
    private struct Promise {
        let url: String
        /// By which the disk names it; nil before it was given to it.
        var id: DurableID?
        var isAccepted = false
        /// Acknowledged by somebody, or removed.
        var isClosed = false
        /// Forgotten by the disk as well.
        var isForgotten = false
        /// Connections that were told, in this life.
        var told: Set<ClientID> = []
    }

    private var promises: [RequestName: Promise] = [:]
    private var byURL: [String: RequestName] = [:]
    /// What may be asked again or removed, in the order in which it was asked first.
    private(set) var names: [RequestName] = []

    /// Names that were accepted and are open still.
    var open: [RequestName] { promises.filter { $0.value.isAccepted && !$0.value.isClosed }.map(\.key) }

    func url(of name: RequestName) -> String? { promises[name]?.url }

    /// A request is asked for: again, or anew when an earlier one of its name is over.
    mutating func asked(_ name: RequestName, _ url: String) {
        guard promises[name]?.isClosed != false else { return }
        if promises[name] == nil { names.append(name) }
        byURL[url] = name
        promises[name] = Promise(url: url)
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
        if case .failed(let failure) = terminal.outcome, failure.code == "removed" { return }
        guard let promise = promises[name] else { throw Violation(1, "\(name) is told and was not asked for") }
        guard !promise.isClosed, !promise.isForgotten else { throw Violation(1, "\(name) is told again") }
        guard !promise.told.contains(client) else { throw Violation(1, "\(name) is told twice to one client") }
        // Of a refusal there is nothing to be told again, and its name is free.
        if promise.isAccepted { promises[name]?.told.insert(client) }
        guard case .result(_, let response) = terminal.outcome else { return }
        guard response.url == promise.url, content == promise.url else {
            throw Violation(1, "\(name) is told another's response: \(response.url), \(content ?? "no body")")
        }
    }

    /// Acknowledged by somebody, or removed: by the answer to that nothing of it follows.
    mutating func closed(_ name: RequestName) {
        guard promises[name] != nil else { return }
        promises[name]?.isClosed = true
    }

    mutating func acknowledged(_ name: RequestName, by client: ClientID) {
        if promises[name]?.told.contains(client) == true { closed(name) }
    }

    mutating func forgotten(_ name: RequestName, _ id: DurableID) {
        if promises[name]?.id == id, promises[name]?.isClosed == true { promises[name]?.isForgotten = true }
    }

    /// A broker was killed. What was closed in its last moments may be back; what was accepted must be there.
    /// - Parameter kept: what is on the disk of each request; of two of one name the older.
    mutating func restarted(kept: [RequestName: DurableID]) throws(Violation) {
        for (name, promise) in promises {
            promises[name]?.told = []
            let isKept = kept[name] != nil
            promises[name]?.id = kept[name]
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
