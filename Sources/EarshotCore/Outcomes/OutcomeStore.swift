internal import EarshotWire

/// Outcomes shared by requests, failures that wait without their requests, and spool files.
///
/// Each of the three has a reference count; releasing the last reference frees it. States of the body of an outcome:
///
/// ```
///            spill
///  .inline ─────────→ .file       the shell writes it into a spool file
///     ↑                  │
///     └──── unspill ─────┘        the write failed
/// ```
///
/// `link` makes the transitions of an `CompactFailure`. The store deletes no files and no bodies: its functions return those
/// that the caller deletes.
package struct OutcomeStore {
    /// Bounds of the store.
    struct Limits: Equatable {
        /// Maximum bytes of bodies waiting in memory for one client or one handler.
        var waitingBytes: Int

        init(waitingBytes: Int) {
            self.waitingBytes = waitingBytes
        }

        init(_ limits: CoreLimits) {
            self.init(waitingBytes: limits.waitingBytes)
        }
    }

    /// Body and files without references, for the caller to delete.
    struct Freed: Equatable {
        var body: BodyID?
        var files: [String] = []
    }

    struct HeldFile {
        var holders: Int
        let bytes: Int
        var audience = FileAudience.noSession
    }

    /// Phase of an owed failure.
    private enum Link {
        case absent
        case attached(interest: Handle<Interest>)
        case detached
    }

    var limits: Limits
    private(set) var outcomes = Slab<Outcome>()
    /// Outcomes by the spilled body that the shell writes into the spool.
    private(set) var spilling: [BodyID: Handle<Outcome>] = [:]
    private(set) var compact = Slab<CompactFailure>()
    /// Attached failures by the interest of their request.
    private(set) var compactNumbers: [Handle<Interest>: Handle<CompactFailure>] = [:]
    private(set) var compactURLs: [Handle<CompactFailure>: String] = [:]
    /// Outcomes of owed failures by their text.
    private(set) var sharedFailures: [CompactFailure.Text: Handle<Outcome>] = [:]
    /// Spool files with references, by name.
    private(set) var files: [String: HeldFile] = [:]
    // Wrapping sums: workers report some of the sizes.
    private(set) var fileBytes = 0
    private(set) var growingBytes = 0
    /// Whether a write failed since the last retry.
    private(set) var isSpoolFull = false

    init(limits: Limits) {
        self.limits = limits
    }

    // MARK: Outcomes

    /// Number of outcomes.
    var count: Int { outcomes.count }

    /// Whether the store has no outcomes, owed failures or files.
    var isEmpty: Bool {
        outcomes.count == 0 && spilling.isEmpty && compact.count == 0 && compactNumbers.isEmpty && compactURLs.isEmpty
            && sharedFailures.isEmpty && files.isEmpty
    }

    package subscript(number: Handle<Outcome>) -> Outcome { _read { yield outcomes[number] } }

    func contains(_ number: Handle<Outcome>) -> Bool { outcomes.contains(number) }

    /// Adds an outcome with a reference count of 0.
    mutating func insert(_ outcome: consuming Outcome) -> Handle<Outcome> { outcomes.insert(outcome) }

    /// Adds an outcome with one reference, which the caller releases or passes on.
    mutating func insertRetained(_ outcome: consuming Outcome) -> Handle<Outcome> {
        outcome.holders = 1
        return outcomes.insert(outcome)
    }

    mutating func retain(_ number: Handle<Outcome>) { outcomes[number].holders += 1 }

    /// Releases a reference to an outcome, and frees the outcome with the last one.
    ///
    /// - Returns: the body and files to delete; nil if the outcome has other references or no response.
    mutating func release(_ number: Handle<Outcome>) -> Freed? {
        outcomes[number].holders -= 1
        guard outcomes[number].holders == 0 else { return nil }
        if !sharedFailures.isEmpty { forgetShared(number) }
        guard let response = outcomes.take(number).response else { return nil }
        if case .file(_, let body?) = response.body { spilling[body] = nil }
        return release(response)
    }

    /// Releases the body and files of a response that is not part of an outcome.
    mutating func release(_ response: Outcome.Response) -> Freed {
        var freed = Freed(body: response.inlineBody)
        if let file = response.file, release(file: file) { freed.files.append(file) }
        return freed
    }

    // MARK: Bodies

    /// Whether a body must leave memory: `waiting` bodies of its size would exceed the limit. True only for a body in
    /// memory.
    func mustSpill(_ number: Handle<Outcome>, waiting: Int) -> Bool {
        guard let response = outcomes[number].response, case .inline = response.body, response.sha256 != nil,
            waiting > 0
        else { return false }
        return response.length > limits.waitingBytes / waiting
    }

    /// Moves the body of an outcome from memory into a spool file.
    ///
    /// - Returns: the body to write and the name of its file; nil if the outcome has no body in memory.
    mutating func spill(_ number: Handle<Outcome>) -> (body: BodyID, file: String)? {
        guard let response = outcomes[number].response, let body = response.inlineBody, let sum = response.sha256
        else { return nil }
        let file = SpoolName.waiting(sha256: sum)
        outcomes[number].response?.body = .file(file, spilled: body)
        hold(file: file, bytes: response.length)
        spilling[body] = number
        return (body, file)
    }

    /// Moves a body whose write failed back into memory.
    ///
    /// - Returns: the file to delete, or the body if its outcome was freed.
    mutating func unspill(_ body: BodyID) -> Freed {
        guard let number = spilling.removeValue(forKey: body) else { return Freed(body: body) }
        guard case .file(let file, body)? = outcomes[number].response?.body else {
            preconditionFailure("body of outcome \(number) is not spilled")
        }
        outcomes[number].response?.body = .inline(body)
        return Freed(files: release(file: file) ? [file] : [])
    }

    /// Stops spilling because the spool accepts no more bodies.
    ///
    /// - Returns: whether it was spilling until now.
    mutating func noteFullSpool() -> Bool {
        defer { isSpoolFull = true }
        return !isSpoolFull
    }

    /// Resumes spilling.
    mutating func retrySpool() { isSpoolFull = false }

    // MARK: Owed failures

    /// Returns the owed failure of a request.
    func compactNumber(of interest: Handle<Interest>) -> Handle<CompactFailure>? {
        compactNumbers.isEmpty ? nil : compactNumbers[interest]
    }

    /// Adds the owed failure of a request with a reference count of 0. It holds a reference to the outcome that all
    /// failures with its text share, which `releaseCompact` leaves to the caller.
    ///
    /// - Parameter outcome: outcome of the request, a failure without a response.
    mutating func addCompact(
        _ request: RequestID, of interest: Handle<Interest>, _ handler: Handle<HandlerEntry>,
        outcome: Handle<Outcome>
    ) -> Handle<CompactFailure> {
        let url = outcomes[outcome].url
        let shared = sharedFailure(like: outcome)
        retain(shared)
        let number = compact.insert(CompactFailure(request: request, handler: handler, outcome: shared))
        if let url { compactURLs[number] = url }
        link(number, .attached(interest: interest))
        return number
    }

    /// The outcome of all owed failures with the text of this one, which has no URL.
    private mutating func sharedFailure(like number: Handle<Outcome>) -> Handle<Outcome> {
        var outcome = outcomes[number]
        guard let text = outcome.text else { preconditionFailure("outcome \(number) is no failure without a response") }
        if let shared = sharedFailures[text] { return shared }
        (outcome.url, outcome.holders) = (nil, 0)
        let shared = outcomes[number].url == nil ? number : outcomes.insert(outcome)
        sharedFailures[text] = shared
        return shared
    }

    private mutating func forgetShared(_ number: Handle<Outcome>) {
        guard let text = outcomes[number].text, sharedFailures[text] == number else { return }
        sharedFailures[text] = nil
    }

    mutating func retainCompact(_ number: Handle<CompactFailure>) { compact[number].holders += 1 }

    /// Detaches an owed failure from its request, whose record is being freed.
    mutating func detachCompact(_ number: Handle<CompactFailure>) { link(number, .detached) }

    /// Releases a reference to an owed failure, and removes the failure with the last one.
    ///
    /// - Returns: whether it was removed. The caller releases its outcome then.
    mutating func releaseCompact(_ number: Handle<CompactFailure>) -> Bool {
        compact[number].holders -= 1
        guard compact[number].holders == 0 else { return false }
        link(number, .absent)
        compactURLs.drop(number)
        compact.remove(number)
        // A slow client may have had a million of them.
        if compact.count == 0 { compact = Slab() }
        return true
    }

    private mutating func link(_ number: Handle<CompactFailure>, _ link: Link) {
        let earlier = compact[number].interest
        switch link {
        case .attached(let interest):
            let other = compactNumbers.updateValue(number, forKey: interest)
            precondition(earlier == nil && other == nil, "interest \(interest) has two owed failures")
            compact[number].interest = interest
        case .detached, .absent:
            if let earlier { compactNumbers[earlier] = nil }
            if case .detached = link { precondition(earlier != nil, "owed failure \(number) is detached twice") }
            compact[number].interest = nil
        }
    }

    // MARK: Files

    /// Bytes in the spool without kept parts: complete and growing files.
    var spooledBytes: Int { fileBytes &+ growingBytes }

    func needsFile(_ name: String) -> Bool { files[name] != nil }

    /// Adds a reference to a spool file.
    ///
    /// - Parameters:
    ///   - bytes: size of the file, counted for its first reference.
    ///   - isShared: whether a store outside of the spool has it, too.
    mutating func hold(file name: String, bytes: Int, isShared: Bool = false) {
        defer { if isShared { shareFile(name) } }
        guard files[name] == nil else {
            files[name]?.holders += 1
            return
        }
        files[name] = HeldFile(holders: 1, bytes: bytes)
        fileBytes &+= bytes
    }

    /// Releases a reference to a spool file.
    ///
    /// - Returns: whether it was the last one, so that the caller deletes the file.
    mutating func release(file name: String) -> Bool {
        guard let file = files[name] else { return false }
        guard file.holders == 1 else {
            files[name]?.holders -= 1
            return false
        }
        files[name] = nil
        fileBytes &-= file.bytes
        return true
    }

    /// Records that a file becomes known to someone.
    mutating func showFile(_ name: String, to audience: FileAudience) { files[name]?.audience.add(audience) }

    /// Records that a file has users beside one session, so that no client may own it.
    mutating func shareFile(_ name: String) { showFile(name, to: .others) }

    /// Whether a file has one reference and is known only to one session.
    func isExclusive(_ name: String, to session: UInt64) -> Bool {
        files[name].map { $0.holders == 1 && $0.audience == .session(session) } ?? false
    }

    /// Changes the name of the file of an outcome, which has the only reference to it.
    mutating func renameFile(of number: Handle<Outcome>, to name: String) {
        guard let old = outcomes[number].response?.file, let file = files.removeValue(forKey: old) else {
            preconditionFailure("outcome \(number) has no file to rename")
        }
        precondition(file.holders == 1 && files[name] == nil, "file \(old) has \(file.holders) references")
        files[name] = file
        outcomes[number].response?.body = .file(name)
    }

    /// Counts bytes written into the files of running attempts. Negative at the end of an attempt.
    mutating func filesGrew(by bytes: Int) { growingBytes &+= bytes }

    // MARK: Memory

    /// Whether a table has much spare capacity.
    func canShrink(least: Int) -> Bool {
        outcomes.canShrink(least: least) || compact.canShrink(least: least)
    }

    /// Releases spare capacity beyond `least` entries.
    mutating func releaseRoom(least: Int) {
        outcomes.releaseRoom(least: least)
        compact.releaseRoom(least: least)
        files.releaseRoom(least: least)
        spilling.releaseRoom(least: least)
        compactNumbers.releaseRoom(least: least)
        compactURLs.releaseRoom(least: least)
        sharedFailures.releaseRoom(least: least)
    }
}

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
