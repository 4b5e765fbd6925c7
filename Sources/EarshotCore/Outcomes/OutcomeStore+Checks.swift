/// Checks of the store's invariants, for tests and simulations. O(outcomes, terminals and files).
extension OutcomeStore {
    /// Returns a sentence for each violated invariant.
    func checkInvariants() -> [String] {
        var faults: [String] = []
        func check(_ holds: Bool, _ fault: @autoclosure () -> String) { if !holds { faults.append(fault()) } }
        var named: [String: Int] = [:]
        for number in outcomes.indices {
            check(outcomes[number].holders > 0, "12: outcome \(number) has no holder")
            guard let response = outcomes[number].response else { continue }
            if let file = response.file { named[file, default: 0] += 1 }
            guard let body = response.spilled else { continue }
            check(response.body == nil && spilling[body] == number, "12: outcome \(number) is not spilled")
        }
        for (body, number) in spilling {
            check(
                outcomes.contains(number) && outcomes[number].response?.spilled == body,
                "12: outcome \(number) has lost its spilled body")
        }
        for number in waiting.indices {
            let terminal = waiting[number]
            check(terminal.holders > 0, "12: waiting terminal \(number) has no holder")
            check(
                terminal.interest.map { waitingNumbers[$0] == number } ?? true,
                "12: waiting terminal \(number) names a wrong request")
            check(
                (waitingFiles[number] != nil) == terminal.isFiled, "12: waiting terminal \(number) names another file")
            if let file = waitingFiles[number]?.file { named[file, default: 0] += 1 }
        }
        for (interest, number) in waitingNumbers {
            check(
                waiting.contains(number) && waiting[number].interest == interest,
                "12: interest \(interest) waits in a record of another")
        }
        for (file, names) in named {
            check(files[file]?.holders ?? 0 >= names, "12: file \(file) was released, and \(names) name it")
        }
        let bytes = files.values.reduce(0) { $0 &+ $1.bytes }
        check(fileBytes == bytes, "11: files have \(bytes) bytes, not \(fileBytes)")
        check(files.values.allSatisfy { $0.holders > 0 }, "12: a file has no holder")
        let waitingBytes = waiting.indices.reduce(0) { $0 &+ Int(waiting[$1].bytes) }
        check(self.waitingBytes == waitingBytes, "11: \(waitingBytes) bytes wait, not \(self.waitingBytes)")
        return faults
    }
}
