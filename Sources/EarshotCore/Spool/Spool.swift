internal import EarshotWire

/// Size limit of the spool, work on the files of workers, and deletion of files without references.
enum Spool {
    /// Counts the growth of a running attempt's file.
    ///
    /// - Returns: whether the file has not grown.
    static func countFileGrowth(
        of attempt: AttemptID, at worker: Handle<WorkerSession>, in records: inout Records
    ) -> Bool {
        guard let lease = records.workers[worker].leases[attempt], lease.partFile != nil else { return true }
        // The exact number beyond the limit is irrelevant.
        let isBeyond = lease.receivedBytes > records.limits.maximumSpoolBytes
        let bytes = isBeyond ? records.limits.maximumSpoolBytes + 1 : lease.receivedBytes
        guard bytes > lease.countedPartFileBytes else { return true }
        records.outcomes.growingFilesGrew(by: bytes - lease.countedPartFileBytes)
        records.quotaUse.addSpoolBytes(bytes - lease.countedPartFileBytes, of: lease.principal)
        records.workers.recordPartFileSize(of: attempt, to: bytes, at: worker)
        return false
    }

    /// Whether the bytes in the spool, with kept parts, are within its limit.
    static func isWithinLimit(in records: inout Records) -> Bool {
        records.outcomes.spooledBytes &+ records.keptParts.keptPartBytes <= records.limits.maximumSpoolBytes
    }

    /// Returns the removals of released files that have no new reference, and empties their list.
    static func takeFileRemovals(in records: inout Records) -> [Action] {
        let files = records.outbox.spoolFilesToDelete
        records.outbox.spoolFilesToDelete = []
        var removals: [Action] = []
        for file in files where !records.outcomes.isFileReferenced(file) { removals.append(.spool(.releaseFile(file))) }
        return removals
    }

    // MARK: Files of workers

    /// Work on files before a message of a worker.
    static func fileOperations(
        before message: WorkerMessage, by worker: WorkerID, in records: inout Records
    ) -> WorkerFileOperations {
        var work = WorkerFileOperations()
        guard !records.workers.isRemote(worker) else {
            return remoteFileOperations(before: message, by: worker, in: &records)
        }
        switch message {
        case .completed(let completion):
            // A part that the JOB named and that is useless to this response.
            let file = records.workers.resumableFile(of: completion.attempt, by: worker)
            if let file, file != completion.fileName {
                work.unfinishedFiles = [unfinishedFile(file, of: completion.attempt, by: worker, in: &records)]
            }
            if completion.fileName != nil {
                let isHeld = records.workers.holdsLease(of: completion.attempt, by: worker)
                work.body = isHeld ? .rename(name: completion.sha256) : .removeOfOtherAttempt
            }
        case .failed(let attempt, _, _, _, _, let bodyPart, _, _):
            if let file = bodyPart?.fileName ?? records.workers.resumableFile(of: attempt, by: worker) {
                work.unfinishedFiles = [unfinishedFile(file, of: attempt, by: worker, in: &records)]
            }
        case .bye: work = fileOperations(beforeLossOf: worker, in: &records)
        case .ready, .progress, .slots, .sandbox, .pong: break
        }
        return work
    }

    /// Returns the work for a worker on another machine, which has no files. Names that it sends are ignored or
    /// refused.
    private static func remoteFileOperations(
        before message: WorkerMessage, by worker: WorkerID, in records: inout Records
    ) -> WorkerFileOperations {
        var work = WorkerFileOperations()
        guard case .completed(let completion) = message else { return work }
        if completion.fileName != nil {
            work.body = .rejectFromRemoteWorker
        } else if records.workers.holdsLease(of: completion.attempt, by: worker) {
            work.body = .storeReceivedBody(
                isLarge: completion.bodyByteCount > records.workerLimits.maximumInlineBodyBytes)
        }
        return work
    }

    /// Work on files before the loss of a worker whose process has ended.
    static func fileOperations(beforeLossOf worker: WorkerID, in records: inout Records) -> WorkerFileOperations {
        var work = WorkerFileOperations()
        work.unfinishedFiles = records.workers.resumableFiles(of: worker).map {
            unfinishedFile($0.file, of: $0.attempt, by: worker, in: &records)
        }
        return work
    }

    private static func unfinishedFile(
        _ file: String, of attempt: AttemptID, by worker: WorkerID, in records: inout Records
    ) -> WorkerFileOperations.UnfinishedFile {
        let isHeld = records.workers.holdsLease(of: attempt, by: worker)
        return WorkerFileOperations.UnfinishedFile(
            attempt: attempt, fileName: file, newFileName: isHeld ? SpoolName.keptPart(of: attempt) : nil)
    }
}

/// Folder or socket of the broker that was removed or replaced while in use, or cannot be written. QUERY `status`
/// reports it.
public struct PathFailure: Equatable, Sendable {
    /// `runtime`, `bus`, `work`, `spool` or `durable`.
    public let pathRole: String
    /// Path of the folder or socket.
    public let path: String
    /// Number of losses since the broker started.
    public var lossCount: Int
    /// Time of the last detection, in RFC 3339, UTC.
    public var lastDetectedAt: String
    /// Reason why it cannot be restored or written; nil once it can be used.
    public var failureReason: String?

    public init(pathRole: String, path: String, lossCount: Int, lastDetectedAt: String, failureReason: String?) {
        self.pathRole = pathRole
        self.path = path
        self.lossCount = lossCount
        self.lastDetectedAt = lastDetectedAt
        self.failureReason = failureReason
    }
}
