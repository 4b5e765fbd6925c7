internal import EarshotLoop
internal import EarshotWire

/// A request that somebody asked for, and what became of it.
public struct WatchedRequest: Sendable {
    /// The name of its handler.
    public let handler: String
    /// Its ID, unique in the handler.
    public let request: String
    public let result: Result<Response, BusError>
    /// What there is to acknowledge; nil if it was done when it came.
    let claim: Claim?

    /// Tells the broker that nobody else needs to hear of it: for elements of ``Bus/claim(_:)``, which come again
    /// otherwise; of others nothing is to be told. Returns when the broker knows it.
    ///
    /// The broker counts in order: it keeps one until those before it are acknowledged, too.
    ///
    /// - Throws: ``BusError``, ``BusError/Code/connectionLost`` if the broker was lost since it came: it comes again;
    ///   `CancellationError`.
    public func acknowledge() async throws {
        guard let claim else { return }
        let answer = Answer<Void>()
        guard claim.commands.put(.acknowledge(claim.state, claim.delivery, answer)) else { throw BusError.closed }
        try await answer.value()
    }
}

/// A result that was claimed, as its watch knows it.
struct Claim: Sendable {
    let state: WatchState
    let delivery: Delivery
    let commands: Mailbox<BusCommand>
}

/// What becomes of the requests under a handler, whoever asks for them, from now on and without end.
///
/// ```swift
/// for try await ended in try await bus.watch("gallery/") {
///     print(ended.handler, ended.request)
/// }
/// ```
///
/// Who watches keeps nothing alive. A reader that is slow makes the broker wait, and itself alone: a watch has a
/// connection of its own. What ends while there is no broker is not told. Elements go to whoever reads first.
public final class Watch: AsyncSequence, Sendable {
    /// A request that ended.
    public typealias Element = WatchedRequest
    let state: WatchState
    private let bus: Bus

    init(_ state: WatchState, _ bus: Bus) {
        self.state = state
        self.bus = bus
    }

    deinit { bus.commands.put(.endWatch(state)) }

    /// Goes on where the last reader was.
    public func makeAsyncIterator() -> Iterator { Iterator(watch: self) }

    /// A reader.
    public struct Iterator: AsyncIteratorProtocol {
        let watch: Watch

        /// The next request that ended. It throws ``BusError`` when there is no broker any more, or the bus was closed;
        /// `CancellationError`.
        public mutating func next(isolation actor: isolated (any Actor)?) async throws -> WatchedRequest? {
            try await watch.state.next(isolation: actor) { watch.bus.commands.put(.resume(watch.state)) }
        }
    }
}
