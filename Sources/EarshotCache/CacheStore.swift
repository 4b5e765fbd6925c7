internal import EarshotDisk
public import EarshotLoop
internal import Synchronization

/// A cache on the disk, on a thread of its own.
///
/// A loop puts requests in, in order, and takes answers out of `answers`. What is asked before the index is open waits.
/// Requests that write and come together are one transaction.
public final class CacheStore: Sendable {
    /// Where answers come; readable when some wait.
    public let answers: Mailbox<CacheAnswer>
    private let thread: StoreThread<CacheKeeper>
    private let lock: LockFile

    /// Takes a cache that was prepared; the index is opened on its thread.
    ///
    /// - Parameters:
    ///   - spool: the folder where bodies that are files are put when they are read.
    ///   - limit: bytes to keep at most.
    public init(_ folder: CacheFolder, lock: LockFile, spool: String, limit: Int) throws(SystemError) {
        let answers = try Mailbox<CacheAnswer>()
        self.answers = answers
        self.lock = lock
        thread = StoreThread("cache") { CacheKeeper(folder, spool: spool, limit: limit, answers) }
    }

    /// Asks for something. From one thread, so that there is an order.
    public func ask(_ request: CacheRequest) { thread.ask(request) }

    /// Waits until all is done that was asked for.
    public func finish() { thread.finish() }

    /// The same, at the end of the process, which closes the index: closing it here would write it through to the disk,
    /// and have whoever waits for this process wait for that.
    public func finishForGood() {
        finish()
        Self.finished.withLock { $0.append(self) }
    }

    private static let finished = Mutex<[CacheStore]>([])
}
