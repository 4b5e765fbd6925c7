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
    private let epoch = Atomic<UInt64>(0)
    private let isCancelled = Atomic(false)
    private let isCarriedOut = Atomic(false)

    init(_ key: RequestKey, _ handler: HandlerState, _ commands: Mailbox<BusCommand>) {
        self.key = key
        self.handler = handler
        self.commands = commands
    }

    /// Sends the request. Must be called once.
    ///
    /// - Throws: ``BusError/handlerRemoved`` or ``BusError/closed``; then the caller must end the receiver.
    func send(_ fetch: Shared<Fetch>, _ receiver: Receiver, replaces: Bool) throws(BusError) {
        let placement = try handler.begin(replaces: replaces) { epoch in
            self.epoch.store(epoch, ordering: .sequentiallyConsistent)
            return commands.place(.fetch(fetch, self, receiver, replaces: replaces))
        }
        switch placement {
        case .refused: throw .closed
        case .taken: break
        case .takenAsleep: commands.wake()
        }
    }

    /// Marks the request as started by the loop. Purges executed before that do not concern it, even if it was sent
    /// earlier.
    func renew() {
        if let epoch = handler.renewed(epoch.load(ordering: .sequentiallyConsistent)) {
            self.epoch.store(epoch, ordering: .sequentiallyConsistent)
        }
        isCarriedOut.store(true, ordering: .sequentiallyConsistent)
    }

    /// Cancels the request. Called on the actor of the closure, it guarantees that the closure is not called.
    public func cancel() {
        guard isCancelled.exchange(true, ordering: .sequentiallyConsistent) == false else { return }
        commands.put(.cancel(key))
    }

    /// Changes the priority while the request is queued.
    ///
    /// - Parameter priority: the new class.
    public func setPriority(_ priority: Priority) { commands.put(.setPriority(key, priority.wire)) }

    /// Error of a request that is cancelled, replaced or removed; nil if it is valid.
    var obstacle: (any Error)? {
        if isCancelled.load(ordering: .sequentiallyConsistent) { return CancellationError() }
        let (isCarriedOut, epoch) = (
            isCarriedOut.load(ordering: .sequentiallyConsistent), epoch.load(ordering: .sequentiallyConsistent)
        )
        // A request that has not started will be renewed.
        if !isCarriedOut, handler.renewed(epoch) != nil { return nil }
        return handler.obstacle(epoch)
    }
}
