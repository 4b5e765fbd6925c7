internal import EarshotLoop
internal import EarshotWire

/// The thread of a bus: carries out what tasks want over a ``ClientConnection``, and tells them what came of it.
///
/// It alone ends receivers, each once: whoever takes one out of `requests` ends it.
final class BusLoop {
    /// How long a broker may take to hear what was said before the end.
    private static let farewell = Duration.seconds(1)

    private let loop: EventLoop
    private let commands: Mailbox<BusCommand>
    /// Room for what tasks want; empty between two passes.
    private var taken: [BusCommand] = []
    private let settings: BusSettings
    /// Who waits for the first connection.
    private var greeting: CheckedContinuation<Void, any Error>?
    private var folder: RuntimeFolder?
    private var broker: PrivateBroker?
    private var connection: ClientConnection?
    private var handlers: [UInt64: OpenHandler] = [:]
    private var names: [HandlerID: OpenName] = [:]
    /// Names that went while there was no broker: one removal says it for all handlers of a name.
    private var unsaidRemovals: Set<HandlerID> = []
    private var requests: [RequestKey: OpenReceiver] = [:]
    private var watches: [ObjectIdentifier: WatchConnection] = [:]
    private var answers = OpenAnswers()
    private var patienceTimer: TimerID?
    private var isConnected = false
    /// Whether the end was asked for, and nothing but what was said before is waited for.
    private var isClosing = false
    /// Set while there has been no broker for longer than is waited for.
    private var absence: BusError?
    private var failure = BusError.closed

    /// Runs a bus to its end on the calling thread. The greeting is resumed when it is connected, or failed.
    static func run(
        _ settings: BusSettings, _ commands: Mailbox<BusCommand>, _ greeting: CheckedContinuation<Void, any Error>
    ) {
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
                commands.heardWake()
            }
            // Before the connection's hook, so that what is wanted is said in the same pass.
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
        case .running(let named):
            let folder = try RuntimeFolder(named: named)
            guard try folder.isServed() else { throw BusError.noBroker(in: folder) }
            try connect(folder)
        case .runningElsePrivate(let named, let options):
            let folder = try RuntimeFolder(named: named)
            if try folder.isServed() { try connect(folder) } else { try start(options) }
        case .privateBroker(let options): try start(options)
        }
    }

    private func start(_ options: PrivateBrokerOptions) throws {
        guard let program = options.program ?? ProgramPath.find("earshot") else {
            throw BusError(.noBroker, "No program `earshot` is in the folders of PATH to start a private broker with.")
        }
        do {
            broker = try PrivateBroker.start(
                mostWorkers: options.mostWorkers, cacheFolder: options.cacheFolder, loop: loop,
                launch: { (start) throws(SystemError) in
                    try ChildProcess.spawn(program, start.arguments, inheriting: [start.readyDescriptor])
                },
                onEvent: { [unowned self] event in changed(event) })
        } catch {
            throw BusError(.noBroker, "A private broker cannot be started with \(program): \(error).")
        }
    }

    private func changed(_ event: PrivateBroker.Event) {
        switch event {
        case .ready:
            guard let broker else { return }
            do { try connect(broker.folder) } catch { stop(BusError(error)) }
        case .ended: stop(BusError(.noBroker, "The private broker ended.", isRetryable: true))
        }
    }

    private func connect(_ folder: RuntimeFolder) throws {
        self.folder = folder
        connection = try ClientConnection(
            endpoint: folder.busEndpoint, client: "swift", lease: settings.lease, loop: loop
        ) { [unowned self] event in happened(event) }
        // After the connection's hook: tasks that it has resumed want the next thing by now.
        _ = loop.addHook { [unowned self] in rest() }
    }

    private func rest() -> EventLoop.Rest { commands.mayRest() ? .untilEvent : .none }

    /// Ends it after this pass.
    private func stop(_ error: BusError) {
        failure = error
        loop.stop()
    }

    /// Ends it once the broker has dealt with all that was said: an acknowledgement that is under way would be lost
    /// with the socket.
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
        broker?.end()
    }

    /// Tells all who wait.
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
        commands.takeSome(into: &taken)
        for command in taken { carryOut(command) }
        // They hold who waits.
        taken.removeAll(keepingCapacity: true)
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
            ask(fetch, request, receiver, replaces: replaces)
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
        case .withdraw(let key, let answer): if answers.withdraw(key, answer) { connection?.cancel(key) }
        case .watch(let state, let continuation): watch(state, continuation)
        case .resume(let state): watches[ObjectIdentifier(state)]?.resume()
        case .acknowledge(let state, let delivery, let answer):
            if let watch = watches[ObjectIdentifier(state)] {
                watch.acknowledge(delivery, answer)
            } else {
                answer.tell(.failure(state.failure as? BusError ?? .unacknowledged))
            }
        case .endWatch(let state): watches.removeValue(forKey: ObjectIdentifier(state))?.end(CancellationError())
        case .count(let continuation):
            let census = BusCensus(
                handlers: handlers.count, names: names.count, requests: requests.count, watches: watches.count,
                isApart: !isConnected)
            continuation.resume(returning: census)
        case .close: close()
        }
    }

    private func ask(_ fetch: Shared<Fetch>, _ request: Request, _ receiver: Receiver, replaces: Bool) {
        guard let handler = handlers[request.handler.number] else { return receiver.end(.failed(.removed)) }
        // REPLACE purges a name, CANCEL a request: the other handlers of this name keep theirs.
        let replacesName = replaces && handler.name.handlers == 1
        let refusal = refusal(request)
        let old = replaces ? handler.requests.map(\.request.key) : []
        if refusal == nil { connection?.fetch(replacesName ? Self.replacing(fetch.value) : fetch, inPlaceOf: old) }
        // Also by one that was cancelled meanwhile: they do not count since it was made.
        for key in old {
            take(key)?.end(.failed(.replaced))
            if refusal != nil || !replacesName { connection?.cancel(key) }
        }
        if let refusal { return receiver.end(refusal) }
        requests[request.key] = handler.add(request, receiver)
        handler.name.wasUsed = true
    }

    /// The same in the place of all that its handler wanted.
    private static func replacing(_ fetch: Fetch) -> Shared<Fetch> {
        var fetch = fetch
        fetch.options.replacesHandler = true
        return Shared(fetch)
    }

    /// Why it is not asked for.
    private func refusal(_ request: Request) -> Ending? {
        request.renew()
        if let obstacle = request.obstacle { return (obstacle as? BusError).map { .failed($0) } ?? .cancelled }
        return absence.map { .failed($0) }
    }

    private func remove(_ number: UInt64) {
        guard let handler = handlers.removeValue(forKey: number) else { return }
        handler.name.handlers -= 1
        let isLast = handler.name.handlers == 0
        // While there is no broker that knows a name of this bus alone, removals of such would pile up without end.
        let purges = isLast && (isConnected || settings.lease > .zero || handler.state.isNamed)
        let old = handler.requests.map(\.request.key)
        for key in old {
            take(key)?.end(.failed(.removed))
            if !purges { connection?.cancel(key) }
        }
        if isLast { names[handler.state.name] = nil }
        // Of a name that others know they may have asked for something.
        guard purges, handler.name.wasUsed || handler.state.isNamed else { return }
        if isConnected || unsaidRemovals.insert(handler.state.name).inserted {
            say(.handler(handler.state.name), nil, old)
        } else {
            for key in old { connection?.cancel(key) }
        }
    }

    private func purge(_ pattern: HandlerPattern, _ answer: Answer<Int>) {
        if let absence { return answer.tell(.failure(absence)) }
        for handler in handlers.values where pattern.matches(handler.state.name) {
            // A response that is on its way to an actor is not wanted either.
            handler.state.purge()
            for open in handler.requests { take(open.request.key)?.end(.failed(.removed)) }
        }
        answers.purge(pattern)
        say(pattern, answer)
    }

    /// - Parameter old: all that is wanted of it, if that is known.
    private func say(_ removal: HandlerPattern, _ answer: Answer<Int>?, _ old: [RequestKey]? = nil) {
        answers.removing(removal, answer)
        connection?.remove(removal, old)
    }

    private func submit(_ fetch: Fetch, _ answer: Answer<Void>) {
        if let absence { return answer.tell(.failure(absence)) }
        let key = RequestKey(fetch)
        guard answers.submitting(key, answer) else { return answer.tell(.failure(.idInUse)) }
        do throws(ClientError) {
            try connection?.fetch(fetch)
        } catch {
            answers.refused(key, BusError(error))
        }
    }

    private func watch(_ state: WatchState, _ continuation: CheckedContinuation<Void, any Error>) {
        if let failure = state.failure ?? absence { return continuation.resume(throwing: failure) }
        guard let folder else { return continuation.resume(throwing: BusError.closed) }
        do {
            watches[ObjectIdentifier(state)] = try WatchConnection(
                state, folder.busEndpoint, loop, commands, continuation)
        } catch {
            continuation.resume(throwing: BusError(error))
        }
    }

    /// Takes a request out of the tables: its receiver is the caller's to end.
    private func take(_ key: RequestKey) -> Receiver? {
        guard let open = requests.removeValue(forKey: key) else { return nil }
        open.handler.remove(open)
        return open.receiver
    }

    // MARK: Events

    private func happened(_ event: ClientEvent) {
        switch event {
        case .terminal(let delivery, let body): ended(delivery, body)
        case .progress(let progress): progressed(progress)
        case .refused(let reply):
            guard let handler = reply.handler, let request = reply.request else { return }
            // Other messages about a request may be late: it has ended, and its end tells.
            guard reply.verb == nil || reply.verb == "FETCH" else { return }
            let key = RequestKey(handler, request)
            if answers.refused(key, BusError(reply)) { return }
            take(key)?.end(.failed(BusError(reply)))
        case .state(let state): stateChanged(state)
        case .answer: if isClosing { stop(.closed) }
        case .accepted(let key): if answers.accepted(key) { connection?.cancel(key) }
        case .removed(let pattern, let count): answers.removed(pattern, count: count)
        case .cancelled, .changed: break
        }
    }

    private func ended(_ delivery: Delivery, _ body: [UInt8]) {
        let key = delivery.key
        guard let open = requests.removeValue(forKey: key) else {
            // What others asked for under a name of ours, what was wanted until now, or a submission that is refused.
            connection?.finish(delivery)
            if case .failed(let failure) = delivery.terminal.outcome {
                answers.refused(key, BusError(failure, page: nil))
            }
            return
        }
        let ending: Ending
        switch DeliveredEnding(delivery, body) {
        case .response(let response): ending = .response(response)
        case .failed(let error): ending = .failed(error)
        case .isGone:
            if connection?.askAgain(delivery) == true {
                requests[key] = open
                return
            }
            ending = .failed(.bodyLost)
        }
        connection?.finish(delivery)
        open.handler.remove(open)
        open.receiver.end(ending)
    }

    private func progressed(_ told: Progress) {
        guard case .download(let state)? = requests[RequestKey(told.handler, told.request)]?.receiver else { return }
        var file: SpoolFile?
        if let path = told.file, state.current.value.needsFile(of: told) { file = try? SpoolFile(path, length: nil) }
        state.change { $0.progressed(told, file) }
    }

    private func stateChanged(_ state: ClientState) {
        switch state {
        case .connected:
            isConnected = true
            unsaidRemovals = []
            if let patienceTimer { loop.cancelTimer(patienceTimer) }
            patienceTimer = nil
            absence = nil
            greeting?.resume()
            greeting = nil
        case .apart:
            isConnected = false
            if isClosing { stop(.closed) }
            if let failure = connection?.failure { stop(BusError(failure)) }
            beginToWait()
        case .draining: break
        case .incompatible: stop(BusError(.version, "The broker speaks another version: restart it."))
        }
    }

    private func beginToWait() {
        guard let patience = settings.patience, patienceTimer == nil, absence == nil else { return }
        patienceTimer = loop.setTimer(after: patience) { [unowned self] in giveUp() }
    }

    /// Nobody came. What is awaited ends; what is asked for when a broker comes after all is carried out.
    private func giveUp() {
        patienceTimer = nil
        let error =
            folder.map { BusError.noBroker(in: $0) } ?? BusError(.noBroker, "The private broker does not start.")
        guard greeting == nil else { return stop(error) }
        absence = error
        for key in requests.keys.map({ $0 }) {
            take(key)?.end(.failed(error))
            connection?.cancel(key)
        }
        for watch in watches.values { watch.end(error) }
        watches = [:]
        for key in answers.fail(error) { connection?.cancel(key) }
    }
}
