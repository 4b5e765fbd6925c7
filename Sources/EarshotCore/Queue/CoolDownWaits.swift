internal import DequeModule

/// Queued interests whose waits for a cool-down are limited, by scope.
///
/// A cool-down that begins, is prolonged or is probed concerns all those of its scope. They are checked in slices, one in
/// a pass, in which the scopes and the members of each take turns. So the event itself takes O(1). A member may be checked
/// once more than needed.
struct CoolDownWaits {
    /// Members of one scope.
    private struct Members {
        var chain = Chain<Interest>()
        /// Number of members to check, from the first one on. Too high after some of them have left.
        var unchecked = 0
        /// Time of the latest event that concerns them.
        var since = Tick(nanoseconds: .min)
    }

    /// Member to check.
    struct Turn {
        let interest: Handle<Interest>
        let scope: Handle<OriginScope>
        /// Time of the event for which it is checked.
        let since: Tick
    }

    private var scopes: [Handle<OriginScope>: Members] = [:]
    private var chains = Chains<Interest>()
    /// Scopes with members to check, in the order of their turns.
    private var pendingScopes: Deque<Handle<OriginScope>> = []

    var isEmpty: Bool { scopes.isEmpty }

    /// Whether members are left to check.
    var isBehind: Bool { !pendingScopes.isEmpty }

    mutating func add(_ interest: Handle<Interest>, of scope: Handle<OriginScope>) {
        chains.append(interest, to: &scopes[scope, default: Members()].chain)
    }

    /// Removes an interest of a scope; no effect if it is no member.
    mutating func remove(_ interest: Handle<Interest>, of scope: Handle<OriginScope>) {
        guard let index = scopes.index(forKey: scope), chains.contains(interest, in: scopes.values[index].chain) else {
            return
        }
        chains.remove(interest, from: &scopes.values[index].chain)
        if scopes.values[index].chain.isEmpty { scopes.remove(at: index) }
    }

    /// Has all members of a scope checked.
    mutating func check(_ scope: Handle<OriginScope>, since: Tick) {
        guard let index = scopes.index(forKey: scope) else { return }
        if scopes.values[index].unchecked == 0 { pendingScopes.append(scope) }
        scopes.values[index].unchecked = Int(scopes.values[index].chain.count)
        scopes.values[index].since = since
    }

    /// Takes the next member to check; nil if none is left.
    mutating func takeTurn() -> Turn? {
        while let scope = pendingScopes.popFirst() {
            // A scope whose members have left may be listed twice.
            guard let index = scopes.index(forKey: scope), scopes.values[index].unchecked > 0,
                let interest = scopes.values[index].chain.first
            else { continue }
            chains.rotate(&scopes.values[index].chain)
            scopes.values[index].unchecked -= 1
            if scopes.values[index].unchecked > 0 { pendingScopes.append(scope) }
            return Turn(interest: interest, scope: scope, since: scopes.values[index].since)
        }
        return nil
    }

    /// Releases spare capacity of tables, and the entries of interests from `bound` on, which must not exist.
    mutating func releaseRoom(beyond bound: Int, least: Int) {
        scopes.releaseRoom(least: least)
        chains.releaseRoom(beyond: bound, least: least)
        pendingScopes.releaseRoomIfEmpty()
    }

    /// Whether all members are queued in their scopes, and each scope with members to check has a turn. O(members).
    func isConsistent(isQueued: (Handle<Interest>, Handle<OriginScope>) -> Bool) -> Bool {
        scopes.allSatisfy { scope, members in
            let all = chains.members(of: members.chain)
            return !all.isEmpty && all.count == members.chain.count && all.allSatisfy { isQueued($0, scope) }
                && (members.unchecked == 0 || pendingScopes.contains(scope))
        }
    }
}
