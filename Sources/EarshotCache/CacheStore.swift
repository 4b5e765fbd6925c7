internal import Dispatch
public import EarshotLoop
internal import Synchronization

/// A cache on the disk, on a thread of its own.
///
/// A loop puts requests in, in order, and takes answers out of `answers`. What is asked before the index is open waits.
/// Requests that write and come together are one transaction.
public final class CacheStore: Sendable {
    /// Where answers come; readable when some wait.
    public let answers: Mailbox<CacheAnswer>
    private let requests = Mutex<[CacheRequest]>([])
    private let thread = DispatchQueue(label: "cache")
    /// Used on `thread` alone; nil before the index is open.
    private let keeper = Mutex<CacheKeeper?>(nil)
    private let lock: LockFile

    /// Takes a cache that was prepared; the index is opened on its thread.
    ///
    /// - Parameters:
    ///   - spool: the folder where bodies that are files are put when they are read.
    ///   - limit: bytes to keep at most.
    public init(_ folder: CacheFolder, lock: LockFile, spool: String, limit: Int) throws(SystemError) {
        answers = try Mailbox()
        self.lock = lock
        thread.async { [self] in
            keeper.withLock { $0 = CacheKeeper(folder, spool: spool, limit: limit, answers) }
        }
    }

    /// Asks for something. From one thread, so that there is an order.
    public func ask(_ request: CacheRequest) {
        let isFirst = requests.withLock { requests in
            requests.append(request)
            return requests.count == 1
        }
        if isFirst { thread.async { [self] in work() } }
    }

    /// Waits until all is done that was asked for.
    public func finish() { thread.sync { work() } }

    /// The same, at the end of the process, which closes the index: closing it here would write it through to the disk,
    /// and have whoever waits for this process wait for that.
    public func finishForGood() {
        finish()
        Self.finished.withLock { $0.append(self) }
    }

    private static let finished = Mutex<[CacheStore]>([])

    private func work() {
        let taken = requests.withLock { requests in
            let taken = requests
            requests = []
            return taken
        }
        keeper.withLock { $0?.carryOut(taken) }
    }
}
