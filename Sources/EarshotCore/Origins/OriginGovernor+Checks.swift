internal import EarshotHTTP

/// Checks of the governor's invariants. O(origins and scopes): for tests and simulations.
extension OriginGovernor {
    /// - Parameter isCoordinated: whether the engine of a cluster applies the limits. It does not count attempts that have
    ///   lost their flights.
    /// - Returns: a sentence for each invariant that does not hold; empty if all do.
    func checkInvariants(isCoordinated: Bool = false) -> [String] {
        var faults: [String] = []
        func check(_ holds: Bool, _ fault: @autoclosure () -> String) { if !holds { faults.append(fault()) } }
        for number in origins.indices {
            let origin = origins[number]
            check(
                isCoordinated && origin.pool == WorkerPool.web || origin.running <= origin.ceiling,
                "9: origin \(origin.origin) is over its limit")
            check(
                0 <= origin.transfersBelowHigh && origin.transfersBelowHigh <= origin.running,
                "7: origin \(origin.origin) counts \(origin.transfersBelowHigh) of \(origin.running) transfers as lower"
            )
            check(!origin.isIdle, "12: idle origin \(origin.origin) was not forgotten")
            let own = scopes.indices.filter { scopes[$0].origin == number }
            check(origin.scopes == own.count, "12: origin \(origin.origin) counts \(origin.scopes) scopes")
            check(
                origin.sharedScope == own.first { scopes[$0].scope.isShared },
                "12: origin \(origin.origin) has another scope without credentials")
        }
        for origin in origins.indices where origins[origin].isInSlowStart {
            check(slowStart?.steps[origin] != nil, "12: the slow start of \(origins[origin].origin) has no end")
        }
        check(slowStart?.steps.keys.allSatisfy { origins.contains($0) } ?? true, "12: a slow start has no origin")
        for scope in scopes.indices {
            check(origins.contains(scopes[scope].origin), "12: scope \(scope) has no origin")
            check(
                scopes[scope].isResting == (scopes[scope].flights == 0),
                "12: scope \(scope) has \(scopes[scope].flights) flights")
            check(
                !scopes[scope].isResting || scopes[scope].coolDown?.end != nil, "12: scope \(scope) has no cool-down")
        }
        for (scope, count) in unavailableCounts {
            check(
                scopes.contains(scope) && scopes[scope].coolDown == nil && count < limits.outageURLs,
                "11: scope \(scope) counts \(count) unavailable URLs")
        }
        let resting = scopes.indices.count { scopes[$0].isResting }
        check(restingScopes == resting, "11: \(resting) scopes rest, not \(restingScopes)")
        check(namesAreComplete, "9: \(origins.count) origins have other names")
        return faults
    }
}
