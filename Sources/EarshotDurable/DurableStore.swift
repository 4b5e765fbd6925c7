internal import EarshotDisk
public import EarshotLoop

/// Durable requests on the disk, on a thread of its own.
///
/// A loop puts requests in, in order, and takes answers out of `answers`; the first is `opened`. Requests that come
/// together are one transaction, so that many cost no more flushes of the disk than one.
public final class DurableStore: Sendable {
    /// Where answers come; readable when some wait.
    public let answers: Mailbox<DurableAnswer>
    private let thread: StoreThread<DurableKeeper>
    private let lock: LockFile

    /// Takes a folder that was prepared; the table is opened on the thread.
    ///
    /// - Parameter spool: the folder where bodies that are files are put when they are read. It may be made later.
    public init(_ folder: DurableFolder, lock: LockFile, spool: String) throws(SystemError) {
        let answers = try Mailbox<DurableAnswer>()
        self.answers = answers
        self.lock = lock
        thread = StoreThread("durable") { DurableKeeper(folder, spool: spool, answers) }
    }

    /// Asks for something. From one thread, so that there is an order.
    public func ask(_ request: DurableRequest) { thread.ask(request) }

    /// Waits until the table is open and all is done that was asked for.
    public func finish() { thread.finish() }
}
