package import EarshotHTTP
internal import EarshotWire

/// Durable requests: the state of each on disk, and the writes and reads in progress.
///
/// ```
///           insert            stored          beginWriting
/// (absent) ───────→ entering ───────→ stored ──────────────→ writing
///                                        ↑                    │   │ written
///                                        └────────────────────┘   ↓
///                                         written, if it failed  complete ⇄ reading   (beginRead, readEnded)
///                                                                complete ⇄ reopening (reopen, reopenFailed)
/// reopening → stored (reopened)
/// ```
///
/// `restore` begins with `stored` or `complete`. `remove` ends any phase. `enter` is the only transition. The book knows
/// a request by the number of its interest. It sends nothing to the disk; its functions return the ID for that.
package struct DurableBook {
    /// Bounds of the book, and the retention period.
    struct Limits: Equatable {
        /// Maximum number of results that are read at once.
        var reads: Int
        /// Maximum number of bytes of bodies in memory that are being written.
        var writingBytes: Int
        /// Retention period.
        var milliseconds: Int

        init(reads: Int, writingBytes: Int, milliseconds: Int) {
            self.reads = reads
            self.writingBytes = writingBytes
            self.milliseconds = milliseconds
        }

        init(_ limits: CoreLimits) {
            self.init(
                reads: limits.durableReads, writingBytes: limits.recordingBytes,
                milliseconds: limits.durableMilliseconds)
        }
    }

    var limits: Limits
    /// Records by the interest of their request.
    private(set) var records: [Handle<Interest>: DurableRecord] = [:]
    private(set) var interestsByID: [DurableID: Handle<Interest>] = [:]
    /// Highest ID in use or found on the disk.
    private var lastID: UInt64 = 0
    /// Number of reads without an answer; their requests may have been removed.
    private(set) var reads = 0
    /// Bytes of bodies in memory that are being written.
    private(set) var writingBytes = 0
    /// Requests on the disk that are not in the book yet.
    var load = DurableLoad()

    init(limits: Limits) { self.limits = limits }

    // MARK: Queries

    var isEmpty: Bool { records.isEmpty && writingBytes == 0 && load.isEmpty }

    func contains(_ interest: Handle<Interest>) -> Bool { !records.isEmpty && records[interest] != nil }

    func handle(of id: DurableID) -> Handle<Interest>? { interestsByID[id] }

    /// Data of a request that is not accepted yet, or is being repeated; nil for all others.
    package func entering(_ interest: Handle<Interest>) -> DurableRecord.Entering? {
        switch records[interest]?.phase {
        case .entering(let entering)?, .reopening(let entering)?: entering
        case .stored?, .writing?, .complete?, .reading?, nil: nil
        }
    }

    /// The result on the disk; nil without one.
    package func summary(of interest: Handle<Interest>) -> DurableSummary? {
        records.isEmpty ? nil : records[interest].flatMap { $0.phase.hasResult ? $0.summary : nil }
    }

    /// Code of a failure on the disk; nil for a success, and without a result.
    package func failure(of interest: Handle<Interest>) -> FailureCode? { summary(of: interest)?.failure }

    /// Whether the result of a request is on the disk, and is not being read.
    package func isUnread(_ interest: Handle<Interest>) -> Bool {
        if case .complete? = records[interest]?.phase { true } else { false }
    }

    /// Whether another result may be read.
    var canRead: Bool { reads < limits.reads }

    /// Whether the result of a request is being written.
    func isWriting(_ interest: Handle<Interest>) -> Bool {
        if case .writing? = records[interest]?.phase { true } else { false }
    }

    /// Whether the result of a request is on the disk.
    func hasResult(_ interest: Handle<Interest>) -> Bool { records[interest]?.phase.hasResult == true }

    /// End of the retention period of a request; nil for one that is not durable.
    func expiry(of interest: Handle<Interest>) -> Tick? {
        records[interest].map { $0.acceptedAt.advanced(byMilliseconds: limits.milliseconds) }
    }

    /// Whether an expiry timer is the latest one of its request.
    func isExpiryTimer(_ serial: UInt64, of interest: Handle<Interest>) -> Bool {
        records[interest]?.expiryTimer == serial
    }

    /// Sets the latest expiry timer of a request, which makes earlier ones stale.
    ///
    /// - Returns: the time of the timer; nil for a request that is not durable.
    mutating func setExpiryTimer(_ serial: UInt64, of interest: Handle<Interest>) -> Tick? {
        records[interest]?.expiryTimer = serial
        return expiry(of: interest)
    }

    // MARK: Requests

    /// Takes note of an ID on the disk, which no new request gets.
    ///
    /// - Returns: whether it is in the range of IDs.
    mutating func rowFound(_ id: DurableID) -> Bool {
        guard id.rawValue <= DurableID.maximum else { return false }
        lastID = max(lastID, id.rawValue)
        return true
    }

    /// Adds a request that an earlier broker stored.
    ///
    /// - Parameters:
    ///   - result: its result; nil without one.
    ///   - file: spool file of its result.
    mutating func restore(
        _ id: DurableID, _ interest: Handle<Interest>, acceptedAt: Tick, result: DurableSummary?, file: String? = nil
    ) {
        let phase = result == nil ? DurableRecord.Phase.stored : .complete
        add(DurableRecord(id: id, acceptedAt: acceptedAt, phase: phase, file: file, summary: result), interest)
    }

    /// Adds a new request, which the caller sends to the disk.
    mutating func insert(
        _ interest: Handle<Interest>, acceptedAt: Tick, _ entering: DurableRecord.Entering
    ) -> DurableID {
        lastID += 1
        let id = DurableID(rawValue: lastID)
        add(DurableRecord(id: id, acceptedAt: acceptedAt, phase: .entering(entering), file: nil), interest)
        return id
    }

    /// A new request was written to the disk.
    mutating func requestStored(_ interest: Handle<Interest>) { enter(.stored, interest) }

    /// Removes a request. The caller deletes it from the disk.
    mutating func remove(_ interest: Handle<Interest>) -> DurableRecord? {
        guard let record = records.removeValue(forKey: interest) else { return nil }
        interestsByID[record.id] = nil
        writingBytes -= record.phase.writingBytes
        return record
    }

    // MARK: Results

    /// Begins to write the result of a stored request.
    ///
    /// - Parameters:
    ///   - bytes: bytes of its body in memory; 0 for a file.
    ///   - result: the result, for lists.
    /// - Returns: its ID; nil if too many bytes are being written.
    mutating func beginWriting(_ interest: Handle<Interest>, bytes: Int, _ result: DurableSummary) -> DurableID? {
        guard let id = records[interest]?.id, bytes <= limits.writingBytes - writingBytes else { return nil }
        enter(.writing(bytes: bytes), interest)
        records[interest]?.summary = result
        return id
    }

    /// A result was written, or could not be.
    mutating func written(_ interest: Handle<Interest>, isStored: Bool) {
        enter(isStored ? .complete : .stored, interest)
    }

    /// Notes the bytes of a request, or of its result.
    ///
    /// - Returns: the change.
    mutating func setBytes(request: Int?, result: Int?, of interest: Handle<Interest>) -> Int {
        guard let record = records[interest] else { return 0 }
        records[interest]?.requestBytes = request ?? record.requestBytes
        records[interest]?.resultBytes = result ?? record.resultBytes
        return (request ?? record.requestBytes) - record.requestBytes + (result ?? record.resultBytes)
            - record.resultBytes
    }

    // MARK: Reads

    /// Begins to read the result of a request.
    ///
    /// - Returns: its ID; nil if the maximum number of results is being read.
    mutating func beginRead(_ interest: Handle<Interest>) -> DurableID? {
        guard canRead else { return nil }
        enter(.reading, interest)
        reads += 1
        return records[interest]?.id
    }

    /// A read has ended.
    ///
    /// - Returns: its request; nil if that was removed meanwhile.
    mutating func readEnded(_ id: DurableID) -> Handle<Interest>? {
        reads -= 1
        guard let interest = interestsByID[id], case .reading? = records[interest]?.phase else { return nil }
        enter(.complete, interest)
        return interest
    }

    // MARK: Repetition

    /// Begins to delete an unclaimed failure, so that its request is pending again.
    ///
    /// - Returns: its ID.
    mutating func reopen(_ interest: Handle<Interest>, _ entering: DurableRecord.Entering) -> DurableID? {
        enter(.reopening(entering), interest)
        return records[interest]?.id
    }

    /// A failure was deleted. Its request counts as accepted at this time.
    ///
    /// - Returns: the spool file of the failure.
    mutating func reopened(_ interest: Handle<Interest>, acceptedAt: Tick) -> String? {
        enter(.stored, interest)
        records[interest]?.acceptedAt = acceptedAt
        defer { records[interest]?.file = nil }
        return records[interest]?.file
    }

    /// A failure could not be deleted.
    mutating func reopenFailed(_ interest: Handle<Interest>) { enter(.complete, interest) }

    // MARK: Transitions

    private mutating func add(_ record: DurableRecord, _ interest: Handle<Interest>) {
        precondition(records[interest] == nil, "request \(interest) is durable already")
        records[interest] = record
        interestsByID[record.id] = interest
    }

    private mutating func enter(_ phase: DurableRecord.Phase, _ interest: Handle<Interest>) {
        guard let earlier = records[interest]?.phase, Self.isLegal(from: earlier, to: phase) else {
            preconditionFailure("durable request \(interest) makes a transition that is none")
        }
        records[interest]?.phase = phase
        writingBytes += phase.writingBytes - earlier.writingBytes
    }

    /// Whether the diagram has this transition.
    static func isLegal(from: DurableRecord.Phase, to: DurableRecord.Phase) -> Bool {
        switch (from, to) {
        case (.entering, .stored), (.stored, .writing), (.writing, .stored), (.writing, .complete),
            (.complete, .reading), (.reading, .complete),
            (.complete, .reopening), (.reopening, .complete), (.reopening, .stored):
            true
        case (.entering, _), (.stored, _), (.writing, _), (.complete, _), (.reading, _), (.reopening, _): false
        }
    }

    // MARK: Memory and checks

    /// Releases spare capacity beyond `least` entries.
    mutating func releaseRoom(least: Int) {
        records.releaseRoom(least: least)
        interestsByID.releaseRoom(least: least)
    }

    /// - Returns: a sentence for each invariant that does not hold; empty if all do.
    func checkInvariants() -> [String] {
        var faults: [String] = []
        for (interest, record) in records where interestsByID[record.id] != interest {
            faults.append("12: durable \(record.id) names another request")
        }
        if interestsByID.count != records.count {
            faults.append("12: \(records.count) durables, \(interestsByID.count) names")
        }
        let reading = records.values.count { if case .reading = $0.phase { true } else { false } }
        if reads < reading || reads > limits.reads { faults.append("11: \(reads) results are read at once") }
        let bytes = records.values.reduce(0) { $0 + $1.phase.writingBytes }
        if writingBytes != bytes { faults.append("11: \(bytes) bytes are being written, not \(writingBytes)") }
        return faults
    }
}
