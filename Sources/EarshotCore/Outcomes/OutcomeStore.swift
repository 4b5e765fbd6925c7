internal import EarshotWire

/// Outcomes shared by requests, failures that wait without their requests, and spool files.
///
/// Each of the three has a reference count; releasing the last reference frees it. States of the body of an outcome:
///
/// ```
/// .inline → .file  (spillBody: the shell writes the body into a spool file)
/// .file → .inline  (returnBodyToMemory: the write failed)
/// ```
///
/// `setLink` makes the transitions of a `CompactFailure`. The store deletes no files and no bodies: its functions
/// return those that the caller deletes.
package struct OutcomeStore {
    /// Bounds of the store.
    struct Limits: Equatable {
        /// Maximum bytes of bodies waiting in memory for one client or one handler.
        var maximumWaitingBytes: Int

        init(maximumWaitingBytes: Int) {
            self.maximumWaitingBytes = maximumWaitingBytes
        }

        init(_ limits: CoreLimits) {
            self.init(maximumWaitingBytes: limits.maximumWaitingBodyBytes)
        }
    }

    /// Body and files without references, for the caller to delete.
    struct FreedStorage: Equatable {
        var body: BodyID?
        var files: [String] = []
    }

    struct HeldFile {
        var referenceCount: Int
        let fileSizeBytes: Int
        var fileAudience = FileAudience.knownToNoSession
    }

    /// Phase of a compact failure.
    private enum CompactFailureLink {
        case absent
        case attached(interest: Handle<Interest>)
        case detached
    }

    var limits: Limits
    private(set) var outcomes = Slab<Outcome>()
    /// Outcomes by the spilled body that the shell writes into the spool.
    private(set) var outcomesBySpillingBody: [BodyID: Handle<Outcome>] = [:]
    private(set) var compactFailures = Slab<CompactFailure>()
    /// Attached failures by the interest of their request.
    private(set) var compactFailuresByInterest: [Handle<Interest>: Handle<CompactFailure>] = [:]
    private(set) var compactFailureURLs: [Handle<CompactFailure>: String] = [:]
    /// Outcomes of compact failures by their text.
    private(set) var sharedFailuresByText: [CompactFailure.SharedFailureText: Handle<Outcome>] = [:]
    /// Spool files with references, by name.
    private(set) var spoolFiles: [String: HeldFile] = [:]
    // Wrapping sums: workers report some of the sizes.
    private(set) var spoolFileBytes = 0
    private(set) var growingFileBytes = 0
    /// Whether a write failed since the last retry.
    private(set) var isSpoolFull = false

    init(limits: Limits) {
        self.limits = limits
    }

    // MARK: Outcomes

    /// Number of outcomes.
    var count: Int { outcomes.count }

    /// Whether the store has no outcomes, compact failures or files.
    var isEmpty: Bool {
        outcomes.count == 0 && outcomesBySpillingBody.isEmpty && compactFailures.count == 0
            && compactFailuresByInterest.isEmpty && compactFailureURLs.isEmpty
            && sharedFailuresByText.isEmpty && spoolFiles.isEmpty
    }

    package subscript(number: Handle<Outcome>) -> Outcome { _read { yield outcomes[number] } }

    func contains(_ number: Handle<Outcome>) -> Bool { outcomes.contains(number) }

    /// Adds an outcome with a reference count of 0.
    mutating func insert(_ outcome: consuming Outcome) -> Handle<Outcome> { outcomes.insert(outcome) }

    /// Adds an outcome with one reference, which the caller releases or passes on.
    mutating func insertWithOneReference(_ outcome: consuming Outcome) -> Handle<Outcome> {
        outcome.referenceCount = 1
        return outcomes.insert(outcome)
    }

    mutating func addReference(to number: Handle<Outcome>) { outcomes[number].referenceCount += 1 }

    /// Releases a reference to an outcome, and frees the outcome with the last one.
    ///
    /// - Returns: the body and files to delete; nil if the outcome has other references or no response.
    mutating func releaseReference(to number: Handle<Outcome>) -> FreedStorage? {
        outcomes[number].referenceCount -= 1
        guard outcomes[number].referenceCount == 0 else { return nil }
        if !sharedFailuresByText.isEmpty { removeSharedFailure(number) }
        guard let response = outcomes.removeReturning(number).response else { return nil }
        if case .file(_, let body?) = response.body { outcomesBySpillingBody[body] = nil }
        return releaseUnownedResponse(response)
    }

    /// Releases the body and files of a response that is not part of an outcome.
    mutating func releaseUnownedResponse(_ response: Outcome.Response) -> FreedStorage {
        var freed = FreedStorage(body: response.inlineBody)
        if let file = response.bodyFile, releaseFile(file) { freed.files.append(file) }
        return freed
    }

    // MARK: Bodies

    /// Whether a body must leave memory: `waiting` bodies of its size would exceed the limit. True only for a body in
    /// memory.
    func mustSpillBody(_ number: Handle<Outcome>, waiting: Int) -> Bool {
        guard let response = outcomes[number].response, case .inline = response.body, response.sha256 != nil,
            waiting > 0
        else { return false }
        return response.bodyLength > limits.maximumWaitingBytes / waiting
    }

    /// Moves the body of an outcome from memory into a spool file.
    ///
    /// - Returns: the body to write and the name of its file; nil if the outcome has no body in memory.
    mutating func spillBody(of number: Handle<Outcome>) -> (body: BodyID, file: String)? {
        guard let response = outcomes[number].response, let body = response.inlineBody, let sum = response.sha256
        else { return nil }
        let file = SpoolName.spilledBody(sha256: sum)
        outcomes[number].response?.body = .file(file, spilledBody: body)
        retainFile(file, bytes: response.bodyLength)
        outcomesBySpillingBody[body] = number
        return (body, file)
    }

    /// Moves a body whose write failed back into memory.
    ///
    /// - Returns: the file to delete, or the body if its outcome was freed.
    mutating func returnBodyToMemory(_ body: BodyID) -> FreedStorage {
        guard let number = outcomesBySpillingBody.removeValue(forKey: body) else { return FreedStorage(body: body) }
        guard case .file(let file, body)? = outcomes[number].response?.body else {
            preconditionFailure("body of outcome \(number) is not spilled")
        }
        outcomes[number].response?.body = .inline(body)
        return FreedStorage(files: releaseFile(file) ? [file] : [])
    }

    /// Stops spilling because the spool accepts no more bodies.
    ///
    /// - Returns: whether it was spilling until now.
    mutating func spoolBecameFull() -> Bool {
        defer { isSpoolFull = true }
        return !isSpoolFull
    }

    /// Resumes spilling.
    mutating func allowSpoolRetry() { isSpoolFull = false }

    // MARK: Compact failures

    /// Returns the compact failure of a request.
    func compactFailureHandle(of interest: Handle<Interest>) -> Handle<CompactFailure>? {
        compactFailuresByInterest.isEmpty ? nil : compactFailuresByInterest[interest]
    }

    /// Adds the compact failure of a request with a reference count of 0. It holds a reference to the outcome that all
    /// failures with its text share, which `releaseCompactFailure` leaves to the caller.
    ///
    /// - Parameter outcome: outcome of the request, a failure without a response.
    mutating func addCompactFailure(
        _ request: RequestID, of interest: Handle<Interest>, _ handler: Handle<HandlerEntry>,
        outcome: Handle<Outcome>
    ) -> Handle<CompactFailure> {
        let url = outcomes[outcome].url
        let shared = sharedOutcome(matchingFailure: outcome)
        addReference(to: shared)
        let number = compactFailures.insert(CompactFailure(request: request, handler: handler, outcome: shared))
        if let url { compactFailureURLs[number] = url }
        setLink(of: number, .attached(interest: interest))
        return number
    }

    /// The outcome, without a URL, that all compact failures with the text of this one share.
    private mutating func sharedOutcome(matchingFailure number: Handle<Outcome>) -> Handle<Outcome> {
        var outcome = outcomes[number]
        guard let text = outcome.sharedFailureText else {
            preconditionFailure("outcome \(number) is no failure without a response")
        }
        if let shared = sharedFailuresByText[text] { return shared }
        (outcome.url, outcome.referenceCount) = (nil, 0)
        let shared = outcomes[number].url == nil ? number : outcomes.insert(outcome)
        sharedFailuresByText[text] = shared
        return shared
    }

    private mutating func removeSharedFailure(_ number: Handle<Outcome>) {
        guard let text = outcomes[number].sharedFailureText, sharedFailuresByText[text] == number else { return }
        sharedFailuresByText[text] = nil
    }

    mutating func retainCompactFailure(_ number: Handle<CompactFailure>) { compactFailures[number].referenceCount += 1 }

    /// Detaches a compact failure from its request, whose record is being freed.
    mutating func detachCompactFailure(_ number: Handle<CompactFailure>) { setLink(of: number, .detached) }

    /// Releases a reference to a compact failure, and removes the failure with the last one.
    ///
    /// - Returns: whether it was removed. The caller releases its outcome then.
    mutating func releaseCompactFailure(_ number: Handle<CompactFailure>) -> Bool {
        compactFailures[number].referenceCount -= 1
        guard compactFailures[number].referenceCount == 0 else { return false }
        setLink(of: number, .absent)
        compactFailureURLs.removeUnlessEmpty(forKey: number)
        compactFailures.destroy(number)
        // A slow client may have had a million of them.
        if compactFailures.count == 0 { compactFailures = Slab() }
        return true
    }

    private mutating func setLink(of number: Handle<CompactFailure>, _ link: CompactFailureLink) {
        let earlier = compactFailures[number].interest
        switch link {
        case .attached(let interest):
            let other = compactFailuresByInterest.updateValue(number, forKey: interest)
            precondition(earlier == nil && other == nil, "interest \(interest) has two owed failures")
            compactFailures[number].interest = interest
        case .detached, .absent:
            if let earlier { compactFailuresByInterest[earlier] = nil }
            if case .detached = link { precondition(earlier != nil, "owed failure \(number) is detached twice") }
            compactFailures[number].interest = nil
        }
    }

    // MARK: Files

    /// Bytes in the spool without kept parts: complete and growing files.
    var spooledBytes: Int { spoolFileBytes &+ growingFileBytes }

    func isFileReferenced(_ name: String) -> Bool { spoolFiles[name] != nil }

    /// Adds a reference to a spool file.
    ///
    /// - Parameters:
    ///   - bytes: size of the file, counted for its first reference.
    ///   - isShared: whether a store outside of the spool has it.
    mutating func retainFile(_ name: String, bytes: Int, isShared: Bool = false) {
        defer { if isShared { markFileShared(name) } }
        guard spoolFiles[name] == nil else {
            spoolFiles[name]?.referenceCount += 1
            return
        }
        spoolFiles[name] = HeldFile(referenceCount: 1, fileSizeBytes: bytes)
        spoolFileBytes &+= bytes
    }

    /// Releases a reference to a spool file.
    ///
    /// - Returns: whether it was the last one, so that the caller deletes the file.
    mutating func releaseFile(_ name: String) -> Bool {
        guard let file = spoolFiles[name] else { return false }
        guard file.referenceCount == 1 else {
            spoolFiles[name]?.referenceCount -= 1
            return false
        }
        spoolFiles[name] = nil
        spoolFileBytes &-= file.fileSizeBytes
        return true
    }

    /// Adds sessions to those that know a file.
    mutating func extendFileAudience(_ name: String, to audience: FileAudience) {
        spoolFiles[name]?.fileAudience.formUnion(audience)
    }

    /// Records that a file has users besides one session, so that no client may own it.
    mutating func markFileShared(_ name: String) { extendFileAudience(name, to: .multipleOrUnknown) }

    /// Whether a file has one reference and is known only to one session.
    func isFileExclusive(_ name: String, to session: UInt64) -> Bool {
        spoolFiles[name].map { $0.referenceCount == 1 && $0.fileAudience == .onlySession(session) } ?? false
    }

    /// Changes the name of the file of an outcome, which has the only reference to it.
    mutating func renameFile(of number: Handle<Outcome>, to name: String) {
        guard let old = outcomes[number].response?.bodyFile, let file = spoolFiles.removeValue(forKey: old) else {
            preconditionFailure("outcome \(number) has no file to rename")
        }
        precondition(
            file.referenceCount == 1 && spoolFiles[name] == nil, "file \(old) has \(file.referenceCount) references")
        spoolFiles[name] = file
        outcomes[number].response?.body = .file(name)
    }

    /// Counts bytes written into the files of running attempts. Negative at the end of an attempt.
    mutating func growingFilesGrew(by bytes: Int) { growingFileBytes &+= bytes }

    // MARK: Memory

    /// Whether a table has much spare capacity.
    func hasSpareCapacity(beyond: Int) -> Bool {
        outcomes.hasSpareCapacity(beyond: beyond) || compactFailures.hasSpareCapacity(beyond: beyond)
    }

    /// Releases spare capacity beyond `least` entries.
    mutating func releaseSpareCapacity(retaining least: Int) {
        outcomes.releaseSpareCapacity(retaining: least)
        compactFailures.releaseSpareCapacity(retaining: least)
        spoolFiles.releaseSpareCapacity(retaining: least)
        outcomesBySpillingBody.releaseSpareCapacity(retaining: least)
        compactFailuresByInterest.releaseSpareCapacity(retaining: least)
        compactFailureURLs.releaseSpareCapacity(retaining: least)
        sharedFailuresByText.releaseSpareCapacity(retaining: least)
    }
}

/// Checks of the store's invariants, for tests and simulations. O(outcomes, compact failures and files).
extension OutcomeStore {
    /// Returns a sentence for each violated invariant.
    func checkInvariants() -> [String] {
        var faults: [String] = []
        func check(_ holds: Bool, _ fault: @autoclosure () -> String) { if !holds { faults.append(fault()) } }
        var named: [String: Int] = [:]
        for number in outcomes.indices {
            check(outcomes[number].referenceCount > 0, "12: outcome \(number) has no holder")
            guard let response = outcomes[number].response else { continue }
            if let file = response.bodyFile { named[file, default: 0] += 1 }
            guard case .file(_, let body?) = response.body else { continue }
            check(outcomesBySpillingBody[body] == number, "12: outcome \(number) is not spilled")
        }
        for (body, number) in outcomesBySpillingBody {
            let form = outcomes.contains(number) ? outcomes[number].response?.body : nil
            if case .file(_, body)? = form { continue }
            check(false, "12: outcome \(number) has lost its spilled body")
        }
        for number in compactFailures.indices {
            let failure = compactFailures[number]
            check(failure.referenceCount > 0, "12: owed failure \(number) has no holder")
            check(
                failure.interest.map { compactFailuresByInterest[$0] == number } ?? true,
                "12: owed failure \(number) names a wrong request")
            let text = outcomes.contains(failure.outcome) ? outcomes[failure.outcome].sharedFailureText : nil
            check(
                text.map { sharedFailuresByText[$0] == failure.outcome } ?? false,
                "11: owed failure \(number) has an outcome of its own")
        }
        check(
            compactFailureURLs.keys.allSatisfy { compactFailures.contains($0) }, "12: URLs of no owed failure are kept")
        for (text, number) in sharedFailuresByText {
            check(
                outcomes.contains(number) && outcomes[number].sharedFailureText == text && outcomes[number].url == nil,
                "12: outcome \(number) is shared under the text of another")
        }
        for (interest, number) in compactFailuresByInterest {
            check(
                compactFailures.contains(number) && compactFailures[number].interest == interest,
                "12: interest \(interest) is owed the failure of another")
        }
        for (file, names) in named {
            check(spoolFiles[file]?.referenceCount ?? 0 >= names, "12: file \(file) was released, and \(names) name it")
        }
        let bytes = spoolFiles.values.reduce(0) { $0 &+ $1.fileSizeBytes }
        check(spoolFileBytes == bytes, "11: files have \(bytes) bytes, not \(spoolFileBytes)")
        check(spoolFiles.values.allSatisfy { $0.referenceCount > 0 }, "12: a file has no holder")
        return faults
    }
}
