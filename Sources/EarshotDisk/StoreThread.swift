internal import Dispatch
internal import Synchronization

/// Dedicated thread for a store of the cache or of durable requests, so that no loop blocks on the disk.
public final class StoreThread<Backend: StoreBackend>: Sendable {
    private let pendingRequests = Mutex<[Backend.Request]>([])
    private let queue: DispatchQueue
    /// Backend, used only on `queue`; nil before it is created.
    private let backend = Mutex<Backend?>(nil)
    /// Pause before a backend with pending work continues.
    private let retryPauseMilliseconds: Int
    /// Whether that pause runs.
    private let isRetryScheduled = Mutex(false)

    /// - Parameters:
    ///   - retryPauseMilliseconds: Pause before a backend with pending work continues. A second: a full disk or a lock
    ///     seldom ends sooner.
    ///   - makeBackend: Called on the thread. Requests wait until it returns.
    public init(
        _ label: String, retryPauseMilliseconds: Int = 1_000, makeBackend: @escaping @Sendable () -> sending Backend
    ) {
        self.retryPauseMilliseconds = retryPauseMilliseconds
        queue = DispatchQueue(label: label)
        queue.async { [self] in
            backend.withLock { $0 = makeBackend() }
            scheduleRetryIfPending()
        }
    }

    /// Submits a request. All calls come from one thread, which defines the order.
    public func submit(_ request: Backend.Request) {
        let isFirst = pendingRequests.withLock { requests in
            requests.append(request)
            return requests.count == 1
        }
        if isFirst { queue.async { [self] in carryOutPendingRequests() } }
    }

    /// Blocks until the backend has executed all submitted requests and tried rejected changes again.
    public func finish() { queue.sync { carryOutPendingRequests(withoutPause: true) } }

    /// - Parameter withoutPause: Whether a backend with pending work continues without a pause.
    private func carryOutPendingRequests(withoutPause: Bool = false) {
        let taken = pendingRequests.withLock { requests in
            let taken = requests
            requests = []
            return taken
        }
        backend.withLock { backend in
            if !taken.isEmpty { backend?.carryOut(taken) }
            if withoutPause, backend?.hasPendingWork == true { backend?.carryOut([]) }
        }
        scheduleRetryIfPending()
    }

    private func scheduleRetryIfPending() {
        guard backend.withLock({ $0?.hasPendingWork }) == true else { return }
        let isFirst = isRetryScheduled.withLock { isWaiting in
            defer { isWaiting = true }
            return !isWaiting
        }
        guard isFirst else { return }
        queue.asyncAfter(deadline: .now() + .milliseconds(retryPauseMilliseconds)) { [weak self] in
            self?.isRetryScheduled.withLock { $0 = false }
            self?.carryOutPendingRequests(withoutPause: true)
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
    var hasPendingWork: Bool { get }
}

extension StoreBackend {
    public var hasPendingWork: Bool { false }
}
