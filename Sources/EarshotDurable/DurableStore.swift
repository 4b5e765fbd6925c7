internal import EarshotDisk
public import EarshotLoop

/// Persistent store of durable requests on a dedicated thread.
///
/// A loop submits requests in order, and takes results from `answers`; the first is `opened`. Requests that arrive
/// together form one transaction, so that many cost no more flushes than one.
public final class DurableStore: Sendable {
    /// Results; readable while some are pending.
    public let answers: Mailbox<DurableAnswer>
    private let thread: StoreThread<DurableBackend>
    private let lock: LockFile

    /// Opens a prepared folder. The table is opened on the dedicated thread.
    ///
    /// - Parameter spool: Folder in which requested body files are placed. It may be created later.
    public init(_ folder: DurableFolder, lock: LockFile, spool: String) throws(SystemError) {
        let answers = try Mailbox<DurableAnswer>()
        self.answers = answers
        self.lock = lock
        thread = StoreThread("durable") { DurableBackend(folder, spool: spool, answers) }
    }

    /// Submits a request. All calls come from one thread, which defines the order.
    public func submit(_ request: DurableRequest) { thread.submit(request) }

    /// Blocks until the table is open and all submitted requests are executed.
    public func finish() { thread.finish() }
}
