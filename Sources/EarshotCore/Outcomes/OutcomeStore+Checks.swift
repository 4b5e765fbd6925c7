/// Checks of the store's invariants, for tests and simulations. O(outcomes, owed failures and files).
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
            guard case .file(_, let body?) = response.body else { continue }
            check(spilling[body] == number, "12: outcome \(number) is not spilled")
        }
        for (body, number) in spilling {
            let form = outcomes.contains(number) ? outcomes[number].response?.body : nil
            if case .file(_, body)? = form { continue }
            check(false, "12: outcome \(number) has lost its spilled body")
        }
        for number in compact.indices {
            let failure = compact[number]
            check(failure.holders > 0, "12: owed failure \(number) has no holder")
            check(
                failure.interest.map { compactNumbers[$0] == number } ?? true,
                "12: owed failure \(number) names a wrong request")
            let text = outcomes.contains(failure.outcome) ? outcomes[failure.outcome].text : nil
            check(
                text.map { sharedFailures[$0] == failure.outcome } ?? false,
                "11: owed failure \(number) has an outcome of its own")
        }
        check(compactURLs.keys.allSatisfy { compact.contains($0) }, "12: URLs of no owed failure are kept")
        for (text, number) in sharedFailures {
            check(
                outcomes.contains(number) && outcomes[number].text == text && outcomes[number].url == nil,
                "12: outcome \(number) is shared under the text of another")
        }
        for (interest, number) in compactNumbers {
            check(
                compact.contains(number) && compact[number].interest == interest,
                "12: interest \(interest) is owed the failure of another")
        }
        for (file, names) in named {
            check(files[file]?.holders ?? 0 >= names, "12: file \(file) was released, and \(names) name it")
        }
        let bytes = files.values.reduce(0) { $0 &+ $1.bytes }
        check(fileBytes == bytes, "11: files have \(bytes) bytes, not \(fileBytes)")
        check(files.values.allSatisfy { $0.holders > 0 }, "12: a file has no holder")
        return faults
    }
}
