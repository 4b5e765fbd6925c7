/// Checks of the book's invariants, for tests and simulations. O(claims).
extension ClusterBook {
    /// - Returns: a sentence for each violated invariant.
    func checkInvariants() -> [String] {
        var faults: [String] = []
        let open = claims.values.count { $0.isOpen }
        if open != openClaims { faults.append("11: \(open) claims are open, not \(openClaims)") }
        if flights.count != claims.count { faults.append("3: \(flights.count) keys have \(claims.count) claims") }
        for (flight, claim) in claims {
            if flights[claim.want.key] != flight { faults.append("3: two flights have the key \(claim.want.key)") }
            switch claim.phase {
            case .waiting: if isMember || isUncoordinated { faults.append("1: \(flight) waits for no event") }
            case .wanted: if !isMember { faults.append("1: \(flight) is wanted without a membership") }
            case .running, .uncoordinated, .overtaken: break
            }
            if claim.isHosted, claim.want.lane != .shared || claim.token == nil {
                faults.append("4: \(flight) is hosted as \(claim.phase)")
            }
        }
        if !isMember,
            !traffic.unwants.isEmpty || !traffic.completions.isEmpty || !traffic.newClaims.isEmpty
                || !endingAttempts.isEmpty
        {
            faults.append("11: calls wait without a membership")
        }
        if isMember, isUncoordinated { faults.append("9: a member fetches without coordination") }
        return faults
    }
}
