public import EarshotDisk
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
        thread = StoreThread("cache", retryPauseMilliseconds: CacheBackend.maximumTransactionMilliseconds) {
            CacheBackend(folder, spool: spool, limit: limit, answers)
        }
    }

    /// Submits a request. All calls come from one thread, which defines the order.
    public func submit(_ request: CacheRequest) { thread.submit(request) }

    /// Blocks until all submitted requests are executed.
    public func finish() { thread.finish() }

    /// Variant of `finish` for the end of the process, which leaves closing the index to the system. Closing it here
    /// would flush it to disk, and delay the exit of this process.
    public func finishBeforeExit() {
        finish()
        Self.storesKeptOpenUntilExit.withLock { $0.append(self) }
    }

    private static let storesKeptOpenUntilExit = Mutex<[CacheStore]>([])
}

/// Files of a cache on disk: the index, body files, a salt and a lock.
///
/// A reader (`CacheReport`) needs no lock.
public struct CacheFolder: StoreFolder {
    /// Name in messages.
    public static let titleInMessages = "the cache"
    /// File name of the index.
    public static let databaseName = "index.sqlite"
    /// File name of the lock.
    public static let lockName = "cache.lock"
    /// The salt of the digests.
    public static let otherFileNames = ["salt"]

    /// Absolute path without trailing slash.
    public let path: String

    public init(_ path: String) {
        self.path = path
    }

    private var saltPath: String { path + "/salt" }

    /// Returns the salt of the digests, created by the first call. It prevents a search for credentials in a table of
    /// common ones.
    /// - Throws: `StoreError`.
    public func readSalt() throws(StoreError) -> [UInt8] { try Salt.read(saltPath) }
}

/// Problem of the cache to report to an administrator: a constant message, and details of this occurrence.
public enum CacheFault: Equatable, Sendable {
    /// The index or the folder of bodies cannot be opened, so this process has no cache.
    case unavailable(error: String)
    /// The index was corrupt, was moved aside and has been replaced.
    case damaged(movedTo: String)
    /// Reading or writing fails. Reported at most once per minute.
    case diskOperationFailing(error: String)

    /// Message for the log.
    public var message: String {
        switch self {
        case .unavailable: "cannot open the cache; this broker goes without"
        case .damaged: "the index of the cache is corrupt; it was moved aside and replaced"
        case .diskOperationFailing: "cannot read or write the cache"
        }
    }

    /// Names and values of the details.
    public var details: [String: String] {
        switch self {
        case .unavailable(let error), .diskOperationFailing(let error): ["error": error]
        case .damaged(let path): ["moved-to": path]
        }
    }
}
