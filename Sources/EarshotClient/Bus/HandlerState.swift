internal import EarshotLoop
internal import EarshotWire
internal import Synchronization

/// A handler as all who deal with it know it: whether it was removed, and which of its requests still count.
final class HandlerState: Sendable {
    private struct State {
        /// Requests of an earlier epoch were replaced or removed.
        var epoch: UInt64 = 0
        /// Why those of an earlier epoch do not count.
        var reason = BusError.replaced
        var isRemoved = false

        mutating func forget(_ reason: BusError) {
            epoch += 1
            self.reason = reason
        }
    }

    /// Unlike the name, of this handler alone: a program may make two of one name.
    let number: UInt64
    let name: HandlerID
    /// Whether the program chose the name, so that others may know it.
    let isNamed: Bool
    private let state = Mutex(State())

    init(_ number: UInt64, _ name: HandlerID, isNamed: Bool) {
        self.number = number
        self.name = name
        self.isNamed = isNamed
    }

    /// Calls `send` with the epoch of a new request. What is sent here and in `remove` is sent in the order of the
    /// changes, so `send` puts into a mailbox, and does nothing else.
    ///
    /// - Parameter replaces: whether requests of before shall not count any more.
    /// - Throws: ``BusError/removed``; then `send` was not called.
    func begin<Answer: Sendable>(replaces: Bool, _ send: (UInt64) -> Answer) throws(BusError) -> Answer {
        let answer: Answer? = state.withLock(of: self) { state in
            guard !state.isRemoved else { return nil }
            if replaces { state.forget(.replaced) }
            return send(state.epoch)
        }
        guard let answer else { throw .removed }
        return answer
    }

    /// From now on none of its requests counts. Calls `send` unless it was removed before.
    func remove(_ send: () -> Void) {
        state.withLock(of: self) { state in
            guard !state.isRemoved else { return }
            state.isRemoved = true
            send()
        }
    }

    /// From now on none of its requests of before counts.
    func purge() { state.withLock(of: self) { $0.forget(.removed) } }

    /// Why a request of that epoch does not count any more; nil if it does.
    func obstacle(_ epoch: UInt64) -> BusError? {
        state.withLock(of: self) { state in
            if state.isRemoved { return .removed }
            return state.epoch == epoch ? nil : state.reason
        }
    }
}
