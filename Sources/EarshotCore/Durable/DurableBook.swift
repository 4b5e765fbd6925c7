package import EarshotHTTP
internal import EarshotWire

/// Durable requests: the state of each on disk, and the writes and reads in progress.
///
/// ```
/// (absent) → writingRequest → stored  (insertRequest, requestStored)
/// stored → writingResult              (beginWritingResult)
/// writingResult → complete or stored  (resultWriteEnded; stored if the write failed)
/// complete ⇄ readingResult            (beginResultRead, resultReadEnded)
/// complete ⇄ deletingFailure          (beginReopening, reopeningFailed)
/// deletingFailure → stored            (reopeningSucceeded)
/// ```
///
/// `restoreRecord` begins with `stored` or `complete`. `remove` ends any phase. All other changes of the phase go
/// through `enterPhase`. The book knows a request by the handle of its interest. It sends nothing to the disk; its
/// functions return the ID for that.
package struct DurableBook {
    /// Bounds of the book, and the retention period.
    struct Limits: Equatable {
        /// Maximum number of results that are read at once.
        var maximumConcurrentReads: Int
        /// Maximum number of bytes of bodies in memory that are being written.
        var maximumWritingBytes: Int
        /// Retention period.
        var retentionMilliseconds: Int

        init(maximumConcurrentReads: Int, maximumWritingBytes: Int, retentionMilliseconds: Int) {
            self.maximumConcurrentReads = maximumConcurrentReads
            self.maximumWritingBytes = maximumWritingBytes
            self.retentionMilliseconds = retentionMilliseconds
        }

        init(_ limits: CoreLimits) {
            self.init(
                maximumConcurrentReads: limits.maximumConcurrentDurableReads,
                maximumWritingBytes: limits.maximumDurableWritingBytes,
                retentionMilliseconds: limits.durableRetentionMilliseconds)
        }
    }

    var limits: Limits
    /// Records by the interest of their request.
    private(set) var records: [Handle<Interest>: DurableRecord] = [:]
    private(set) var interestsByID: [DurableID: Handle<Interest>] = [:]
    /// Highest ID in use or found on the disk.
    private var lastID: UInt64 = 0
    /// Number of reads without an answer; their requests may have been removed.
    private(set) var outstandingReadCount = 0
    /// Bytes of bodies in memory that are being written.
    private(set) var bytesBeingWritten = 0
    /// Requests on the disk that are not in the book yet.
    var loadState = DurableLoad()

    init(limits: Limits) { self.limits = limits }

    // MARK: Queries

    var isEmpty: Bool { records.isEmpty && bytesBeingWritten == 0 && loadState.isEmpty }

    func contains(_ interest: Handle<Interest>) -> Bool { !records.isEmpty && records[interest] != nil }

    func handle(of id: DurableID) -> Handle<Interest>? { interestsByID[id] }

    /// Data of a request that is not accepted yet, or is being repeated; nil for all others.
    package func unacceptedRequest(_ interest: Handle<Interest>) -> DurableRecord.UnacceptedRequest? {
        switch records[interest]?.phase {
        case .writingRequest(let unaccepted)?, .deletingFailure(let unaccepted)?: unaccepted
        case .stored?, .writingResult?, .complete?, .readingResult?, nil: nil
        }
    }

    /// The result on the disk; nil without one.
    package func storedResultSummary(of interest: Handle<Interest>) -> DurableSummary? {
        records.isEmpty ? nil : records[interest].flatMap { $0.phase.hasResult ? $0.summary : nil }
    }

    /// Code of a failure on the disk; nil for a success, and without a result.
    package func storedFailure(of interest: Handle<Interest>) -> FailureCode? {
        storedResultSummary(of: interest)?.failure
    }

    /// Whether the result of a request is on the disk, and is not being read.
    package func hasUnreadResult(_ interest: Handle<Interest>) -> Bool {
        if case .complete? = records[interest]?.phase { true } else { false }
    }

    /// Whether another result may be read.
    var canRead: Bool { outstandingReadCount < limits.maximumConcurrentReads }

    /// Whether the result of a request is being written.
    func isWriting(_ interest: Handle<Interest>) -> Bool {
        if case .writingResult? = records[interest]?.phase { true } else { false }
    }

    /// Whether the result of a request is on the disk.
    func hasResult(_ interest: Handle<Interest>) -> Bool { records[interest]?.phase.hasResult == true }

    /// End of the retention period of a request; nil for one that is not durable.
    func expiry(of interest: Handle<Interest>) -> MonotonicTime? {
        records[interest].map { $0.acceptedAt.advanced(byMilliseconds: limits.retentionMilliseconds) }
    }

    /// Whether an expiry timer is the latest one of its request.
    func isExpiryTimer(_ serial: UInt64, of interest: Handle<Interest>) -> Bool {
        records[interest]?.expiryTimer == serial
    }

    /// Sets the latest expiry timer of a request, which makes earlier ones stale.
    ///
    /// - Returns: the time of the timer; nil for a request that is not durable.
    mutating func setExpiryTimer(_ serial: UInt64, of interest: Handle<Interest>) -> MonotonicTime? {
        records[interest]?.expiryTimer = serial
        return expiry(of: interest)
    }

    // MARK: Requests

    /// Reserves an ID that is on the disk, so that no new request gets it.
    ///
    /// - Returns: whether it is in the range of IDs.
    mutating func reserveStoredID(_ id: DurableID) -> Bool {
        guard id.rawValue <= DurableID.maximumStoredValue else { return false }
        lastID = max(lastID, id.rawValue)
        return true
    }

    /// Adds a request that an earlier broker stored.
    ///
    /// - Parameters:
    ///   - result: its result; nil without one.
    ///   - file: spool file of its result.
    mutating func restoreRecord(
        _ id: DurableID, _ interest: Handle<Interest>, acceptedAt: MonotonicTime, result: DurableSummary?,
        file: String? = nil
    ) {
        let phase = result == nil ? DurableRecord.Phase.stored : .complete
        addRecord(DurableRecord(id: id, acceptedAt: acceptedAt, phase: phase, file: file, summary: result), interest)
    }

    /// Adds a new request, which the caller sends to the disk.
    mutating func insertRequest(
        _ interest: Handle<Interest>, acceptedAt: MonotonicTime, _ unaccepted: DurableRecord.UnacceptedRequest
    ) -> DurableID {
        lastID += 1
        let id = DurableID(rawValue: lastID)
        let phase = DurableRecord.Phase.writingRequest(unaccepted)
        addRecord(DurableRecord(id: id, acceptedAt: acceptedAt, phase: phase, file: nil), interest)
        return id
    }

    /// Records that a new request was written to the disk.
    mutating func requestStored(_ interest: Handle<Interest>) { enterPhase(.stored, interest) }

    /// Removes a request. The caller deletes it from the disk.
    mutating func remove(_ interest: Handle<Interest>) -> DurableRecord? {
        guard let record = records.removeValue(forKey: interest) else { return nil }
        interestsByID[record.id] = nil
        bytesBeingWritten -= record.phase.resultBytesBeingWritten
        return record
    }

    // MARK: Results

    /// Begins to write the result of a stored request.
    ///
    /// - Parameters:
    ///   - bytes: bytes of its body in memory; 0 for a file.
    ///   - result: the result, for lists.
    /// - Returns: its ID; nil if too many bytes are being written.
    mutating func beginWritingResult(_ interest: Handle<Interest>, bytes: Int, _ result: DurableSummary) -> DurableID? {
        guard let id = records[interest]?.id, bytes <= limits.maximumWritingBytes - bytesBeingWritten else {
            return nil
        }
        enterPhase(.writingResult(bytes: bytes), interest)
        records[interest]?.summary = result
        return id
    }

    /// Ends the write of a result, which has succeeded or failed.
    mutating func resultWriteEnded(_ interest: Handle<Interest>, isStored: Bool) {
        enterPhase(isStored ? .complete : .stored, interest)
    }

    /// Records the bytes of a request, or of its result.
    ///
    /// - Returns: the change.
    mutating func updateByteCounts(request: Int?, result: Int?, of interest: Handle<Interest>) -> Int {
        guard let record = records[interest] else { return 0 }
        records[interest]?.requestBytes = request ?? record.requestBytes
        records[interest]?.resultBytes = result ?? record.resultBytes
        let requestChange = (request ?? record.requestBytes) - record.requestBytes
        let resultChange = (result ?? record.resultBytes) - record.resultBytes
        return requestChange + resultChange
    }

    // MARK: Reads

    /// Begins to read the result of a request.
    ///
    /// - Returns: its ID; nil if the maximum number of results is being read.
    mutating func beginResultRead(_ interest: Handle<Interest>) -> DurableID? {
        guard canRead else { return nil }
        enterPhase(.readingResult, interest)
        outstandingReadCount += 1
        return records[interest]?.id
    }

    /// Ends a read.
    ///
    /// - Returns: its request; nil if that was removed meanwhile.
    mutating func resultReadEnded(_ id: DurableID) -> Handle<Interest>? {
        outstandingReadCount -= 1
        guard let interest = interestsByID[id], case .readingResult? = records[interest]?.phase else { return nil }
        enterPhase(.complete, interest)
        return interest
    }

    // MARK: Repetition

    /// Begins to delete an unclaimed failure, so that its request is pending again.
    ///
    /// - Returns: its ID.
    mutating func beginReopening(
        _ interest: Handle<Interest>, _ unaccepted: DurableRecord.UnacceptedRequest
    ) -> DurableID? {
        enterPhase(.deletingFailure(unaccepted), interest)
        return records[interest]?.id
    }

    /// Ends the deletion of a failure. Its request counts as accepted at this time.
    ///
    /// - Returns: the spool file of the failure.
    mutating func reopeningSucceeded(_ interest: Handle<Interest>, acceptedAt: MonotonicTime) -> String? {
        enterPhase(.stored, interest)
        records[interest]?.acceptedAt = acceptedAt
        defer { records[interest]?.file = nil }
        return records[interest]?.file
    }

    /// Returns to `complete` after a failure could not be deleted.
    mutating func reopeningFailed(_ interest: Handle<Interest>) { enterPhase(.complete, interest) }

    // MARK: Transitions

    private mutating func addRecord(_ record: DurableRecord, _ interest: Handle<Interest>) {
        precondition(records[interest] == nil, "request \(interest) is durable already")
        records[interest] = record
        interestsByID[record.id] = interest
    }

    private mutating func enterPhase(_ phase: DurableRecord.Phase, _ interest: Handle<Interest>) {
        guard let earlier = records[interest]?.phase, Self.isLegal(from: earlier, to: phase) else {
            preconditionFailure("durable request \(interest) makes a transition that is none")
        }
        records[interest]?.phase = phase
        bytesBeingWritten += phase.resultBytesBeingWritten - earlier.resultBytesBeingWritten
    }

    /// Whether the diagram has this transition.
    static func isLegal(from: DurableRecord.Phase, to: DurableRecord.Phase) -> Bool {
        switch (from, to) {
        case (.writingRequest, .stored), (.stored, .writingResult), (.writingResult, .stored),
            (.writingResult, .complete), (.complete, .readingResult), (.readingResult, .complete),
            (.complete, .deletingFailure), (.deletingFailure, .complete), (.deletingFailure, .stored):
            true
        case (.writingRequest, _), (.stored, _), (.writingResult, _), (.complete, _), (.readingResult, _),
            (.deletingFailure, _):
            false
        }
    }

    // MARK: Memory and checks

    /// Releases spare capacity beyond `least` entries.
    mutating func releaseSpareCapacity(retaining least: Int) {
        records.releaseSpareCapacity(retaining: least)
        interestsByID.releaseSpareCapacity(retaining: least)
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
        let reading = records.values.count { if case .readingResult = $0.phase { true } else { false } }
        if outstandingReadCount < reading || outstandingReadCount > limits.maximumConcurrentReads {
            faults.append("11: \(outstandingReadCount) results are read at once")
        }
        let bytes = records.values.reduce(0) { $0 + $1.phase.resultBytesBeingWritten }
        if bytesBeingWritten != bytes {
            faults.append("11: \(bytes) bytes are being written, not \(bytesBeingWritten)")
        }
        return faults
    }
}
