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
    case mismatch
    /// The spool does not take the body of a message.
    case unwritable

    /// The failure that the shell reports in place of the DONE. `mismatch` has a detail: users' own workers get it.
    public func failure(of completion: Completion) -> WorkerMessage {
        let (code, detail): (FailureCode, String?) =
            switch self {
            case .lost, .unwritable: (.spoolFailed, nil)
            case .mismatch: (.internalError, "The spool file that DONE names is missing or differs in length.")
            }
        return .failed(completion.attempt, code: code.rawValue, detail: detail, receivedBytes: completion.length)
    }
}
