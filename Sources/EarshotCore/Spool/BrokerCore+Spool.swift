internal import EarshotWire

/// Size limit of the spool, and deletion of bodies and files without references.
extension BrokerCore {
    /// Counts the growth of a running attempt's file.
    ///
    /// - Returns: whether the file has not grown.
    mutating func countGrowth(of attempt: AttemptID, at worker: Handle<WorkerSession>) -> Bool {
        guard let lease = workers[worker].leases[attempt], lease.part != nil else { return true }
        // The exact number beyond the limit is irrelevant.
        let isBeyond = lease.receivedBytes > limits.spoolBytes
        let bytes = isBeyond ? limits.spoolBytes + 1 : lease.receivedBytes
        guard bytes > lease.growingBytes else { return true }
        outcomes.filesGrew(by: bytes - lease.growingBytes)
        quotas.spoolBytes(bytes - lease.growingBytes, of: lease.principal)
        workers.partGrew(attempt, to: bytes, at: worker)
        return false
    }

    /// Bytes in the spool, with kept parts.
    var spooledBytes: Int { outcomes.spooledBytes &+ parts.bytes }

    /// Releases bodies for other nodes until the spool is within its limit. Returns whether it is.
    mutating func hasRoomInSpool() -> Bool {
        while cluster != nil, spooledBytes > limits.spoolBytes, releaseHeldBody() {}
        return spooledBytes <= limits.spoolBytes
    }

    /// Releases a reference to an outcome.
    mutating func release(_ outcome: Handle<Outcome>) {
        if let freed = outcomes.release(outcome) { delete(freed) }
    }

    /// Releases the body and files of a response that is not part of an outcome.
    mutating func drop(_ response: Outcome.Response) { delete(outcomes.release(response)) }

    mutating func releaseFile(_ file: String) {
        if outcomes.release(file: file) { releasedFiles.append(file) }
    }

    mutating func delete(_ freed: OutcomeStore.Freed) {
        if let body = freed.body { actions.append(.spool(.releaseBody(body))) }
        releasedFiles += freed.files
    }

    /// Returns the removals of the released files that have no reference again.
    mutating func takeReleases() -> [Action] {
        let files = releasedFiles
        releasedFiles = []
        var taken: [Action] = []
        for file in files where !outcomes.needsFile(file) { taken.append(.spool(.releaseFile(file))) }
        return taken
    }
}
