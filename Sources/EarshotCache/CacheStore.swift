internal import EarshotDisk
public import EarshotLoop
internal import Synchronization

/// Persistent cache on a dedicated thread.
///
/// A loop submits requests in order, and takes results from `answers`. Requests before the index is open wait.
/// Changes form transactions, of which a crash loses the open one.
public final class CacheStore: Sendable {
    /// Results; readable while some are pending.
    public let answers: Mailbox<CacheAnswer>
    private let thread: StoreThread<CacheBackend>
    private let lock: LockFile

    /// Opens a prepared cache. The index is opened on the dedicated thread.
    ///
    /// - Parameters:
    ///   - spool: Folder in which requested body files are placed.
    ///   - limit: Maximum total size in bytes.
    public init(_ folder: CacheFolder, lock: LockFile, spool: String, limit: Int) throws(SystemError) {
        let answers = try Mailbox<CacheAnswer>()
        self.answers = answers
        self.lock = lock
        thread = StoreThread("cache", pauseMilliseconds: CacheBackend.transactionMilliseconds) {
            CacheBackend(folder, spool: spool, limit: limit, answers)
        }
    }

    /// Submits a request. All calls come from one thread, which defines the order.
    public func submit(_ request: CacheRequest) { thread.submit(request) }

    /// Blocks until all submitted requests are executed.
    public func finish() { thread.finish() }

    /// Variant of `finish` for the end of the process, which leaves closing the index to the system. Closing it here
    /// would flush it to disk, and delay the exit of this process.
    public func finishForGood() {
        finish()
        Self.finished.withLock { $0.append(self) }
    }

    private static let finished = Mutex<[CacheStore]>([])
}
