internal import EarshotHTTP
public import EarshotWire

/// Work on files that the shell does before it reports an event of a worker.
public struct WorkerFileOperations: Equatable, Sendable {
    /// An unfinished file whose attempt has ended.
    public struct UnfinishedFile: Equatable, Sendable {
        /// Attempt that wrote it.
        public let attempt: AttemptID
        /// Its name, as the worker reported it; the shell checks that the worker may write it.
        public let fileName: String
        /// New name, which the shell reports by `BrokerCore.partFileKept`; nil to remove it, since no attempt continues
        /// it.
        public let newFileName: String?
    }

    /// Treatment of the file that a DONE names.
    public enum DoneFileDisposition: Equatable, Sendable {
        /// The DONE names no file.
        case noFile
        /// The body is finished: the file gets this name; nil if the DONE lacks the digest of a finished body.
        case rename(name: String?)
        /// The attempt is not this worker's: the file is removed, and the DONE reported without it.
        case removeOfOtherAttempt
        /// The worker is on another machine, and owns no file.
        case rejectFromRemoteWorker
        /// The body came from another machine: the broker computes its hash, which names content of all principals. A
        /// body larger than those in memory gets a file.
        case storeReceivedBody(isLarge: Bool)
    }

    public var unfinishedFiles: [UnfinishedFile] = []
    public var body = DoneFileDisposition.noFile
}

/// Reason why the shell could not rename or write a finished file.
public enum FinishedFileFailure: Sendable {
    /// The spool was removed, perhaps with the file.
    case spoolRemoved
    /// The file is missing, belongs to another worker, or differs from its DONE.
    case fileMismatchesDone
    /// The spool does not take the body of a message.
    case spoolUnwritable

    /// The failure that the shell reports in place of the DONE. `fileMismatchesDone` has a detail, since users' own
    /// workers cause it.
    public func failureMessage(for completion: Completion) -> WorkerMessage {
        let (code, detail): (FailureCode, String?) =
            switch self {
            case .spoolRemoved, .spoolUnwritable: (.spoolFailed, nil)
            case .fileMismatchesDone:
                (.internalError, "The spool file that DONE names is missing or differs in length.")
            }
        return .failed(completion.attempt, code: code.rawValue, detail: detail, receivedBytes: completion.bodyByteCount)
    }
}
