internal import EarshotWire

/// Size limit of the spool, work on the files of workers, and deletion of files without references.
enum Spool {
    /// Counts the growth of a running attempt's file.
    ///
    /// - Returns: whether the file has not grown.
    static func countGrowth(
        of attempt: AttemptID, at worker: Handle<WorkerSession>, in records: inout Records
    ) -> Bool {
        guard let lease = records.workers[worker].leases[attempt], lease.part != nil else { return true }
        // The exact number beyond the limit is irrelevant.
        let isBeyond = lease.receivedBytes > records.limits.spoolBytes
        let bytes = isBeyond ? records.limits.spoolBytes + 1 : lease.receivedBytes
        guard bytes > lease.growingBytes else { return true }
        records.outcomes.filesGrew(by: bytes - lease.growingBytes)
        records.quotas.spoolBytes(bytes - lease.growingBytes, of: lease.principal)
        records.workers.partGrew(attempt, to: bytes, at: worker)
        return false
    }

    /// Whether the bytes in the spool, with kept parts, are within its limit.
    static func isWithinLimit(in records: inout Records) -> Bool {
        records.outcomes.spooledBytes &+ records.parts.bytes <= records.limits.spoolBytes
    }

    /// Returns the removals of the released files that have no reference again.
    static func takeReleases(in records: inout Records) -> [Action] {
        let files = records.outbox.releasedFiles
        records.outbox.releasedFiles = []
        var taken: [Action] = []
        for file in files where !records.outcomes.needsFile(file) { taken.append(.spool(.releaseFile(file))) }
        return taken
    }

    // MARK: Files of workers

    /// Work on files before a message of a worker.
    static func work(before message: WorkerMessage, by worker: WorkerID, in records: inout Records) -> FileWork {
        var work = FileWork()
        guard !records.workers.isRemote(worker) else { return remoteWork(before: message, by: worker, in: &records) }
        switch message {
        case .done(let completion):
            // A part that the worker was given and that is useless to this response.
            if let file = records.workers.resumableFile(of: completion.attempt, by: worker), file != completion.file {
                work.parts = [part(file, of: completion.attempt, by: worker, in: &records)]
            }
            if completion.file != nil {
                let isHeld = records.workers.holds(completion.attempt, worker)
                work.body = isHeld ? .finished(name: completion.sha256) : .unwanted
            }
        case .failed(let attempt, _, _, _, _, let bodyPart, _, _):
            if let file = bodyPart?.file ?? records.workers.resumableFile(of: attempt, by: worker) {
                work.parts = [part(file, of: attempt, by: worker, in: &records)]
            }
        case .bye: work = self.work(beforeLossOf: worker, in: &records)
        case .ready, .progress, .slots, .sandbox, .pong: break
        }
        return work
    }

    /// Returns that of a worker on another machine, which has no files: names that it sends are ignored or refused.
    private static func remoteWork(
        before message: WorkerMessage, by worker: WorkerID, in records: inout Records
    ) -> FileWork {
        var work = FileWork()
        guard case .done(let completion) = message else { return work }
        if completion.file != nil {
            work.body = .foreign
        } else if records.workers.holds(completion.attempt, worker) {
            work.body = .received(isLarge: completion.length > records.workerLimits.inlineBytes)
        }
        return work
    }

    /// Work on files before the loss of a worker whose process has ended.
    static func work(beforeLossOf worker: WorkerID, in records: inout Records) -> FileWork {
        var work = FileWork()
        work.parts = records.workers.resumableFiles(of: worker).map {
            part($0.file, of: $0.attempt, by: worker, in: &records)
        }
        return work
    }

    private static func part(
        _ file: String, of attempt: AttemptID, by worker: WorkerID, in records: inout Records
    ) -> FileWork.Part {
        let isHeld = records.workers.holds(attempt, worker)
        return FileWork.Part(attempt: attempt, file: file, keptName: isHeld ? SpoolName.keptPart(of: attempt) : nil)
    }
}

/// Folder or socket of the broker that was removed or replaced while in use, or cannot be written. QUERY `status`
/// reports it.
public struct PathFault: Equatable, Sendable {
    /// `runtime`, `bus`, `work` or `spool`.
    public let place: String
    /// Path of the folder or socket.
    public let path: String
    /// Number of losses since the broker started.
    public var count: Int
    /// Time of the last detection, in RFC 3339, UTC.
    public var last: String
    /// Reason why it cannot be restored or written; nil once it can be used.
    public var reason: String?

    public init(place: String, path: String, count: Int, last: String, reason: String?) {
        self.place = place
        self.path = path
        self.count = count
        self.last = last
        self.reason = reason
    }
}
