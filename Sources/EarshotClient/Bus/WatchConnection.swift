internal import EarshotLoop
internal import EarshotWire

/// A watcher's own connection, on the loop: what waits for a slow reader is left with the broker, and nobody else
/// waits.
final class WatchConnection {
    private let state: WatchState
    private var connection: ClientConnection?
    /// Who waits for the broker to know it.
    private var beginning: CheckedContinuation<Void, any Error>?

    /// - Throws: when there are no sockets to be had; then the continuation is the caller's.
    init(
        _ state: WatchState, _ endpoint: String, _ loop: EventLoop, _ beginning: CheckedContinuation<Void, any Error>
    ) throws {
        self.state = state
        connection = try ClientConnection(
            endpoint: endpoint, client: "watch", window: WatchState.most, loop: loop
        ) { [unowned self] event in happened(event) }
        self.beginning = beginning
        connection?.subscribe(state.pattern)
        connection?.query(.ping)
    }

    /// The reader has room again.
    func resume() { connection?.isPaused = false }

    /// Ends it.
    ///
    /// - Parameter error: what its reader is told.
    func end(_ error: any Error) {
        connection?.close()
        beginning?.resume(throwing: error)
        beginning = nil
        state.fail(error)
    }

    private func happened(_ event: ClientEvent) {
        switch event {
        case .terminal(let delivery, let body): ended(delivery, body)
        case .answer:
            beginning?.resume()
            beginning = nil
        case .refused(let reply): end(BusError(reply))
        case .state(.apart):
            if let failure = connection?.failure { end(BusError(failure)) }
        case .accepted, .progress, .cancelled, .removed, .changed, .state: break
        }
    }

    private func ended(_ delivery: Delivery, _ body: [UInt8]) {
        let result: Result<Response, BusError>
        switch DeliveredEnding(delivery, body) {
        case .response(let response): result = .success(response)
        case .failed(let error): result = .failure(error)
        // Not asked for by this client, so not asked for again.
        case .isGone: result = .failure(.bodyLost)
        }
        connection?.finish(delivery)
        let key = delivery.key
        let ended = WatchedRequest(
            handler: key.handler.description, request: key.request.description, result: result)
        if state.put(ended) { connection?.isPaused = true }
    }
}
