internal import EarshotHTTP

/// Checks of the governor's invariants. O(origins and scopes): for tests and simulations.
extension OriginGovernor {
    /// - Parameter isCoordinated: whether the engine of a cluster applies the limits. It does not count attempts that
    ///   have lost their flights.
    /// - Returns: a sentence for each invariant that does not hold; empty if all do.
    func checkInvariants(isCoordinated: Bool = false) -> [String] {
        var faults: [String] = []
        func check(_ holds: Bool, _ fault: @autoclosure () -> String) { if !holds { faults.append(fault()) } }
        for number in origins.indices {
            let origin = origins[number]
            check(
                isCoordinated && origin.workerPool == WorkerPool.webPoolHandle
                    || origin.runningTransferCount <= origin.currentTransferLimit,
                "9: origin \(origin.origin) is over its limit")
            check(
                0 <= origin.belowHighTransferCount && origin.belowHighTransferCount <= origin.runningTransferCount,
                "7: origin \(origin.origin) counts \(origin.belowHighTransferCount) of \(origin.runningTransferCount) transfers as lower"
            )
            check(!origin.isIdle, "12: idle origin \(origin.origin) was not forgotten")
            let own = scopes.indices.filter { scopes[$0].origin == number }
            check(origin.scopeCount == own.count, "12: origin \(origin.origin) counts \(origin.scopeCount) scopes")
            check(
                origin.sharedScope == own.first { scopes[$0].trustScope.isCredentialFree },
                "12: origin \(origin.origin) has another scope without credentials")
        }
        for origin in origins.indices where origins[origin].isInSlowStart {
            check(
                slowStartState?.timerSerialsByOrigin[origin] != nil,
                "12: the slow start of \(origins[origin].origin) has no end")
        }
        check(
            slowStartState?.timerSerialsByOrigin.keys.allSatisfy { origins.contains($0) } ?? true,
            "12: a slow start has no origin")
        for scope in scopes.indices {
            check(origins.contains(scopes[scope].origin), "12: scope \(scope) has no origin")
            check(
                scopes[scope].isKeptForCoolDownOnly == (scopes[scope].flightCount == 0),
                "12: scope \(scope) has \(scopes[scope].flightCount) flights")
            check(
                !scopes[scope].isKeptForCoolDownOnly || scopes[scope].coolDown?.pauseEnd != nil,
                "12: scope \(scope) has no cool-down")
        }
        for (scope, count) in unavailableURLCounts {
            check(
                scopes.contains(scope) && scopes[scope].coolDown == nil && count < limits.coolDownURLThreshold,
                "11: scope \(scope) counts \(count) unavailable URLs")
        }
        let kept = scopes.indices.count { scopes[$0].isKeptForCoolDownOnly }
        check(coolDownOnlyScopeCount == kept, "11: \(kept) scopes rest, not \(coolDownOnlyScopeCount)")
        check(hasConsistentNameTables, "9: \(origins.count) origins have other names")
        return faults
    }
}
