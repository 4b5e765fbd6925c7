internal import EarshotLoop
internal import EarshotWire

/// Event loop of a bus: executes commands over a ``ClientConnection`` and delivers the results.
///
/// The code that takes a receiver out of `requests` completes it, once.
final class BusLoop {
    /// Maximum wait for the broker's answer to the last message before closing.
    private static let finalAnswerTimeout = Duration.seconds(1)

    private let loop: EventLoop
    private let commands: Mailbox<BusCommand>
    /// Buffer for commands, empty between two passes.
    private var commandBuffer: [BusCommand] = []
    private let settings: BusSettings
    /// Continuation of ``Bus/connect(to:application:timeout:lease:bodies:)``; nil once resumed.
    private var connectContinuation: CheckedContinuation<Void, any Error>?
    private var folder: RuntimeFolder?
    /// Buses of the connection and of the watches; empty before a private broker is ready.
    private var endpoints: [BusEndpoint] = []
    /// libzmq's thread, for all connections over a network; nil without one.
    private var network: Network?
    private var privateBroker: PrivateBroker?
    private var connection: ClientConnection?
    private var handlers: [UInt64: OpenHandler] = [:]
    private var openNames: [HandlerID: OpenName] = [:]
    /// Names removed while disconnected. One REMOVE covers all handlers of a name. At most
    /// `ClientCore.maximumUnsentRemovals`.
    private var unsentRemovals: Set<HandlerID> = []
    private var requests: [RequestKey: OpenReceiver] = [:]
    private var watches: [ObjectIdentifier: WatchConnection] = [:]
    private var openAnswers = OpenAnswers()
    private var brokerAbsenceTimer: TimerID?
    private var isConnected = false
    /// Whether the bus is closing and waits only for the broker to process earlier messages.
    private var isClosing = false
    /// Error for new requests while disconnected for longer than `timeout`; nil otherwise.
    private var brokerAbsenceError: BusError?
    private var closingError = BusError.busClosed

    /// Runs a bus on the calling thread until it closes. Resumes `continuation` after the connection, or with an
    /// error.
    static func run(
        _ settings: BusSettings, _ commands: Mailbox<BusCommand>, _ continuation: CheckedContinuation<Void, any Error>
    ) {
        SignalSource.blockFileSizeSignal()
        do throws(SystemError) {
            let bus = BusLoop(
                loop: try EventLoop(), settings: settings, commands: commands, connectContinuation: continuation)
            bus.serveUntilClosed()
        } catch {
            continuation.resume(throwing: BusError(converting: error))
            for command in commands.close() { command.failAsClosed() }
        }
    }

    private init(
        loop: EventLoop, settings: BusSettings, commands: Mailbox<BusCommand>,
        connectContinuation: CheckedContinuation<Void, any Error>
    ) {
        self.loop = loop
        self.settings = settings
        self.commands = commands
        self.connectContinuation = connectContinuation
    }

    private func serveUntilClosed() {
        do {
            let registration = try loop.add(commands.descriptor, .readable) { [unowned self] _ in
                commands.clearWakeSignal()
            }
            // Runs before the connection's hook, which then sends the messages in the same pass.
            _ = loop.addHook { [unowned self] in
                carryOutCommands()
                return connection == nil ? sleepLimit() : .untilEvent
            }
            try connectToConfiguredBroker()
            try loop.run()
            loop.remove(registration)
        } catch {
            closingError = BusError(converting: error)
        }
        shutDown()
    }

    private func connectToConfiguredBroker() throws {
        startBrokerAbsenceTimer()
        switch settings.broker.kind {
        case .running(nil) where Environment.value("EARSHOT_BUS") != nil,
            .runningElsePrivate(nil, _) where Environment.value("EARSHOT_BUS") != nil:
            try connect(to: try BusEndpoint.inEnvironment() ?? [])
        case .remote(let endpoints): try connect(to: endpoints)
        case .running(let named):
            let folder = try RuntimeFolder.ofBus(named: named)
            guard try folder.hasBroker() else { throw BusError.noBroker(in: folder) }
            try connect(folder)
        case .runningElsePrivate(let named, let options):
            let folder = try RuntimeFolder.ofBus(named: named)
            if try folder.hasBroker() { try connect(folder) } else { try startPrivateBroker(options) }
        case .privateBroker(let options): try startPrivateBroker(options)
        }
    }

    private func startPrivateBroker(_ options: PrivateBrokerOptions) throws {
        guard let program = options.program ?? ProgramPath.executablePath(of: "earshot") else {
            throw BusError(
                .noBroker, "Cannot start a private broker: PATH has no program `earshot`. Install it or name its path.")
        }
        do {
            privateBroker = try PrivateBroker.start(
                maximumWorkers: options.maximumWorkers, cacheFolder: options.cacheFolder, loop: loop,
                launch: { (start) throws(SystemError) in
                    try ChildProcess.spawn(program, start.arguments, inheriting: [start.readyDescriptor])
                },
                onEvent: { [unowned self] event in privateBrokerChanged(event) })
        } catch {
            throw BusError(.noBroker, "Cannot start a private broker with \(program): \(error).")
        }
    }

    private func privateBrokerChanged(_ event: PrivateBroker.Event) {
        switch event {
        case .ready:
            guard let privateBroker else { return }
            do { try connect(privateBroker.folder) } catch { stopLoop(with: BusError(converting: error)) }
        case .ended:
            let error = BusError(
                .noBroker, "The private broker ended unexpectedly: connect again to start another one.",
                isRetryable: true)
            stopLoop(with: error)
        }
    }

    private func connect(_ folder: RuntimeFolder) throws {
        self.folder = folder
        try connect(to: [BusEndpoint(folder)])
    }

    private func connect(to endpoints: [BusEndpoint]) throws {
        self.endpoints = endpoints
        if endpoints.contains(where: \.isRemote) { network = try Network() }
        connection = try ClientConnection(
            endpoints, sharing: network, window: 256, lease: settings.lease, consumerFinishesDeliveries: false,
            bodies: settings.bodies, loop: loop
        ) { [unowned self] event in handleEvent(event) }
        // Runs after the connection's hook: tasks resumed there may have added commands.
        _ = loop.addHook { [unowned self] in sleepLimit() }
    }

    /// Whether the broker keeps the session while the bus is disconnected.
    private var hasLease: Bool { settings.lease.map { $0 > .zero } ?? (network != nil) }

    private func sleepLimit() -> EventLoop.SleepLimit { commands.prepareToSleep() ? .untilEvent : .noSleep }

    /// Ends the loop after this pass.
    private func stopLoop(with error: BusError) {
        closingError = error
        loop.stop()
    }

    /// Ends the loop when the broker has processed all earlier messages. Otherwise acknowledgements in flight would be
    /// lost with the socket.
    private func close() {
        failAllTasks()
        guard isConnected, !isClosing else { return stopLoop(with: .busClosed) }
        isClosing = true
        connection?.query(.ping)
        loop.setTimer(after: Self.finalAnswerTimeout) { [unowned self] in stopLoop(with: .busClosed) }
    }

    private func shutDown() {
        connection?.close()
        failAllTasks()
        // Waits until the last messages are sent.
        network = nil
        privateBroker?.endAndWait()
    }

    /// Fails all waiting tasks.
    private func failAllTasks() {
        connectContinuation?.resume(throwing: closingError)
        connectContinuation = nil
        for key in requests.keys.map({ $0 }) { removeReceiver(of: key)?.complete(with: .failed(closingError)) }
        for watch in watches.values { watch.endWatch(closingError) }
        watches = [:]
        _ = openAnswers.fail(closingError)
        for command in commands.close() { command.failAsClosed() }
    }

    // MARK: Commands

    private func carryOutCommands() {
        commands.takeAll(into: &commandBuffer)
        for command in commandBuffer { carryOutCommand(command) }
        // Commands retain continuations and closures.
        commandBuffer.removeAll(keepingCapacity: true)
    }

    private func carryOutCommand(_ command: BusCommand) {
        guard !isClosing else { return command.failAsClosed() }
        switch command {
        case .openHandler(let state):
            let name = openNames[state.name] ?? OpenName()
            name.handlerCount += 1
            openNames[state.name] = name
            handlers[state.number] = OpenHandler(state, name)
        case .fetch(let fetch, let request, let receiver, let replaces):
            submitRequest(fetch, request, receiver, replaces: replaces)
        case .cancel(let key):
            guard let receiver = removeReceiver(of: key) else { return }
            connection?.cancel(key)
            receiver.complete(with: .cancelled)
        case .setPriority(let key, let priority):
            if requests[key] != nil { connection?.setPriority(key, priority) }
        case .setHandlerPriority(let number, let priority):
            for open in handlers[number]?.requests ?? [] { connection?.setPriority(open.request.key, priority) }
        case .removeHandler(let number): removeHandler(number: number)
        case .purgePattern(let pattern, let answer): purge(pattern, answer)
        case .submit(let fetch, let answer): submit(fetch, answer)
        case .retry(let key, let answer): retry(key, answer)
        case .withdraw(let key, let answer):
            if openAnswers.withdrawSubmission(key, answer: answer) { connection?.cancel(key) }
        case .watch(let state, let continuation): startWatch(state, continuation)
        case .resumeWatch(let state): watches[ObjectIdentifier(state)]?.resumeReading()
        case .acknowledge(let state, let delivery, let answer):
            if let watch = watches[ObjectIdentifier(state)] {
                watch.acknowledge(delivery, answer)
            } else {
                answer.complete(.failure(state.failure as? BusError ?? .acknowledgementLost))
            }
        case .endWatch(let state): watches.removeValue(forKey: ObjectIdentifier(state))?.endWatch(CancellationError())
        case .countTables(let continuation):
            let tableSizes = BusTableSizes(
                handlers: handlers.count, handlerNames: openNames.count, requests: requests.count,
                watches: watches.count, isDisconnected: !isConnected)
            continuation.resume(returning: tableSizes)
        case .close: close()
        }
    }

    private func submitRequest(_ fetch: Shared<Fetch>, _ request: Request, _ receiver: Receiver, replaces: Bool) {
        guard let handler = handlers[request.handler.number] else {
            return receiver.complete(with: .failed(.handlerRemoved))
        }
        // REPLACE ends all requests of the name. If other handlers share the name, the requests are cancelled singly.
        let replacesName = replaces && handler.name.handlerCount == 1
        let refusal = refusalEnding(of: request)
        let old = replaces ? handler.requests.map(\.request.key) : []
        if refusal == nil {
            connection?.fetch(replacesName ? Self.replacingCopy(of: fetch.value) : fetch, inPlaceOf: old)
        }
        // A replacement that was itself cancelled still replaces: the old requests are invalid since it was created.
        for key in old {
            removeReceiver(of: key)?.complete(with: .failed(.requestReplaced))
            if refusal != nil || !replacesName { connection?.cancel(key) }
        }
        if let refusal { return receiver.complete(with: refusal) }
        requests[request.key] = handler.add(request, receiver)
        handler.name.wasUsed = true
    }

    /// Returns a copy that replaces all requests of its handler.
    private static func replacingCopy(of fetch: Fetch) -> Shared<Fetch> {
        var fetch = fetch
        fetch.options.replacesHandler = true
        return Shared(fetch)
    }

    /// Returns the ending of a request that must not start; nil if it may.
    private func refusalEnding(of request: Request) -> RequestEnding? {
        request.markStarted()
        if let obstacle = request.invalidityError { return (obstacle as? BusError).map { .failed($0) } ?? .cancelled }
        return brokerAbsenceError.map { .failed($0) }
    }

    private func removeHandler(number: UInt64) {
        guard let handler = handlers.removeValue(forKey: number) else { return }
        handler.name.handlerCount -= 1
        let isLast = handler.name.handlerCount == 0
        // A disconnected broker does not know names of this bus, so removals of those are not queued: the queue would
        // be unbounded.
        let purges = isLast && (isConnected || hasLease || handler.state.hasChosenName)
        let old = handler.requests.map(\.request.key)
        for key in old {
            removeReceiver(of: key)?.complete(with: .failed(.handlerRemoved))
            if !purges { connection?.cancel(key) }
        }
        if isLast { openNames[handler.state.name] = nil }
        // Other programs may have requests under a named handler.
        guard purges, handler.name.wasUsed || handler.state.hasChosenName else { return }
        let name = handler.state.name
        if isConnected || !unsentRemovals.contains(name), sendRemoval(of: .handler(name), nil, old) {
            if !isConnected { unsentRemovals.insert(name) }
        } else {
            // Requests of other programs under the name stay if too many removals wait.
            for key in old { connection?.cancel(key) }
        }
    }

    private func purge(_ pattern: HandlerPattern, _ answer: Answer<Int>) {
        if let brokerAbsenceError { return answer.complete(.failure(brokerAbsenceError)) }
        guard sendRemoval(of: pattern, answer) else { return answer.complete(.failure(.tooManyWaitingRemovals)) }
        for handler in handlers.values where pattern.matches(handler.state.name) {
            // Also invalidates responses that wait for an actor.
            handler.state.invalidateRequests()
            for open in handler.requests {
                removeReceiver(of: open.request.key)?.complete(with: .failed(.handlerRemoved))
            }
        }
        openAnswers.failSubmissions(under: pattern)
    }

    /// - Parameter old: all open requests of the handler; nil if unknown.
    /// - Returns: false if the removal is refused, because too many wait for a connection.
    private func sendRemoval(of pattern: HandlerPattern, _ answer: Answer<Int>?, _ old: [RequestKey]? = nil) -> Bool {
        guard connection?.remove(pattern, old) == true else { return false }
        openAnswers.addRemoval(pattern, answer)
        return true
    }

    private func submit(_ fetch: Fetch, _ answer: Answer<Void>) {
        if let brokerAbsenceError { return answer.complete(.failure(brokerAbsenceError)) }
        let key = RequestKey(fetch)
        guard openAnswers.addSubmission(key, answer) else { return answer.complete(.failure(.idInUse)) }
        do throws(ClientError) {
            try connection?.fetch(fetch)
        } catch {
            openAnswers.messageRefused(key, BusError(converting: error))
        }
    }

    private func retry(_ key: RequestKey, _ answer: Answer<Void>) {
        if let brokerAbsenceError { return answer.complete(.failure(brokerAbsenceError)) }
        guard openAnswers.addRetry(key, answer) else { return answer.complete(.failure(.idInUse)) }
        connection?.retry(key)
    }

    private func startWatch(_ state: WatchState, _ continuation: CheckedContinuation<Void, any Error>) {
        if let failure = state.failure ?? brokerAbsenceError { return continuation.resume(throwing: failure) }
        guard !endpoints.isEmpty else { return continuation.resume(throwing: BusError.busClosed) }
        do {
            watches[ObjectIdentifier(state)] = try WatchConnection(
                state, endpoints, settings.bodies, network, loop, commands, continuation)
        } catch {
            continuation.resume(throwing: BusError(converting: error))
        }
    }

    /// Removes a request from the tables. The caller must complete the returned receiver.
    private func removeReceiver(of key: RequestKey) -> Receiver? {
        guard let open = requests.removeValue(forKey: key) else { return nil }
        open.handler.remove(open)
        return open.receiver
    }

    // MARK: Events

    private func handleEvent(_ event: ClientEvent) {
        switch event {
        case .terminal(let delivery, let body): requestEnded(delivery, body: body)
        case .progress(let progress): progressReceived(progress)
        case .messageRefused(let refusal):
            switch refusal.subject {
            case .hello: stopLoop(with: BusError(refusal))
            case .fetch(let key):
                if !openAnswers.messageRefused(key, BusError(refusal)) {
                    removeReceiver(of: key)?.complete(with: .failed(BusError(refusal)))
                }
            case .retry(let key): _ = openAnswers.messageRefused(key, BusError(refusal))
            case .query, .other: break
            }
        case .state(let state): stateChanged(state)
        case .queryAnswer: if isClosing { stopLoop(with: .busClosed) }
        case .accepted(let key): if openAnswers.requestAccepted(key) { connection?.cancel(key) }
        case .removed(let pattern, let count): openAnswers.handlersRemoved(pattern, count: count)
        case .cancelled, .settingChanged: break
        }
    }

    private func requestEnded(_ delivery: DeliveredTerminal, body: [UInt8]) {
        let key = delivery.key
        guard let open = requests.removeValue(forKey: key) else {
            // A request of another program under a shared name, a request removed meanwhile, or a refused submission.
            connection?.finishDelivery(delivery)
            if case .failed(let failure) = delivery.terminal.outcome {
                openAnswers.messageRefused(key, BusError(failure, errorPage: nil))
            }
            return
        }
        let ending: RequestEnding
        switch DeliveredEnding(delivery: delivery, bodyBytes: body) {
        case .response(let response): ending = .response(response)
        case .failed(let error): ending = .failed(error)
        case .bodyMissing:
            if connection?.resubmitRequest(of: delivery) == true {
                requests[key] = open
                return
            }
            ending = .failed(.bodyLost)
        }
        connection?.finishDelivery(delivery)
        open.handler.remove(open)
        open.receiver.complete(with: ending)
    }

    private func progressReceived(_ reported: Progress) {
        guard case .download(let state)? = requests[RequestKey(reported.handler, reported.request)]?.receiver else {
            return
        }
        var file: DeliveredFile?
        if let path = reported.filePath, state.versionedValue.value.needsFile(of: reported) {
            file = try? DeliveredFile(path: path, requiredLength: nil)
        }
        state.change { $0.recordProgress(reported, file: file) }
    }

    private func stateChanged(_ state: ClientState) {
        switch state {
        case .connected:
            isConnected = true
            unsentRemovals = []
            if let brokerAbsenceTimer { loop.cancelTimer(brokerAbsenceTimer) }
            brokerAbsenceTimer = nil
            brokerAbsenceError = nil
            connectContinuation?.resume()
            connectContinuation = nil
        case .disconnected:
            isConnected = false
            if isClosing { stopLoop(with: .busClosed) }
            if let failure = connection?.failure { stopLoop(with: BusError(converting: failure)) }
            startBrokerAbsenceTimer()
        case .draining: break
        case .incompatible:
            let error = BusError(
                .version, "The broker supports another protocol version: restart it from the release of this program.")
            stopLoop(with: error)
        }
    }

    private func startBrokerAbsenceTimer() {
        guard let timeout = settings.timeout, brokerAbsenceTimer == nil, brokerAbsenceError == nil else { return }
        brokerAbsenceTimer = loop.setTimer(after: timeout) { [unowned self] in connectTimedOut() }
    }

    /// Fails all waiting tasks after `timeout` without a broker. The loop continues to reconnect and serves later
    /// requests.
    private func connectTimedOut() {
        brokerAbsenceTimer = nil
        let error =
            folder.map { BusError.noBroker(in: $0) }
            ?? connection?.connectionFaultText.map {
                BusError(.noBroker, BusError.sentence(fromWireText: $0), isRetryable: true)
            }
            ?? BusError(.noBroker, "The private broker did not start in time: check that `earshot serve` works.")
        guard connectContinuation == nil else { return stopLoop(with: error) }
        brokerAbsenceError = error
        for key in requests.keys.map({ $0 }) {
            removeReceiver(of: key)?.complete(with: .failed(error))
            connection?.cancel(key)
        }
        for watch in watches.values { watch.endWatch(error) }
        watches = [:]
        for key in openAnswers.fail(error) { connection?.cancel(key) }
    }
}
