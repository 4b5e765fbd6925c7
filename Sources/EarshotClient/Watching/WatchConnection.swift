internal import DequeModule
internal import EarshotLoop
internal import EarshotWire

/// Connection of a watch. Terminals that wait for a slow reader remain in the broker and delay no other client.
final class WatchConnection {
    private let state: WatchState
    private let commands: Mailbox<BusCommand>
    private var connection: ClientConnection?
    /// Continuation that awaits the subscription; nil once resumed.
    private var subscriptionContinuation: CheckedContinuation<Void, any Error>?
    /// Tasks that await the processing of their acknowledgement, in the order of the answers.
    private var pendingAcknowledgements = Deque<Answer<Void>>()

    /// Starts a connection.
    ///
    /// - Throws: an error if the process cannot have a socket; then the caller must resume the continuation.
    init(
        _ state: WatchState, _ endpoints: [BusEndpoint], _ bodies: BodyAccess, _ network: Network?, _ loop: EventLoop,
        _ commands: Mailbox<BusCommand>, _ continuation: CheckedContinuation<Void, any Error>
    ) throws {
        self.state = state
        self.commands = commands
        connection = try ClientConnection(
            endpoints, sharing: network, window: WatchState.maximumUnreadResults, lease: nil,
            consumerFinishesDeliveries: state.isClaim, bodies: bodies, loop: loop
        ) { [unowned self] event in handle(event) }
        subscriptionContinuation = continuation
        connection?.subscribe(state.pattern)
        connection?.query(.ping)
    }

    /// Continues reading.
    func resumeReading() { connection?.isPaused = false }

    /// Acknowledges a result.
    func acknowledge(_ delivery: DeliveredTerminal, _ answer: Answer<Void>) {
        guard let connection, connection.isOfCurrentSession(delivery) else {
            return answer.complete(.failure(.acknowledgementLost))
        }
        connection.finishDelivery(delivery)
        connection.acknowledge()
        pendingAcknowledgements.append(answer)
        connection.query(.ping)
    }

    /// Ends the watch.
    ///
    /// - Parameter error: error for its reader.
    func endWatch(_ error: any Error) {
        connection?.close()
        subscriptionContinuation?.resume(throwing: error)
        subscriptionContinuation = nil
        for answer in pendingAcknowledgements { answer.complete(.failure(error as? BusError ?? .acknowledgementLost)) }
        pendingAcknowledgements = []
        state.fail(error)
    }

    private func handle(_ event: ClientEvent) {
        switch event {
        case .terminal(let delivery, let body): requestEnded(delivery, body: body)
        case .queryAnswer:
            if let subscriptionContinuation {
                subscriptionContinuation.resume()
            } else {
                pendingAcknowledgements.popFirst()?.complete(.success(()))
            }
            subscriptionContinuation = nil
        case .messageRefused(let reply): endWatch(BusError(reply))
        case .state(.disconnected):
            // The PINGs are repeated, but the next broker's answers prove nothing about these acknowledgements.
            for answer in pendingAcknowledgements { answer.complete(.failure(.acknowledgementLost)) }
            if let failure = connection?.failure { endWatch(BusError(converting: failure)) }
        case .accepted, .progress, .cancelled, .removed, .settingChanged, .state: break
        }
    }

    private func requestEnded(_ delivery: DeliveredTerminal, body: [UInt8]) {
        let result: Result<Response, BusError>
        switch DeliveredEnding(delivery: delivery, bodyBytes: body) {
        case .response(let response): result = .success(response)
        case .failed(let error): result = .failure(error)
        // A request of another client cannot be repeated here.
        case .bodyMissing: result = .failure(.bodyLost)
        }
        let key = delivery.key
        let claim = state.isClaim ? Claim(state: state, delivery: delivery, commands: commands) : nil
        let ended = WatchedRequest(
            handler: key.handler.description, request: key.request.description, result: result, claim: claim)
        let isFull = state.addResult(ended)
        // The window bounds claimed results, and the connection must read the answers to acknowledgements.
        guard !state.isClaim else { return }
        connection?.finishDelivery(delivery)
        if isFull { connection?.isPaused = true }
    }
}
