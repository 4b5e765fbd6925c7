internal import Dispatch
internal import Synchronization

/// Persistent store, created and used on one dedicated thread.
public protocol StoreKeeper: AnyObject, SendableMetatype {
    associatedtype Request: Sendable

    /// Executes requests in order. Requests that arrived together are passed together, so that they can form one
    /// transaction.
    func carryOut(_ requests: [Request])
}

/// Dedicated thread for a keeper, so that no loop blocks on the disk.
public final class StoreThread<Keeper: StoreKeeper>: Sendable {
    private let requests = Mutex<[Keeper.Request]>([])
    private let queue: DispatchQueue
    /// Keeper, used only on `queue`; nil before it is created.
    private let keeper = Mutex<Keeper?>(nil)

    /// - Parameter make: Called on the thread. Requests wait until it returns.
    public init(_ label: String, make: @escaping @Sendable () -> sending Keeper) {
        queue = DispatchQueue(label: label)
        queue.async { [self] in keeper.withLock { $0 = make() } }
    }

    /// Submits a request. All calls come from one thread, which defines the order.
    public func ask(_ request: Keeper.Request) {
        let isFirst = requests.withLock { requests in
            requests.append(request)
            return requests.count == 1
        }
        if isFirst { queue.async { [self] in work() } }
    }

    /// Blocks until all submitted requests are executed.
    public func finish() { queue.sync { work() } }

    private func work() {
        let taken = requests.withLock { requests in
            let taken = requests
            requests = []
            return taken
        }
        guard !taken.isEmpty else { return }
        keeper.withLock { $0?.carryOut(taken) }
    }
}
