internal import EarshotWire

/// Size of the spool, and the deletion of bodies and files without holders.
extension BrokerCore {
    /// Counts the file of a running attempt.
    ///
    /// - Returns: whether it has not grown.
    mutating func countGrowth(of attempt: AttemptID, at worker: Int32) -> Bool {
        guard let lease = workers[worker].leases[attempt], lease.part != nil else { return true }
        // More than the limit needs no exact number.
        let bytes = min(lease.receivedBytes, limits.spoolBytes + 1)
        guard bytes > lease.growingBytes else { return true }
        outcomes.filesGrew(by: bytes - lease.growingBytes)
        workers.partGrew(attempt, to: bytes, at: worker)
        return false
    }

    /// Bytes in the spool.
    var spooledBytes: Int { outcomes.spooledBytes &+ parts.bytes }

    /// Whether the spool is within its limit. Evicts parts set aside to make room.
    mutating func hasRoomInSpool() -> Bool {
        while spooledBytes > limits.spoolBytes, let oldest = parts.evictOldest() { delete(oldest) }
        return spooledBytes <= limits.spoolBytes
    }

    /// Releases an outcome.
    mutating func release(_ outcome: Int32) {
        if let freed = outcomes.release(outcome) { delete(freed) }
    }

    /// Releases the body of a response that is in no outcome.
    mutating func drop(_ response: Outcome.Response) { delete(outcomes.release(response)) }

    mutating func releaseFile(_ file: String) {
        if outcomes.release(file: file) { actions.append(.releaseFile(file)) }
    }

    mutating func delete(_ freed: OutcomeStore.Freed) {
        if let body = freed.body { actions.append(.releaseBody(body)) }
        for file in freed.files { actions.append(.releaseFile(file)) }
    }
}
