/// Checks of the fleet's invariants, for tests and simulations. O(leases).
extension WorkerFleet {
    /// Returns a sentence for each violated invariant.
    func checkInvariants() -> [String] {
        var faults: [String] = []
        func check(_ holds: Bool, _ fault: @autoclosure () -> String) { if !holds { faults.append(fault()) } }
        for number in indices {
            let worker = self[number]
            let leases = worker.leases.allLeases
            let cancelling = leases.count { $0.isCancelling }
            let lower = leases.count { !$0.isHighPriority }
            check(self.handle(of: worker.id) == number, "12: worker \(number) has another name")
            check(cancelling == worker.cancellingLeaseCount, "9: worker \(number) cancels \(cancelling)")
            check(leases.count <= worker.maximumLeases, "11: worker \(number) is overfull")
            check(
                lower == worker.belowHighLeaseCount,
                "7: worker \(number) counts \(worker.belowHighLeaseCount) of lower classes")
            check(worker.phase != .joining || worker.hasNoTransfers, "14: worker \(number) has work before its READY")
            check(
                leases.allSatisfy { $0.cancelledFlight == nil || $0.isCancelling },
                "4: worker \(number) runs an abandoned attempt")
            check(
                worker.suspectIsolation.map { worker.leases.contains($0.attempt) } ?? true,
                "12: worker \(number) isolates an attempt that has ended")
        }
        return faults
    }
}
