internal import EarshotLoop
internal import EarshotWire
internal import Synchronization

/// Handle of a request whose response goes to a closure.
///
/// The request does not depend on this handle. It ends with its handler or by ``cancel()``.
public final class Request: Sendable {
    let key: RequestKey
    let handler: HandlerState
    private let commands: Mailbox<BusCommand>
    /// Epoch of the handler, set when the request is sent.
    private let handlerEpoch = Atomic<UInt64>(0)
    private let isCancelled = Atomic(false)
    private let hasStarted = Atomic(false)

    init(_ key: RequestKey, _ handler: HandlerState, _ commands: Mailbox<BusCommand>) {
        self.key = key
        self.handler = handler
        self.commands = commands
    }

    /// Sends the request. Must be called once.
    ///
    /// - Throws: ``BusError/handlerRemoved`` or ``BusError/busClosed``; then the caller must complete the receiver.
    func send(_ fetch: Shared<Fetch>, _ receiver: Receiver, replaces: Bool) throws(BusError) {
        let placement = try handler.beginRequest(replaces: replaces) { epoch in
            handlerEpoch.store(epoch, ordering: .sequentiallyConsistent)
            return commands.putWithoutWaking(.fetch(fetch, self, receiver, replaces: replaces))
        }
        switch placement {
        case .refused: throw .busClosed
        case .acceptedAwake: break
        case .acceptedNeedsWake: commands.wake()
        }
    }

    /// Marks the request as started by the loop. Purges executed before that do not concern it, even if it was sent
    /// earlier.
    func markStarted() {
        if let epoch = handler.renewedEpoch(handlerEpoch.load(ordering: .sequentiallyConsistent)) {
            handlerEpoch.store(epoch, ordering: .sequentiallyConsistent)
        }
        hasStarted.store(true, ordering: .sequentiallyConsistent)
    }

    /// Cancels the request. Called on the actor of the closure, it guarantees that the closure is not called.
    public func cancel() {
        guard isCancelled.exchange(true, ordering: .sequentiallyConsistent) == false else { return }
        commands.put(.cancel(key))
    }

    /// Changes the priority while the request is queued.
    ///
    /// - Parameter priority: the new class.
    public func setPriority(_ priority: Priority) { commands.put(.setPriority(key, priority.wireValue)) }

    /// Error of a request that is cancelled, replaced or removed; nil if it is valid.
    var invalidityError: (any Error)? {
        if isCancelled.load(ordering: .sequentiallyConsistent) { return CancellationError() }
        let isStarted = hasStarted.load(ordering: .sequentiallyConsistent)
        let epoch = handlerEpoch.load(ordering: .sequentiallyConsistent)
        // A request that has not started will be renewed.
        if !isStarted, handler.renewedEpoch(epoch) != nil { return nil }
        return handler.invalidityError(ofEpoch: epoch)
    }
}

/// Class of a request in the broker's queue. Higher classes get a larger share of the transfers; no class starves.
public enum Priority: CaseIterable, Comparable, Sendable {
    /// For work without a deadline, such as prefetching.
    case background
    /// Below ``normal``.
    case low
    /// The default.
    case normal
    /// For content that a user waits for.
    case high

    var wireValue: PriorityClass {
        switch self {
        case .background: .background
        case .low: .low
        case .normal: .normal
        case .high: .high
        }
    }
}
