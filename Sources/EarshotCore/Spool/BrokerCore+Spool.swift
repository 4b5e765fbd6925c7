internal import EarshotWire

/// How much is in the spool, and what follows when that is too much.
extension BrokerCore {
    /// One more needs a file, of so many bytes.
    mutating func holdFile(_ file: String, bytes: Int) {
        fileHolders[file, default: 0] += 1
        spoolUse.add(file, bytes)
    }

    /// Counts what a running attempt has told of its file.
    /// - Returns: whether that is nothing new.
    mutating func countGrowth(of attempt: AttemptID, at worker: Int32) -> Bool {
        guard let lease = workers[worker].leases[attempt], lease.part != nil else { return true }
        // What is more than all there may be needs no exact number.
        let bytes = min(lease.receivedBytes, limits.spoolBytes + 1)
        guard bytes > lease.growingBytes else { return true }
        spoolUse.growingBytes &+= bytes - lease.growingBytes
        workers.partGrew(attempt, to: bytes, at: worker)
        return false
    }

    /// Bytes in the spool.
    var spooledBytes: Int { spoolUse.bytes &+ parts.bytes }

    /// Whether the spool is within its limit. Evicts parts set aside to make room.
    mutating func hasRoomInSpool() -> Bool {
        while spooledBytes > limits.spoolBytes, let oldest = parts.evictOldest() { delete(oldest) }
        return spooledBytes <= limits.spoolBytes
    }
}
