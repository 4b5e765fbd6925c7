/// What is left to do of a handler that was removed with more requests than are purged at once.
///
/// Its requests count as removed from the start, its name belongs to a new record, and nobody can find it any more; it
/// is worked off in slices.
struct Purge {
    /// Those who listened when it was removed, the remover not among them, by number: each is owed one
    /// `FAILED … removed` for each request.
    var listeners: [Int32]
    /// Requests that had not ended and are not purged yet.
    var remaining: Int
    let remover: ClientID
    /// Whether some of its IDs are not freed yet.
    var isUnderWay = true
    /// Whether it began before this pass.
    var isOld = false
}

/// How many open requests of a handler each client owns. Most handlers have one owner, which costs no allocation.
struct OwnerCounts {
    private var first: Int32 = -1
    private var firstCount: Int32 = 0
    private var others: [Int32: Int32]?

    /// Owners by number, and how many each has.
    var counts: [(owner: Int32, count: Int)] {
        var counts = (others ?? [:]).map { (owner: $0.key, count: Int($0.value)) }
        if firstCount > 0 { counts.append((first, Int(firstCount))) }
        return counts
    }

    mutating func add(_ change: Int32, for owner: Int32) {
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
