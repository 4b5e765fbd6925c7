internal import EarshotWire

/// Purge of a handler that was removed with more requests than one pass purges.
///
/// Its requests count as removed from the start, and its name belongs to a new record, so no lookup finds it. The
/// requests are purged in slices, one per pass.
struct Purge: Equatable {
    /// Clients that listened when it was removed, except the remover. Each receives one `FAILED …
    /// removed` per request.
    var listeners: [Handle<ClientSession>]
    /// Requests that had not ended and are not purged yet.
    var remaining: Int
    /// Message that removed the handler.
    let removal: MessageMark
}

/// Removal of a subtree that is under way.
struct SubtreeRemoval {
    let pattern: HandlerPattern
    /// Name at which the next slice begins; nil for the first.
    var next: String?
    /// Number of removed requests that had not ended.
    var count = 0
}

/// Number of open requests of a handler per owner. The single owner of most handlers needs no allocation.
struct OwnerCounts: Equatable {
    private var first: Handle<ClientSession>?
    private var firstCount: Int32 = 0
    private var others: [Handle<ClientSession>: Int32]?

    /// Owners, with the number of requests of each, in any order.
    var counts: [(owner: Handle<ClientSession>, count: Int)] {
        var counts = (others ?? [:]).map { (owner: $0.key, count: Int($0.value)) }
        if let first, firstCount > 0 { counts.append((first, Int(firstCount))) }
        return counts
    }

    mutating func add(_ change: Int32, for owner: Handle<ClientSession>) {
        if first != owner, firstCount == 0, others?[owner] == nil { first = owner }
        if first == owner {
            firstCount += change
        } else {
            let count = (others?[owner] ?? 0) + change
            others = others ?? [:]
            others?[owner] = count > 0 ? count : nil
            if others?.isEmpty == true { others = nil }
        }
    }
}
