internal import Dispatch
internal import Synchronization

/// What keeps something on the disk. Made and used on one thread of its own.
public protocol StoreKeeper: AnyObject, SendableMetatype {
    associatedtype Request: Sendable

    /// Does what was asked for, in its order. What came together comes together, so that it can be one transaction.
    func carryOut(_ requests: [Request])
}

/// A thread for a keeper, so that no loop waits for the disk.
public final class StoreThread<Keeper: StoreKeeper>: Sendable {
    private let requests = Mutex<[Keeper.Request]>([])
    private let queue: DispatchQueue
    /// Used on `queue` alone; nil before it is made.
    private let keeper = Mutex<Keeper?>(nil)

    /// - Parameter make: called on the thread. What is asked for meanwhile waits.
    public init(_ label: String, make: @escaping @Sendable () -> sending Keeper) {
        queue = DispatchQueue(label: label)
        queue.async { [self] in keeper.withLock { $0 = make() } }
    }

    /// Asks for something. From one thread, so that there is an order.
    public func ask(_ request: Keeper.Request) {
        let isFirst = requests.withLock { requests in
            requests.append(request)
            return requests.count == 1
        }
        if isFirst { queue.async { [self] in work() } }
    }

    /// Waits until all is done that was asked for.
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
