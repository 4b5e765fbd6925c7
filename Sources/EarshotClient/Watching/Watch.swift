internal import EarshotLoop
internal import EarshotWire

/// Endless sequence of the results under a handler, for requests of all programs.
///
/// ```swift
/// for try await ended in try await bus.watch("gallery/") {
///     print(ended.handler, ended.request)
/// }
/// ```
///
/// A watch does not own requests: they end with their owners. It uses a connection of its own, so a slow reader delays
/// only itself: after 64 unread results the broker waits. Results during a disconnection are lost, except those of
/// durable requests. Each element goes to one reader.
public final class Watch: AsyncSequence, Sendable {
    /// An ended request.
    public typealias Element = WatchedRequest
    let state: WatchState
    private let bus: Bus

    init(_ state: WatchState, _ bus: Bus) {
        self.state = state
        self.bus = bus
    }

    deinit { bus.commands.put(.endWatch(state)) }

    /// Returns an iterator that continues after the last reader.
    public func makeAsyncIterator() -> Iterator { Iterator(watch: self) }

    /// Reader of a watch.
    public struct Iterator: AsyncIteratorProtocol {
        let watch: Watch

        /// Waits for the next result.
        ///
        /// - Parameter actor: actor of the caller.
        /// - Returns: the result; never nil.
        /// - Throws: ``BusError`` with ``BusError/Code/noBroker`` or ``BusError/Code/closed``; `CancellationError`.
        public mutating func next(isolation actor: isolated (any Actor)?) async throws -> WatchedRequest? {
            try await watch.state.next(isolation: actor) { watch.bus.commands.put(.resumeWatch(watch.state)) }
        }
    }
}

/// Ended request of a watched handler.
public struct WatchedRequest: Sendable {
    /// Name of the handler.
    public let handler: String
    /// ID of the request, unique under its handler.
    public let request: String
    /// The response or the failure.
    public let result: Result<Response, BusError>
    /// Claim to acknowledge; nil for an element of ``Bus/watch(_:)``.
    let claim: Claim?

    /// Acknowledges an element of ``Bus/claim(_:)``, so that the broker deletes it. Returns when the broker has
    /// processed it. Has no effect on elements of ``Bus/watch(_:)``.
    ///
    /// Acknowledgements are cumulative: the broker keeps an element until all earlier ones are acknowledged, too.
    ///
    /// - Throws: ``BusError`` with ``BusError/Code/connectionLost`` if the connection was lost since the delivery,
    ///   after which the element is delivered again; ``BusError/Code/closed``; `CancellationError`.
    public func acknowledge() async throws {
        guard let claim else { return }
        let answer = Answer<Void>()
        guard claim.commands.put(.acknowledge(claim.state, claim.delivery, answer)) else { throw BusError.busClosed }
        try await answer.value()
    }
}

/// Unacknowledged result of a claim.
struct Claim: Sendable {
    let state: WatchState
    let delivery: DeliveredTerminal
    let commands: Mailbox<BusCommand>
}
