internal import EarshotLoop
internal import EarshotWire
internal import Synchronization

/// A request whose response is delivered to a function: what is needed to stop wanting it.
///
/// It goes on without this value: it ends with its handler, or when it is cancelled.
public final class Request: Sendable {
    let key: RequestKey
    let handler: HandlerState
    private let commands: Mailbox<BusCommand>
    /// Set when it is sent.
    private let epoch = Atomic<UInt64>(0)
    private let isCancelled = Atomic(false)
    private let isCarriedOut = Atomic(false)

    init(_ key: RequestKey, _ handler: HandlerState, _ commands: Mailbox<BusCommand>) {
        self.key = key
        self.handler = handler
        self.commands = commands
    }

    /// Asks for it. To be called once.
    ///
    /// - Throws: ``BusError/removed`` or ``BusError/closed``; then the receiver is the caller's to end.
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

    /// It is carried out: what was purged by name until now is of before it, though it was sent sooner than that was
    /// done.
    func renew() {
        if let epoch = handler.renewed(epoch.load(ordering: .sequentiallyConsistent)) {
            self.epoch.store(epoch, ordering: .sequentiallyConsistent)
        }
        isCarriedOut.store(true, ordering: .sequentiallyConsistent)
    }

    /// No longer wants it. On the actor to which it would be delivered: it is not, from now on.
    public func cancel() {
        guard isCancelled.exchange(true, ordering: .sequentiallyConsistent) == false else { return }
        commands.put(.cancel(key))
    }

    /// Changes its class while it waits.
    public func setPriority(_ priority: Priority) { commands.put(.setPriority(key, priority.wire)) }

    /// Why its response is not wanted any more; nil if it is.
    var obstacle: (any Error)? {
        if isCancelled.load(ordering: .sequentiallyConsistent) { return CancellationError() }
        let (isCarriedOut, epoch) = (
            isCarriedOut.load(ordering: .sequentiallyConsistent), epoch.load(ordering: .sequentiallyConsistent)
        )
        // One that is still to be carried out will be renewed.
        if !isCarriedOut, handler.renewed(epoch) != nil { return nil }
        return handler.obstacle(epoch)
    }
}
