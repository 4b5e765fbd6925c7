internal import EarshotLoop
internal import EarshotWire
internal import Synchronization

/// A handler as all who deal with it know it: whether it was removed, and which of its requests still count.
final class HandlerState: Sendable {
    private struct State {
        /// Why requests of an earlier epoch do not count.
        var reason = BusError.replaced
        var isRemoved = false
        /// The first epoch in which nothing of before counted; those behind it came by purges.
        var first: UInt64 = 0
    }

    /// Unlike the name, of this handler alone: a program may make two of one name.
    let number: UInt64
    let name: HandlerID
    /// Whether the program chose the name, so that others may know it.
    let isNamed: Bool
    private let state = Mutex(State())
    /// Requests of an earlier one were replaced or removed. Changes with the lock, and is read without: what a request
    /// needs most often is to know that it counts.
    private let epoch = Atomic<UInt64>(0)

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
            if replaces { forget(.replaced, &state) }
            return send(epoch.load(ordering: .sequentiallyConsistent))
        }
        guard let answer else { throw .removed }
        return answer
    }

    /// From now on none of its requests counts. Calls `send` unless it was removed before.
    func remove(_ send: () -> Void) {
        state.withLock(of: self) { state in
            guard !state.isRemoved else { return }
            state.isRemoved = true
            forget(.removed, &state)
            send()
        }
    }

    /// From now on none of its requests of before counts. Called by the loop.
    func purge() { state.withLock(of: self) { forget(.removed, &$0) } }

    /// Why a request of that epoch does not count any more; nil if it does.
    func obstacle(_ epoch: UInt64) -> BusError? {
        guard self.epoch.load(ordering: .sequentiallyConsistent) != epoch else { return nil }
        return state.withLock(of: self) { $0.isRemoved ? .removed : $0.reason }
    }

    /// The epoch of a request of that one which is carried out now: purges since were carried out before it, so they
    /// are of before. Nil if it keeps its own.
    func renewed(_ epoch: UInt64) -> UInt64? {
        let current = self.epoch.load(ordering: .sequentiallyConsistent)
        guard current != epoch else { return nil }
        return state.withLock(of: self) { state in
            state.isRemoved || epoch < state.first ? nil : self.epoch.load(ordering: .sequentiallyConsistent)
        }
    }

    private func forget(_ reason: BusError, _ state: inout State) {
        state.reason = reason
        let (_, epoch) = epoch.add(1, ordering: .sequentiallyConsistent)
        if reason.code == .replaced { state.first = epoch }
    }
}
