public import EarshotDisk
public import EarshotLoop

/// Persistent store of durable requests on a dedicated thread.
///
/// A loop submits requests in order, and takes results from `answers`; the first is `tableOpened`. Requests that arrive
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

/// Files of durable requests on disk: a database, body files, and a lock.
public struct DurableFolder: StoreFolder {
    /// Name in messages.
    public static let titleInMessages = "the durable requests"
    /// File name of the database.
    public static let databaseName = "requests.sqlite"
    /// File name of the lock.
    public static let lockName = "durable.lock"
    /// None.
    public static let otherFileNames: [String] = []

    /// Absolute path without trailing slash.
    public let path: String

    public init(_ path: String) {
        self.path = path
    }

    /// Returns a sentence about a removed or replaced file or folder, with the remedy.
    public static func removalNotice(_ path: String) -> String {
        "\(path) was removed or replaced: restore it, or restart the broker to begin with no durable requests"
    }
}

/// Problem of the durable requests to report to an administrator: a constant message, and details of this occurrence.
public enum DurableFault: Equatable, Sendable {
    /// The table or the folder of bodies cannot be opened, so this process refuses durable requests.
    case unavailable(error: String)
    /// The table was corrupt. It was moved aside with the bodies, and replaced.
    case damaged(error: String, movedTo: String)
    /// Bodies exist without a table. They were moved aside.
    case tableMissing(movedTo: String)
    /// Reading or writing fails. Reported at most once per minute.
    case diskOperationFailing(error: String)

    /// Message for the log.
    public var message: String {
        switch self {
        case .unavailable: "cannot store durable requests; they are refused"
        case .damaged: "the table of durable requests is corrupt; it was moved aside with its bodies and replaced"
        case .tableMissing: "the table of durable requests is missing; its bodies were moved aside"
        case .diskOperationFailing: "cannot read or write durable requests"
        }
    }

    /// Names and values of the details.
    public var details: [String: String] {
        switch self {
        case .unavailable(let error), .diskOperationFailing(let error): ["error": error]
        case .damaged(let error, let path): ["error": error, "moved-to": path]
        case .tableMissing(let path): ["moved-to": path]
        }
    }
}
