/// Checks of a node of a cluster, for tests and simulations.
extension Cluster {
    /// Returns a sentence for each violated invariant. Linear in flights, claims and held bodies.
    static func checkInvariants(in records: Records) -> [String] {
        guard let state = records.cluster?.value else { return [] }
        var faults = state.book.checkInvariants() + state.held.checkInvariants()
        func check(_ holds: Bool, _ fault: @autoclosure () -> String) { if !holds { faults.append(fault()) } }
        for flight in records.flights.indices {
            let record = records.flights[flight]
            let claim = records.claim(of: flight)
            check(
                (record.phase == .claiming) == (claim?.isOpen == true),
                "3: flight \(record.id) is \(record.phase), and its claim is \(String(describing: claim?.phase))")
            check(
                (record.phase == .claiming) == (state.charges[flight] != nil),
                "11: flight \(record.id) is \(record.phase) and has a wrong charge")
            check(
                !record.isHosted || claim?.isHosted == true, "4: flight \(record.id) serves other nodes without a claim"
            )
            switch record.phase {
            case .backingOff, .following, .ended:
                check(claim == nil, "9: flight \(record.id) is \(record.phase) and has a claim")
            case .asking, .queued, .claiming, .running: break
            }
        }
        for (local, claim) in state.book.claims {
            let flight = records.flights.handle(of: local.name)
            check(flight != nil, "12: \(local) has ended, and its claim is \(claim.phase)")
        }
        for (flight, pull) in state.pulls {
            check(records.flights.contains(flight), "12: the body \(pull.place) is read for no flight")
            guard records.flights.contains(flight) else { continue }
            check(
                records.pools[records.pool(of: flight)].scheme == BodyAddress.scheme,
                "14: flight \(records.flights[flight].id) reads from another node in a wrong pool")
        }
        check(
            state.uselessResults.keys.allSatisfy { records.flights.contains($0) }, "12: a useless result has no flight")
        check(
            state.foreignPolicies.keys.allSatisfy { records.flights.contains($0) }, "12: a foreign policy has no flight"
        )
        check(state.held.outcomes.allSatisfy { records.outcomes.contains($0) }, "12: a held outcome does not exist")
        for origin in records.governor.origins.indices {
            let claims = state.charges.values.count { $0.origin == origin }
            check(
                Int(records.governor.origins[origin].claims) == claims, "11: an origin counts a wrong number of claims")
        }
        return faults
    }
}
