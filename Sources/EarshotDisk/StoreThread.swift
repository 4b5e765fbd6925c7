internal import Dispatch
internal import Synchronization

/// Dedicated thread for a store of the cache or of durable requests, so that no loop blocks on the disk.
public final class StoreThread<Backend: StoreBackend>: Sendable {
    private let requests = Mutex<[Backend.Request]>([])
    private let queue: DispatchQueue
    /// Keeper, used only on `queue`; nil before it is created.
    private let backend = Mutex<Backend?>(nil)
    /// Pause before a keeper that is behind goes on.
    private let pauseMilliseconds: Int
    /// Whether that pause runs.
    private let isWaiting = Mutex(false)

    /// - Parameters:
    ///   - pauseMilliseconds: pause before a keeper that is behind goes on. A second: a full disk or a lock seldom ends
    ///     sooner.
    ///   - make: Called on the thread. Requests wait until it returns.
    public init(
        _ label: String, pauseMilliseconds: Int = 1_000, make: @escaping @Sendable () -> sending Backend
    ) {
        self.pauseMilliseconds = pauseMilliseconds
        queue = DispatchQueue(label: label)
        queue.async { [self] in
            backend.withLock { $0 = make() }
            goOnIfBehind()
        }
    }

    /// Submits a request. All calls come from one thread, which defines the order.
    public func submit(_ request: Backend.Request) {
        let isFirst = requests.withLock { requests in
            requests.append(request)
            return requests.count == 1
        }
        if isFirst { queue.async { [self] in work() } }
    }

    /// Blocks until the keeper has executed all submitted requests and tried rejected changes again.
    public func finish() { queue.sync { work(goesOn: true) } }

    /// - Parameter goesOn: whether a keeper that is behind goes on without a pause.
    private func work(goesOn: Bool = false) {
        let taken = requests.withLock { requests in
            let taken = requests
            requests = []
            return taken
        }
        backend.withLock { backend in
            if !taken.isEmpty { backend?.carryOut(taken) }
            if goesOn, backend?.isBehind == true { backend?.carryOut([]) }
        }
        goOnIfBehind()
    }

    private func goOnIfBehind() {
        guard backend.withLock({ $0?.isBehind }) == true else { return }
        let isFirst = isWaiting.withLock { isWaiting in
            defer { isWaiting = true }
            return !isWaiting
        }
        guard isFirst else { return }
        queue.asyncAfter(deadline: .now() + .milliseconds(pauseMilliseconds)) { [weak self] in
            self?.isWaiting.withLock { $0 = false }
            self?.work(goesOn: true)
        }
    }
}

/// Persistent store, created and used on one dedicated thread.
public protocol StoreBackend: AnyObject, SendableMetatype {
    associatedtype Request: Sendable

    /// Executes requests in order. Requests that arrived together are passed together, so that they can form one
    /// transaction.
    func carryOut(_ requests: [Request])

    /// Whether work is left: a transaction to end, or changes that the disk rejected. A `carryOut` without requests
    /// follows after a pause.
    var isBehind: Bool { get }
}

extension StoreBackend {
    public var isBehind: Bool { false }
}
