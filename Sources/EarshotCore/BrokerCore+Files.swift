public import EarshotWire

/// Events of files: the work that precedes a message or the loss of a worker, and parts that the shell has moved.
extension BrokerCore {
    /// Begins a message of a worker with the work on files that precedes `received`. O(1), but for a BYE.
    public mutating func fileWork(before message: WorkerMessage, by worker: WorkerID) -> FileWork {
        Spool.work(before: message, by: worker, in: &records)
    }

    /// Begins the loss of a worker whose process has ended with the work on files that precedes it.
    public mutating func fileWork(beforeLossOf worker: WorkerID) -> FileWork {
        Spool.work(beforeLossOf: worker, in: &records)
    }

    /// Handles the rename of a file of a worker that ends the attempt or has died. The file has `bytes` bytes.
    public mutating func partKept(of attempt: AttemptID, bytes: Int, by id: WorkerID) {
        Parts.kept(attempt, bytes: bytes, by: id, in: &records)
    }

    /// Handles the move of a part from the folder of parts to the file of an attempt whose JOB follows.
    ///
    /// - Parameter isVerified: whether all bytes count. Otherwise the worker compares their hash before it uses them.
    public mutating func partFound(
        _ part: PartDescription, bytes: Int, isVerified: Bool = true, for attempt: AttemptID, by id: WorkerID
    ) {
        Parts.found(part, bytes: bytes, isVerified: isVerified, for: attempt, by: id, in: &records)
    }

    /// Releases bodies for other nodes until the spool is within its limit. Returns whether it is.
    mutating func hasRoomInSpool() -> Bool {
        while !Spool.isWithinLimit(in: &records), Cluster.releaseHeldBody(in: &records) {}
        return Spool.isWithinLimit(in: &records)
    }
}
