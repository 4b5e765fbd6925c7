internal import EarshotLoop
internal import EarshotWire
internal import Synchronization

/// State of a handler shared by all threads: whether it is removed, and which of its requests are valid.
final class HandlerState: Sendable {
    private struct State {
        /// Error of requests of earlier epochs.
        var invalidationError = BusError.requestReplaced
        var isRemoved = false
        /// Epoch of the last replacement. Later epochs come from purges.
        var lastReplacementEpoch: UInt64 = 0
    }

    /// Number unique to this handler. Several handlers may share a name.
    let number: UInt64
    let name: HandlerID
    /// Whether the program chose the name, so that other programs may use it.
    let hasChosenName: Bool
    private let state = Mutex(State())
    /// Requests of earlier epochs were replaced or removed. Written under the lock; read without it, because every
    /// request checks it.
    private let currentEpoch = Atomic<UInt64>(0)

    init(_ number: UInt64, _ name: HandlerID, isNamed: Bool) {
        self.number = number
        self.name = name
        hasChosenName = isNamed
    }

    /// Calls `send` with the epoch of a new request.
    ///
    /// Calls of `send` here and in `remove` have the order of the state changes. `send` therefore only adds to a
    /// mailbox.
    ///
    /// - Parameter replaces: whether earlier requests become invalid.
    /// - Throws: ``BusError/handlerRemoved``; then `send` was not called.
    func beginRequest<Outcome: Sendable>(replaces: Bool, _ send: (UInt64) -> Outcome) throws(BusError) -> Outcome {
        let outcome: Outcome? = state.withLock(of: self) { state in
            guard !state.isRemoved else { return nil }
            if replaces { advanceEpoch(because: .requestReplaced, &state) }
            return send(currentEpoch.load(ordering: .sequentiallyConsistent))
        }
        guard let outcome else { throw .handlerRemoved }
        return outcome
    }

    /// Invalidates all requests permanently. Calls `send` unless the handler was already removed.
    func remove(_ send: () -> Void) {
        state.withLock(of: self) { state in
            guard !state.isRemoved else { return }
            state.isRemoved = true
            advanceEpoch(because: .handlerRemoved, &state)
            send()
        }
    }

    /// Invalidates all earlier requests. Called by the loop.
    func invalidateRequests() { state.withLock(of: self) { advanceEpoch(because: .handlerRemoved, &$0) } }

    /// Returns the error of a request that is invalid; nil if it is valid.
    func invalidityError(ofEpoch epoch: UInt64) -> BusError? {
        guard currentEpoch.load(ordering: .sequentiallyConsistent) != epoch else { return nil }
        return state.withLock(of: self) { $0.isRemoved ? .handlerRemoved : $0.invalidationError }
    }

    /// Returns the new epoch of a request that the loop starts now; nil if it keeps its own.
    ///
    /// The loop executed all purges so far before this request, so they do not concern it. Replacements and removals
    /// do.
    func renewedEpoch(_ epoch: UInt64) -> UInt64? {
        let current = currentEpoch.load(ordering: .sequentiallyConsistent)
        guard current != epoch else { return nil }
        return state.withLock(of: self) { state in
            state.isRemoved || epoch < state.lastReplacementEpoch
                ? nil : currentEpoch.load(ordering: .sequentiallyConsistent)
        }
    }

    private func advanceEpoch(because reason: BusError, _ state: inout State) {
        state.invalidationError = reason
        let (_, epoch) = currentEpoch.add(1, ordering: .sequentiallyConsistent)
        if reason.code == .replaced { state.lastReplacementEpoch = epoch }
    }
}

/// Record of a live handler in `BusLoop`: its name and its open requests.
final class OpenHandler {
    let state: HandlerState
    let name: OpenName
    /// Open requests, unordered.
    private(set) var requests: [OpenReceiver] = []

    init(_ state: HandlerState, _ name: OpenName) {
        self.state = state
        self.name = name
    }

    /// Adds a request.
    func add(_ request: Request, _ receiver: Receiver) -> OpenReceiver {
        let open = OpenReceiver(request, receiver, self, at: requests.count)
        requests.append(open)
        return open
    }

    /// Removes a request in O(1): the last one moves to its index.
    func remove(_ open: OpenReceiver) {
        let last = requests.removeLast()
        guard last !== open else { return }
        last.requestIndex = open.requestIndex
        requests[open.requestIndex] = last
    }
}

/// A handler name and the number of its handlers.
final class OpenName {
    var handlerCount = 0
    /// Whether this bus made a request under the name. Otherwise the broker does not know a generated name.
    var wasUsed = false
}

/// An open request.
final class OpenReceiver {
    let request: Request
    let receiver: Receiver
    unowned let handler: OpenHandler
    /// Index in the handler's `requests`.
    fileprivate var requestIndex: Int

    fileprivate init(_ request: Request, _ receiver: Receiver, _ handler: OpenHandler, at index: Int) {
        self.request = request
        self.receiver = receiver
        self.handler = handler
        requestIndex = index
    }
}
