/// Number and size of the stored responses, in total and for each owner.
///
/// The owner of a response is the principal whose request stored it. The administrator is one as any other.
struct CacheTotals: Equatable {
    /// Number of responses, and their size as counted toward the limit in bytes.
    struct Part: Equatable {
        var rows = 0
        var cost = 0

        static func &+ (left: Part, right: Part) -> Part {
            Part(rows: left.rows &+ right.rows, cost: left.cost &+ right.cost)
        }
    }

    private(set) var all = Part()
    /// Parts of the owners that have responses.
    private(set) var parts: [String: Part] = [:]

    /// Adds responses of an owner, or subtracts them if the numbers are negative. The sums wrap, because a damaged index may
    /// have any number.
    mutating func add(_ change: Part, to owner: String) {
        all = all &+ change
        let part = (parts[owner] ?? Part()) &+ change
        parts[owner] = part == Part() ? nil : part
    }

    /// Forgets an owner, whose part turns out to be that of no rows.
    mutating func remove(_ owner: String) {
        guard let part = parts[owner] else { return }
        add(Part(rows: 0 &- part.rows, cost: 0 &- part.cost), to: owner)
    }

    /// Returns the owner with the largest part, and by how much it exceeds the second one; nil without owners. O(owners).
    func heaviest(by size: KeyPath<Part, Int>) -> (owner: String, lead: Int)? {
        var first: (owner: String, size: Int)?
        var second = 0
        for (owner, part) in parts {
            let size = part[keyPath: size]
            if size > first?.size ?? .min {
                second = max(0, first?.size ?? 0)
                first = (owner, size)
            } else {
                second = max(second, size)
            }
        }
        return first.map { ($0.owner, $0.size &- second) }
    }
}
