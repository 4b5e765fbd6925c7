internal import EarshotLoop
internal import EarshotWire

/// One kind of job: transfers of http and https, programs of the user, or bodies of other nodes.
///
/// A kind starts runs, which it adds to `jobs`, and continues them in the pass. `Worker` does everything else.
protocol JobKind: AnyObject {
    associatedtype Run: JobRun

    var jobs: RunTable<Run> { get }
    var traits: WorkerTraits { get }
    /// Time of the next pass that the kind needs; nil without one.
    var nextPassTime: LoopTime? { get }

    func start(_ job: Job, body: [UInt8]?, terms: Terms) throws(Refusal)
    /// Handles a FILE or RATE, which concern only transfers of http and https.
    ///
    /// - Parameter content: Second frame of a FILE.
    func handleTransferMessage(_ message: PoolMessage, content: [UInt8]?)
    /// Prepares for a number of concurrent jobs.
    func prepareForSlots(_ slots: Int)
    /// Handles the events of the pass.
    ///
    /// - Returns: Whether work is left for the next pass.
    func handlePassEvents() throws -> Bool
    /// Closes the connections of all runs, before the last messages to the broker.
    func closeConnections()
    /// Lets the last messages reach the broker, after the loop has stopped.
    func flushLastMessages()
}

extension JobKind {
    var nextPassTime: LoopTime? { nil }

    func handleTransferMessage(_ message: PoolMessage, content: [UInt8]?) {}
    func prepareForSlots(_ slots: Int) {}
    func closeConnections() {}
    func flushLastMessages() {}
}

/// Differences of the kinds of workers beside their jobs.
struct WorkerTraits {
    /// READY, with the number of slots until the broker requests another one. A worker with `acceptsDrain` stays for
    /// the next broker after a DRAIN; another one drains.
    var readyMessage: Ready
    /// Maximum number of slots that the process has descriptors for.
    var maximumSlots = Int.max
    /// Time for the running jobs at the end; nil if the parent measures it.
    var drainTime: Duration? = Limits.drainTime
    /// Whether LIMITS set the level of the log.
    var followsLogLevel = false
    /// Files that the process may read in a sandbox, beside its spool; nil for a process that never enters one.
    var readableFiles: [String]?
    /// Whether the broker gets the parts of the sandbox. Otherwise this process logs an incomplete one.
    var reportsSandbox = false
    /// Called when a broker has accepted the worker.
    var onBrokerAccepted: () -> Void = {}
    /// Returns the sentence about an ERROR of the broker before LIMITS, with this code and detail, that ends the
    /// worker; nil to continue.
    var refusalSentence: (_ code: String, _ detail: String) -> String?
}

/// First error of something that a kind depends on, recorded inside a callback.
final class FaultRecord {
    private(set) var firstFault: (any Error)?

    func recordFirstFault(_ error: any Error) { firstFault = firstFault ?? error }
}
