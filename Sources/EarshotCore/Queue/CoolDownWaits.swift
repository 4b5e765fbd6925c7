internal import DequeModule

/// Queued interests whose waits for a cool-down are limited, by scope.
///
/// A cool-down that begins, is prolonged or is probed concerns all waiters of its scope. They are checked in slices,
/// one per pass, in which the scopes and the members of each take turns. So the event itself takes O(1). A member may
/// be checked once more than needed.
struct CoolDownWaits {
    /// Waiters of one scope, its *members*.
    private struct ScopeWaiters {
        var chain = LinkedList<Interest>()
        /// Number of members to check, from the first one on. Too high after some of them have left.
        var uncheckedCount = 0
        /// Time of the latest event that concerns them.
        var latestEventAt = MonotonicTime(nanoseconds: .min)
    }

    /// Member to check.
    struct PendingCheck {
        let interest: Handle<Interest>
        let scope: Handle<OriginScope>
        /// Time of the event for which it is checked.
        let eventAt: MonotonicTime
    }

    private var waitersByScope: [Handle<OriginScope>: ScopeWaiters] = [:]
    private var chains = LinkedLists<Interest>()
    /// Scopes with members to check, in the order of their turns.
    private var pendingScopes: Deque<Handle<OriginScope>> = []

    var isEmpty: Bool { waitersByScope.isEmpty }

    /// Whether members are left to check.
    var hasPendingChecks: Bool { !pendingScopes.isEmpty }

    mutating func addWaiter(_ interest: Handle<Interest>, of scope: Handle<OriginScope>) {
        chains.append(interest, to: &waitersByScope[scope, default: ScopeWaiters()].chain)
    }

    /// Removes an interest of a scope; no effect if it is no member.
    mutating func removeWaiter(_ interest: Handle<Interest>, of scope: Handle<OriginScope>) {
        guard let index = waitersByScope.index(forKey: scope),
            chains.contains(interest, in: waitersByScope.values[index].chain)
        else {
            return
        }
        chains.remove(interest, from: &waitersByScope.values[index].chain)
        if waitersByScope.values[index].chain.isEmpty { waitersByScope.remove(at: index) }
    }

    /// Schedules checks of all members of a scope.
    mutating func scheduleChecks(of scope: Handle<OriginScope>, since: MonotonicTime) {
        guard let index = waitersByScope.index(forKey: scope) else { return }
        if waitersByScope.values[index].uncheckedCount == 0 { pendingScopes.append(scope) }
        waitersByScope.values[index].uncheckedCount = Int(waitersByScope.values[index].chain.count)
        waitersByScope.values[index].latestEventAt = since
    }

    /// Takes the next member to check; nil if none is left.
    mutating func popPendingCheck() -> PendingCheck? {
        while let scope = pendingScopes.popFirst() {
            // A scope whose members have left may be listed twice.
            guard let index = waitersByScope.index(forKey: scope), waitersByScope.values[index].uncheckedCount > 0,
                let interest = waitersByScope.values[index].chain.first
            else { continue }
            chains.rotate(&waitersByScope.values[index].chain)
            waitersByScope.values[index].uncheckedCount -= 1
            if waitersByScope.values[index].uncheckedCount > 0 { pendingScopes.append(scope) }
            return PendingCheck(interest: interest, scope: scope, eventAt: waitersByScope.values[index].latestEventAt)
        }
        return nil
    }

    /// Releases spare capacity of tables, and the entries of interests from `bound` on, which must not exist.
    mutating func releaseSpareCapacity(beyond bound: Int, retaining least: Int) {
        waitersByScope.releaseSpareCapacity(retaining: least)
        chains.releaseSpareCapacity(beyond: bound, retaining: least)
        pendingScopes.releaseSpareCapacityIfEmpty()
    }

    /// Whether all members are queued in their scopes, and each scope with members to check has a turn. O(members).
    func hasConsistentWaiters(isQueued: (Handle<Interest>, Handle<OriginScope>) -> Bool) -> Bool {
        waitersByScope.allSatisfy { scope, members in
            let all = chains.members(of: members.chain)
            return !all.isEmpty && all.count == members.chain.count && all.allSatisfy { isQueued($0, scope) }
                && (members.uncheckedCount == 0 || pendingScopes.contains(scope))
        }
    }
}
