internal import EarshotHTTP
public import EarshotWire

/// Work on files that the shell does before it reports an event of a worker.
public struct FileWork: Equatable, Sendable {
    /// An unfinished file that its attempt is done with.
    public struct Part: Equatable, Sendable {
        /// Attempt that wrote it.
        public let attempt: AttemptID
        /// Its name, as the worker said; the shell checks that the worker may write it.
        public let file: String
        /// New name, which the shell reports by `BrokerCore.partKept`; nil to remove it, since no attempt continues it.
        public let keptName: String?
    }

    /// The fate of the file that a DONE names.
    public enum Body: Equatable, Sendable {
        /// The DONE names no file.
        case none
        /// The body is finished: the file gets this name; nil if the DONE lacks the digest of a finished body.
        case finished(name: String?)
        /// The attempt is not this worker's: the file is removed, and the DONE reported without it.
        case unwanted
        /// The worker is on another machine, and no file is its.
        case foreign
        /// The body came from another machine: the broker computes its hash, which names content of all principals. A body
        /// larger than those in memory gets a file.
        case received(isLarge: Bool)
    }

    public var parts: [Part] = []
    public var body = Body.none
}

/// Reason why the shell could not give a finished file its name.
public enum FileFault: Sendable {
    /// The spool was removed, perhaps with the file.
    case lost
    /// The file is missing, not the worker's, or not as its DONE says.
    case notAsSaid
    /// The spool does not take the body of a message.
    case unwritable

    /// The failure that the shell reports in place of the DONE. `notAsSaid` has a detail: users' own workers get it.
    public func failure(of completion: Completion) -> WorkerMessage {
        let (code, detail): (FailureCode, String?) =
            switch self {
            case .lost, .unwritable: (.spoolFailed, nil)
            case .notAsSaid: (.internalError, "The spool file that DONE names is missing or differs in length.")
            }
        return .failed(completion.attempt, code: code.rawValue, detail: detail, receivedBytes: completion.length)
    }
}

extension BrokerCore {
    /// Begins a message of a worker with the work on files that precedes `workerSaid`. O(1), but for a BYE.
    public mutating func fileWork(before message: WorkerMessage, by worker: WorkerID) -> FileWork {
        work(before: message, by: worker)
    }

    /// Begins the loss of a worker whose process has ended with the work on files that precedes it.
    public mutating func fileWork(beforeLossOf worker: WorkerID) -> FileWork { work(beforeLossOf: worker) }

    // One nonmutating function for all look-ups, because each of them would cost the caller a copy of the core.
    private func work(before message: WorkerMessage, by worker: WorkerID) -> FileWork {
        var work = FileWork()
        guard !workers.isRemote(worker) else { return remoteWork(before: message, by: worker) }
        switch message {
        case .done(let completion):
            // A part that the worker was given and that is useless to this response.
            if let file = part(of: completion.attempt, by: worker), file != completion.file {
                work.parts = [part(file, of: completion.attempt, by: worker)]
            }
            if completion.file != nil {
                work.body =
                    holds(completion.attempt, worker) ? .finished(name: completion.sha256) : .unwanted
            }
        case .failed(let attempt, _, _, _, _, let told, _, _):
            if let file = told?.file ?? part(of: attempt, by: worker) {
                work.parts = [part(file, of: attempt, by: worker)]
            }
        case .bye: work = self.work(beforeLossOf: worker)
        case .ready, .progress, .slots, .sandbox, .pong: break
        }
        return work
    }

    /// Returns that of a worker on another machine, which has no files: names that it sends are ignored or refused.
    private func remoteWork(before message: WorkerMessage, by worker: WorkerID) -> FileWork {
        var work = FileWork()
        guard case .done(let completion) = message else { return work }
        if completion.file != nil {
            work.body = .foreign
        } else if holds(completion.attempt, worker) {
            work.body = .received(isLarge: completion.length > workerLimits.inlineBytes)
        }
        return work
    }

    private func work(beforeLossOf worker: WorkerID) -> FileWork {
        var work = FileWork()
        work.parts = parts(of: worker).map { part($0.file, of: $0.attempt, by: worker) }
        return work
    }

    private func part(_ file: String, of attempt: AttemptID, by worker: WorkerID) -> FileWork.Part {
        FileWork.Part(
            attempt: attempt, file: file, keptName: holds(attempt, worker) ? SpoolName.kept(of: attempt) : nil)
    }
}
