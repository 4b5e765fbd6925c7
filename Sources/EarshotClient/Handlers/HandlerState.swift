internal import EarshotLoop
internal import EarshotWire
internal import Synchronization

/// State of a handler shared by all threads: whether it is removed, and which of its requests are valid.
final class HandlerState: Sendable {
    private struct State {
        /// Error of requests of earlier epochs.
        var reason = BusError.replaced
        var isRemoved = false
        /// Epoch of the last replacement. Later epochs come from purges.
        var firstEpoch: UInt64 = 0
    }

    /// Number unique to this handler. Several handlers may share a name.
    let number: UInt64
    let name: HandlerID
    /// Whether the program chose the name, so that other programs may use it.
    let isNamed: Bool
    private let state = Mutex(State())
    /// Requests of earlier epochs were replaced or removed. Written under the lock; read without it, because every
    /// request checks it.
    private let epoch = Atomic<UInt64>(0)

    init(_ number: UInt64, _ name: HandlerID, isNamed: Bool) {
        self.number = number
        self.name = name
        self.isNamed = isNamed
    }

    /// Calls `send` with the epoch of a new request.
    ///
    /// Calls of `send` here and in `remove` have the order of the state changes. `send` therefore only adds to a
    /// mailbox.
    ///
    /// - Parameter replaces: whether earlier requests become invalid.
    /// - Throws: ``BusError/handlerRemoved``; then `send` was not called.
    func begin<Answer: Sendable>(replaces: Bool, _ send: (UInt64) -> Answer) throws(BusError) -> Answer {
        let answer: Answer? = state.withLock(of: self) { state in
            guard !state.isRemoved else { return nil }
            if replaces { forget(.replaced, &state) }
            return send(epoch.load(ordering: .sequentiallyConsistent))
        }
        guard let answer else { throw .handlerRemoved }
        return answer
    }

    /// Invalidates all requests permanently. Calls `send` unless the handler was already removed.
    func remove(_ send: () -> Void) {
        state.withLock(of: self) { state in
            guard !state.isRemoved else { return }
            state.isRemoved = true
            forget(.handlerRemoved, &state)
            send()
        }
    }

    /// Invalidates all earlier requests. Called by the loop.
    func purge() { state.withLock(of: self) { forget(.handlerRemoved, &$0) } }

    /// Returns the error of a request that is invalid; nil if it is valid.
    func obstacle(_ epoch: UInt64) -> BusError? {
        guard self.epoch.load(ordering: .sequentiallyConsistent) != epoch else { return nil }
        return state.withLock(of: self) { $0.isRemoved ? .handlerRemoved : $0.reason }
    }

    /// Returns the new epoch of a request that the loop starts now; nil if it keeps its own.
    ///
    /// The loop executed all purges so far before this request, so they do not concern it. Replacements and removals
    /// do.
    func renewed(_ epoch: UInt64) -> UInt64? {
        let current = self.epoch.load(ordering: .sequentiallyConsistent)
        guard current != epoch else { return nil }
        return state.withLock(of: self) { state in
            state.isRemoved || epoch < state.firstEpoch ? nil : self.epoch.load(ordering: .sequentiallyConsistent)
        }
    }

    private func forget(_ reason: BusError, _ state: inout State) {
        state.reason = reason
        let (_, epoch) = epoch.add(1, ordering: .sequentiallyConsistent)
        if reason.code == .replaced { state.firstEpoch = epoch }
    }
}
