internal import Dispatch
internal import Synchronization

/// Persistent store, created and used on one dedicated thread.
public protocol StoreKeeper: AnyObject, SendableMetatype {
    associatedtype Request: Sendable

    /// Executes requests in order. Requests that arrived together are passed together, so that they can form one
    /// transaction.
    func carryOut(_ requests: [Request])

    /// Whether changes wait because the disk rejected them. The next `carryOut` tries them again, also without requests.
    var isBehind: Bool { get }
}

extension StoreKeeper {
    public var isBehind: Bool { false }
}

/// Dedicated thread for a keeper, so that no loop blocks on the disk.
public final class StoreThread<Keeper: StoreKeeper>: Sendable {
    private let requests = Mutex<[Keeper.Request]>([])
    private let queue: DispatchQueue
    /// Keeper, used only on `queue`; nil before it is created.
    private let keeper = Mutex<Keeper?>(nil)
    /// Pause before rejected changes are tried again.
    private let retryMilliseconds: Int
    /// Whether that pause runs.
    private let isWaiting = Mutex(false)

    /// - Parameters:
    ///   - retryMilliseconds: pause before rejected changes are tried again. A second: a full disk or a lock seldom ends
    ///     sooner.
    ///   - make: Called on the thread. Requests wait until it returns.
    public init(
        _ label: String, retryMilliseconds: Int = 1_000, make: @escaping @Sendable () -> sending Keeper
    ) {
        self.retryMilliseconds = retryMilliseconds
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

    /// Blocks until all submitted requests are executed, and rejected changes tried again.
    public func finish() { queue.sync { work(again: true) } }

    /// - Parameter again: whether rejected changes are tried again without a request.
    private func work(again: Bool = false) {
        let taken = requests.withLock { requests in
            let taken = requests
            requests = []
            return taken
        }
        keeper.withLock { keeper in
            guard !taken.isEmpty || again && keeper?.isBehind == true else { return }
            keeper?.carryOut(taken)
            if keeper?.isBehind == true { tryAgain() }
        }
    }

    private func tryAgain() {
        let isFirst = isWaiting.withLock { isWaiting in
            defer { isWaiting = true }
            return !isWaiting
        }
        guard isFirst else { return }
        queue.asyncAfter(deadline: .now() + .milliseconds(retryMilliseconds)) { [weak self] in
            self?.isWaiting.withLock { $0 = false }
            self?.work(again: true)
        }
    }
}
