internal import EarshotLoop
internal import EarshotWire

/// Event loop of a bus: executes commands over a ``ClientConnection`` and delivers the results.
///
/// Each receiver is ended once, by the code that takes it out of `requests`.
final class BusLoop {
    /// Maximum wait for the broker's answer to the last message before closing.
    private static let farewell = Duration.seconds(1)

    private let loop: EventLoop
    private let commands: Mailbox<BusCommand>
    /// Buffer for commands, empty between two passes.
    private var takenCommands: [BusCommand] = []
    private let settings: BusSettings
    /// Continuation of ``Bus/connect(to:application:patience:lease:bodies:)``; nil once resumed.
    private var greeting: CheckedContinuation<Void, any Error>?
    private var folder: RuntimeFolder?
    /// Buses of the connection and of the watches; empty before a private broker is ready.
    private var endpoints: [BusEndpoint] = []
    /// libzmq's thread, for all connections over a network; nil without one.
    private var network: Network?
    private var broker: PrivateBroker?
    private var connection: ClientConnection?
    private var handlers: [UInt64: OpenHandler] = [:]
    private var names: [HandlerID: OpenName] = [:]
    /// Names removed while disconnected. One REMOVE covers all handlers of a name. At most
    /// `ClientCore.mostUnsentRemovals`.
    private var unsentRemovals: Set<HandlerID> = []
    private var requests: [RequestKey: OpenReceiver] = [:]
    private var watches: [ObjectIdentifier: WatchConnection] = [:]
    private var answers = OpenAnswers()
    private var patienceTimer: TimerID?
    private var isConnected = false
    /// Whether the bus is closing and waits only for the broker to process earlier messages.
    private var isClosing = false
    /// Error for new requests while disconnected for longer than `patience`; nil otherwise.
    private var absenceError: BusError?
    private var failure = BusError.closed

    /// Runs a bus on the calling thread until it closes. Resumes `greeting` after the connection, or with an error.
    static func run(
        _ settings: BusSettings, _ commands: Mailbox<BusCommand>, _ greeting: CheckedContinuation<Void, any Error>
    ) {
        SignalSource.blockFileSizeSignal()
        do throws(SystemError) {
            let bus = BusLoop(try EventLoop(), settings, commands, greeting)
            bus.serve()
        } catch {
            greeting.resume(throwing: BusError(error))
            for command in commands.close() { command.refuse() }
        }
    }

    private init(
        _ loop: EventLoop, _ settings: BusSettings, _ commands: Mailbox<BusCommand>,
        _ greeting: CheckedContinuation<Void, any Error>
    ) {
        self.loop = loop
        self.settings = settings
        self.commands = commands
        self.greeting = greeting
    }

    private func serve() {
        do {
            let registration = try loop.add(commands.descriptor, .readable) { [unowned self] _ in
                commands.resetWake()
            }
            // Runs before the connection's hook, which then sends the messages in the same pass.
            _ = loop.addHook { [unowned self] in
                carryOutCommands()
                return connection == nil ? rest() : .untilEvent
            }
            try begin()
            try loop.run()
            loop.remove(registration)
        } catch {
            failure = BusError(error)
        }
        end()
    }

    private func begin() throws {
        beginToWait()
        switch settings.broker.kind {
        case .running(nil) where Environment.value("EARSHOT_BUS") != nil,
            .runningElsePrivate(nil, _) where Environment.value("EARSHOT_BUS") != nil:
            try connect(try BusEndpoint.inEnvironment() ?? [])
        case .remote(let endpoints): try connect(endpoints)
        case .running(let named):
            let folder = try RuntimeFolder.ofBus(named: named)
            guard try folder.isServed() else { throw BusError.noBroker(in: folder) }
            try connect(folder)
        case .runningElsePrivate(let named, let options):
            let folder = try RuntimeFolder.ofBus(named: named)
            if try folder.isServed() { try connect(folder) } else { try start(options) }
        case .privateBroker(let options): try start(options)
        }
    }

    private func start(_ options: PrivateBrokerOptions) throws {
        guard let program = options.program ?? ProgramPath.find("earshot") else {
            throw BusError(
                .noBroker, "Cannot start a private broker: PATH has no program `earshot`. Install it or name its path.")
        }
        do {
            broker = try PrivateBroker.start(
                mostWorkers: options.mostWorkers, cacheFolder: options.cacheFolder, loop: loop,
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
            guard let broker else { return }
            do { try connect(broker.folder) } catch { stop(BusError(error)) }
        case .ended:
            stop(
                BusError(
                    .noBroker, "The private broker ended unexpectedly: connect again to start another one.",
                    isRetryable: true))
        }
    }

    private func connect(_ folder: RuntimeFolder) throws {
        self.folder = folder
        try connect([BusEndpoint(folder)])
    }

    private func connect(_ endpoints: [BusEndpoint]) throws {
        self.endpoints = endpoints
        if endpoints.contains(where: \.isRemote) { network = try Network() }
        connection = try ClientConnection(
            endpoints, sharing: network, window: 256, lease: settings.lease, finishesNone: false,
            bodies: settings.bodies, loop: loop
        ) { [unowned self] event in handle(event) }
        // Runs after the connection's hook: tasks resumed there may have added commands.
        _ = loop.addHook { [unowned self] in rest() }
    }

    /// Whether the broker keeps the session while the bus is disconnected.
    private var hasLease: Bool { settings.lease.map { $0 > .zero } ?? (network != nil) }

    private func rest() -> EventLoop.Rest { commands.mayRest() ? .untilEvent : .none }

    /// Ends the loop after this pass.
    private func stop(_ error: BusError) {
        failure = error
        loop.stop()
    }

    /// Ends the loop when the broker has processed all earlier messages. Otherwise acknowledgements in flight would be
    /// lost with the socket.
    private func close() {
        endAll()
        guard isConnected, !isClosing else { return stop(.closed) }
        isClosing = true
        connection?.query(.ping)
        loop.setTimer(after: Self.farewell) { [unowned self] in stop(.closed) }
    }

    private func end() {
        connection?.close()
        endAll()
        // Waits until the last messages are sent.
        network = nil
        broker?.end()
    }

    /// Fails all waiting tasks.
    private func endAll() {
        greeting?.resume(throwing: failure)
        greeting = nil
        for key in requests.keys.map({ $0 }) { take(key)?.end(.failed(failure)) }
        for watch in watches.values { watch.end(failure) }
        watches = [:]
        _ = answers.fail(failure)
        for command in commands.close() { command.refuse() }
    }

    // MARK: Commands

    private func carryOutCommands() {
        commands.takeSome(into: &takenCommands)
        for command in takenCommands { carryOut(command) }
        // Commands retain continuations and closures.
        takenCommands.removeAll(keepingCapacity: true)
    }

    private func carryOut(_ command: BusCommand) {
        guard !isClosing else { return command.refuse() }
        switch command {
        case .open(let state):
            let name = names[state.name] ?? OpenName()
            name.handlers += 1
            names[state.name] = name
            handlers[state.number] = OpenHandler(state, name)
        case .fetch(let fetch, let request, let receiver, let replaces):
            submitRequest(fetch, request, receiver, replaces: replaces)
        case .cancel(let key):
            guard let receiver = take(key) else { return }
            connection?.cancel(key)
            receiver.end(.cancelled)
        case .setPriority(let key, let priority):
            if requests[key] != nil { connection?.setPriority(key, priority) }
        case .setHandlerPriority(let number, let priority):
            for open in handlers[number]?.requests ?? [] { connection?.setPriority(open.request.key, priority) }
        case .remove(let number): remove(number)
        case .purge(let pattern, let answer): purge(pattern, answer)
        case .submit(let fetch, let answer): submit(fetch, answer)
        case .retry(let key, let answer): retry(key, answer)
        case .withdraw(let key, let answer): if answers.withdraw(key, answer) { connection?.cancel(key) }
        case .watch(let state, let continuation): watch(state, continuation)
        case .resume(let state): watches[ObjectIdentifier(state)]?.resume()
        case .acknowledge(let state, let delivery, let answer):
            if let watch = watches[ObjectIdentifier(state)] {
                watch.acknowledge(delivery, answer)
            } else {
                answer.complete(.failure(state.failure as? BusError ?? .unacknowledged))
            }
        case .endWatch(let state): watches.removeValue(forKey: ObjectIdentifier(state))?.end(CancellationError())
        case .count(let continuation):
            let tableSizes = BusTableSizes(
                handlers: handlers.count, names: names.count, requests: requests.count, watches: watches.count,
                isDisconnected: !isConnected)
            continuation.resume(returning: tableSizes)
        case .close: close()
        }
    }

    private func submitRequest(_ fetch: Shared<Fetch>, _ request: Request, _ receiver: Receiver, replaces: Bool) {
        guard let handler = handlers[request.handler.number] else { return receiver.end(.failed(.handlerRemoved)) }
        // REPLACE ends all requests of the name. If other handlers share the name, the requests are cancelled singly.
        let replacesName = replaces && handler.name.handlers == 1
        let refusal = refusal(request)
        let old = replaces ? handler.requests.map(\.request.key) : []
        if refusal == nil { connection?.fetch(replacesName ? Self.replacing(fetch.value) : fetch, inPlaceOf: old) }
        // A replacement that was itself cancelled still replaces: the old requests are invalid since it was created.
        for key in old {
            take(key)?.end(.failed(.replaced))
            if refusal != nil || !replacesName { connection?.cancel(key) }
        }
        if let refusal { return receiver.end(refusal) }
        requests[request.key] = handler.add(request, receiver)
        handler.name.wasUsed = true
    }

    /// Returns a copy that replaces all requests of its handler.
    private static func replacing(_ fetch: Fetch) -> Shared<Fetch> {
        var fetch = fetch
        fetch.options.replacesHandler = true
        return Shared(fetch)
    }

    /// Returns the ending of a request that must not start; nil if it may.
    private func refusal(_ request: Request) -> RequestEnding? {
        request.renew()
        if let obstacle = request.obstacle { return (obstacle as? BusError).map { .failed($0) } ?? .cancelled }
        return absenceError.map { .failed($0) }
    }

    private func remove(_ number: UInt64) {
        guard let handler = handlers.removeValue(forKey: number) else { return }
        handler.name.handlers -= 1
        let isLast = handler.name.handlers == 0
        // A disconnected broker does not know names of this bus, so removals of those are not queued: the queue would
        // be unbounded.
        let purges = isLast && (isConnected || hasLease || handler.state.isNamed)
        let old = handler.requests.map(\.request.key)
        for key in old {
            take(key)?.end(.failed(.handlerRemoved))
            if !purges { connection?.cancel(key) }
        }
        if isLast { names[handler.state.name] = nil }
        // Other programs may have requests under a named handler.
        guard purges, handler.name.wasUsed || handler.state.isNamed else { return }
        let name = handler.state.name
        if isConnected || !unsentRemovals.contains(name), sendRemoval(.handler(name), nil, old) {
            if !isConnected { unsentRemovals.insert(name) }
        } else {
            // Requests of other programs under the name stay if too many removals wait.
            for key in old { connection?.cancel(key) }
        }
    }

    private func purge(_ pattern: HandlerPattern, _ answer: Answer<Int>) {
        if let absenceError { return answer.complete(.failure(absenceError)) }
        guard sendRemoval(pattern, answer) else { return answer.complete(.failure(.manyRemovals)) }
        for handler in handlers.values where pattern.matches(handler.state.name) {
            // Also invalidates responses that wait for an actor.
            handler.state.purge()
            for open in handler.requests { take(open.request.key)?.end(.failed(.handlerRemoved)) }
        }
        answers.purge(pattern)
    }

    /// - Parameter old: all open requests of the handler; nil if unknown.
    /// - Returns: false if the removal is refused, because too many wait for a connection.
    private func sendRemoval(_ removal: HandlerPattern, _ answer: Answer<Int>?, _ old: [RequestKey]? = nil) -> Bool {
        guard connection?.remove(removal, old) == true else { return false }
        answers.addRemoval(removal, answer)
        return true
    }

    private func submit(_ fetch: Fetch, _ answer: Answer<Void>) {
        if let absenceError { return answer.complete(.failure(absenceError)) }
        let key = RequestKey(fetch)
        guard answers.addSubmission(key, answer) else { return answer.complete(.failure(.idInUse)) }
        do throws(ClientError) {
            try connection?.fetch(fetch)
        } catch {
            answers.messageRefused(key, BusError(error))
        }
    }

    private func retry(_ key: RequestKey, _ answer: Answer<Void>) {
        if let absenceError { return answer.complete(.failure(absenceError)) }
        guard answers.addRetry(key, answer) else { return answer.complete(.failure(.idInUse)) }
        connection?.retry(key)
    }

    private func watch(_ state: WatchState, _ continuation: CheckedContinuation<Void, any Error>) {
        if let failure = state.failure ?? absenceError { return continuation.resume(throwing: failure) }
        guard !endpoints.isEmpty else { return continuation.resume(throwing: BusError.closed) }
        do {
            watches[ObjectIdentifier(state)] = try WatchConnection(
                state, endpoints, settings.bodies, network, loop, commands, continuation)
        } catch {
            continuation.resume(throwing: BusError(error))
        }
    }

    /// Removes a request from the tables. The caller must end the returned receiver.
    private func take(_ key: RequestKey) -> Receiver? {
        guard let open = requests.removeValue(forKey: key) else { return nil }
        open.handler.remove(open)
        return open.receiver
    }

    // MARK: Events

    private func handle(_ event: ClientEvent) {
        switch event {
        case .terminal(let delivery, let body): ended(delivery, body)
        case .progress(let progress): progressed(progress)
        case .refused(let refusal):
            switch refusal.subject {
            case .hello: stop(BusError(refusal))
            case .fetch(let key):
                if !answers.messageRefused(key, BusError(refusal)) { take(key)?.end(.failed(BusError(refusal))) }
            case .retry(let key): _ = answers.messageRefused(key, BusError(refusal))
            case .query, .other: break
            }
        case .state(let state): stateChanged(state)
        case .answer: if isClosing { stop(.closed) }
        case .accepted(let key): if answers.accepted(key) { connection?.cancel(key) }
        case .removed(let pattern, let count): answers.handlersRemoved(pattern, count: count)
        case .cancelled, .changed: break
        }
    }

    private func ended(_ delivery: DeliveredTerminal, _ body: [UInt8]) {
        let key = delivery.key
        guard let open = requests.removeValue(forKey: key) else {
            // A request of another program under a shared name, a request removed meanwhile, or a refused submission.
            connection?.finish(delivery)
            if case .failed(let failure) = delivery.terminal.outcome {
                answers.messageRefused(key, BusError(failure, page: nil))
            }
            return
        }
        let ending: RequestEnding
        switch DeliveredEnding(delivery, body) {
        case .response(let response): ending = .response(response)
        case .failed(let error): ending = .failed(error)
        case .isGone:
            if connection?.resubmit(delivery) == true {
                requests[key] = open
                return
            }
            ending = .failed(.bodyLost)
        }
        connection?.finish(delivery)
        open.handler.remove(open)
        open.receiver.end(ending)
    }

    private func progressed(_ reported: Progress) {
        guard case .download(let state)? = requests[RequestKey(reported.handler, reported.request)]?.receiver else {
            return
        }
        var file: DeliveredFile?
        if let path = reported.file, state.current.value.needsFile(of: reported) {
            file = try? DeliveredFile(path, length: nil)
        }
        state.change { $0.progressed(reported, file) }
    }

    private func stateChanged(_ state: ClientState) {
        switch state {
        case .connected:
            isConnected = true
            unsentRemovals = []
            if let patienceTimer { loop.cancelTimer(patienceTimer) }
            patienceTimer = nil
            absenceError = nil
            greeting?.resume()
            greeting = nil
        case .disconnected:
            isConnected = false
            if isClosing { stop(.closed) }
            if let failure = connection?.failure { stop(BusError(failure)) }
            beginToWait()
        case .draining: break
        case .incompatible:
            stop(
                BusError(
                    .version,
                    "The broker supports another protocol version: restart it from the release of this program."))
        }
    }

    private func beginToWait() {
        guard let patience = settings.patience, patienceTimer == nil, absenceError == nil else { return }
        patienceTimer = loop.setTimer(after: patience) { [unowned self] in connectFailed() }
    }

    /// Fails all waiting tasks after `patience` without a broker. The loop continues to reconnect and serves later
    /// requests.
    private func connectFailed() {
        patienceTimer = nil
        let error =
            folder.map { BusError.noBroker(in: $0) }
            ?? connection?.faultText.map { BusError(.noBroker, BusError.sentence($0), isRetryable: true) }
            ?? BusError(.noBroker, "The private broker did not start in time: check that `earshot serve` works.")
        guard greeting == nil else { return stop(error) }
        absenceError = error
        for key in requests.keys.map({ $0 }) {
            take(key)?.end(.failed(error))
            connection?.cancel(key)
        }
        for watch in watches.values { watch.end(error) }
        watches = [:]
        for key in answers.fail(error) { connection?.cancel(key) }
    }
}
