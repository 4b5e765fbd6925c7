internal import DequeModule
internal import EarshotLoop
internal import EarshotWire

/// A watcher's own connection, on the loop: what waits for a slow reader is left with the broker, and nobody else
/// waits.
final class WatchConnection {
    private let state: WatchState
    private let commands: Mailbox<BusCommand>
    private var connection: ClientConnection?
    /// Who waits for the broker to know it.
    private var beginning: CheckedContinuation<Void, any Error>?
    /// Who waits for the broker to hear of an acknowledgement; the answers come in this order.
    private var acknowledgements = Deque<Answer<Void>>()

    /// - Throws: when there are no sockets to be had; then the continuation is the caller's.
    init(
        _ state: WatchState, _ endpoint: String, _ loop: EventLoop, _ commands: Mailbox<BusCommand>,
        _ beginning: CheckedContinuation<Void, any Error>
    ) throws {
        self.state = state
        self.commands = commands
        connection = try ClientConnection(
            endpoint: endpoint, client: "watch", window: WatchState.most, finishesNone: state.isClaim, loop: loop
        ) { [unowned self] event in happened(event) }
        self.beginning = beginning
        connection?.subscribe(state.pattern)
        connection?.query(.ping)
    }

    /// The reader has room again.
    func resume() { connection?.isPaused = false }

    /// The reader is done with a result.
    func acknowledge(_ delivery: Delivery, _ answer: Answer<Void>) {
        guard let connection, connection.isDue(delivery) else { return answer.tell(.failure(.unacknowledged)) }
        connection.finish(delivery)
        connection.acknowledge()
        acknowledgements.append(answer)
        connection.query(.ping)
    }

    /// Ends it.
    ///
    /// - Parameter error: what its reader is told.
    func end(_ error: any Error) {
        connection?.close()
        beginning?.resume(throwing: error)
        beginning = nil
        for answer in acknowledgements { answer.tell(.failure(error as? BusError ?? .unacknowledged)) }
        acknowledgements = []
        state.fail(error)
    }

    private func happened(_ event: ClientEvent) {
        switch event {
        case .terminal(let delivery, let body): ended(delivery, body)
        case .answer:
            if let beginning { beginning.resume() } else { acknowledgements.popFirst()?.tell(.success(())) }
            beginning = nil
        case .refused(let reply): end(BusError(reply))
        case .state(.apart):
            // Their questions are asked again, and answered by a broker that knows nothing of what they were about.
            for answer in acknowledgements { answer.tell(.failure(.unacknowledged)) }
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
        let key = delivery.key
        let claim = state.isClaim ? Claim(state: state, delivery: delivery, commands: commands) : nil
        let ended = WatchedRequest(
            handler: key.handler.description, request: key.request.description, result: result, claim: claim)
        let isFull = state.put(ended)
        // What is claimed is bounded by the window; its answers must be heard.
        guard !state.isClaim else { return }
        connection?.finish(delivery)
        if isFull { connection?.isPaused = true }
    }
}
