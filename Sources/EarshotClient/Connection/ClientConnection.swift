internal import DequeModule
package import EarshotLoop
package import EarshotWire
internal import Glibc
internal import ZMTP
internal import ZeroMQ

/// Client of the bus on an event loop of its owner.
///
/// Requests outlive the connection. After a disconnection the client reconnects with exponential backoff of 10 to 100
/// ms, over a network of 50 ms to 2 s. It sends HELLO and repeats every open request. Each request ends in one terminal.
/// All calls and events happen on the loop's thread.
///
/// The broker drops the requests when this object closes or its process ends; with a lease and without ``close()``,
/// after the lease.
package final class ClientConnection {
    /// Maximum messages per pass, so that a fast broker cannot delay timers.
    private static let messagesPerPass = 256
    /// Maximum time for connection, handshake and WELCOME over a network.
    private static let greetingTime = Duration.seconds(15)
    /// Lease over a network, where a lost connection does not mean a dead client.
    static let networkLease = Duration.seconds(60)
    /// Number of READs without an answer over a network: 8 MiB are on their way, 200 MB/s over a round trip of 40 ms. With the
    /// usual number one lost packet stops the flow.
    private static let networkReads = 32
    /// Time for the end of running transfers at a bus that drains, before the client goes to another one.
    private static let drainTime = Duration.seconds(1)
    /// Maximum time to send BYE before the socket closes.
    private static let farewellMilliseconds: Int32 = 100
    /// Maximum frame size in bytes. The answer about a million requests has some hundred MiB.
    private static let frameBytes = 1 << 30
    /// Maximum messages in the stream that the kernel has not taken. Later ones wait in `outbox`.
    private static let unsentMessages = 1_000
    /// Errors of this process rather than of the broker: a later attempt cannot succeed.
    private static let obstacles: Set<Int32> = [EMFILE, ENFILE, ENOMEM, ENOBUFS, ENAMETOOLONG]

    private let loop: EventLoop
    private let onEvent: (ClientEvent) -> Void
    private var core: ClientCore
    private var endpoints: EndpointList
    /// libzmq's thread; nil before the first connection over a network.
    private var network: Network?
    /// Replaced with each connection, so that no bytes of the old one survive.
    private var link: ClientLink?
    /// Connections that read bodies beside `link`; nil without large bodies.
    private var bodyConnections: BodyConnections?
    private var outbox = Deque<(head: [UInt8], body: [UInt8]?)>()
    private var reports: Deque<ClientEvent> = []
    private var hook: EventLoop.HookID?
    /// Whether the hook runs, which flushes at its end.
    private var isInPass = false
    private var reconnectTimer: TimerID?
    private var greetingTimer: TimerID?
    private var drainTimer: TimerID?
    /// Files of bodies that the broker sends, by the core's numbers.
    private var files: [Int: ReceivedFile] = [:]
    /// Reasons why bodies could not be stored in their files: the `errno` values.
    private var storeFailures: [Int: Int32] = [:]
    /// Files without a use. They stay open until the events of the pass are over, because events name them.
    private var retired: [ReceivedFile] = []
    /// Folder of body files; nil until a broker has named it, and if the broker sends the bodies.
    package var spool: String? { core.spool }
    /// Whether the broker sends the bodies that it has in files; false before the first session.
    package var isPulling: Bool { core.isPulling }
    /// Whether a terminal has arrived whose body is still being read or taken. Answers of the broker can overtake it.
    package var isReadingBodies: Bool { core.pulls.delaysTerminals || !core.taking.isEmpty }
    /// Whether the consumer moves large files, so that this object asks the broker for them; see ``DeliveredTerminal/isOwn``.
    package var takesFiles = false { didSet { core.takesFiles = takesFiles } }
    /// Whether requests wait for the next broker, because the last one accepted none. O(requests).
    package var areRequestsHeld: Bool { core.areRequestsHeld }
    /// Preferred folder for the unnamed files of such bodies, so that they can be moved to their destination; nil for
    /// the folder of temporary files.
    package var bodyFolder: String?
    /// Keeper of the bodies that the broker sends; nil for unnamed files.
    package weak var bodyStore: (any BodyStore)? { didSet { core.pulls.reportsArrival = bodyStore != nil } }
    /// Whether reading is paused. The delivery window is the backpressure: the broker keeps further terminals.
    package var isPaused = false {
        didSet {
            link?.setReading(!isPaused)
            bodyConnections?.isPaused = isPaused
        }
    }
    /// Error that ended the connection for good; nil while it runs.
    package private(set) var failure: (any Error)?
    /// Sentences about the buses on a network that have no connection; nil before a failure.
    package var faultText: String? {
        let sentences = endpoints.reportedFaults.map { $1.sentence($0) }
        return sentences.isEmpty ? nil : sentences.joined(separator: "; ")
    }

    /// - Parameters:
    ///   - network: thread of libzmq; nil to start one if it is needed.
    ///   - principal: user whose handlers the names mean; nil for the own ones. Only for the administrator.
    ///   - hasUserRights: whether the session gives up the rights of the administrator.
    package init(
        _ endpoints: [BusEndpoint], sharing network: Network?, window: Int, lease: Duration?,
        finishesNone: Bool, keepsFailures: Bool = false, principal: PrincipalName? = nil,
        hasUserRights: Bool = false, bodies: BodyAccess, loop: EventLoop, onEvent: @escaping (ClientEvent) -> Void
    ) throws {
        guard !endpoints.isEmpty else {
            throw ClientError(.invalidRequest, "the list of buses is empty: give at least one address")
        }
        self.loop = loop
        self.endpoints = EndpointList(endpoints)
        self.network = network
        self.onEvent = onEvent
        var hello = Hello(window: window)
        let lease = lease ?? (endpoints.contains(where: \.isRemote) ? Self.networkLease : .zero)
        hello.leaseMilliseconds = Int(
            min(max(lease, .zero), .seconds(WireLimits.leaseSeconds)) / .milliseconds(1))
        hello.keepsFailures = keepsFailures
        hello.principal = principal
        hello.hasUserRights = hasUserRights
        let isRemote = endpoints.contains(where: \.isRemote)
        hello.isPulling = bodies == .pull || isRemote
        core = ClientCore(hello: hello, finishesNone: finishesNone)
        if isRemote { core.pulls.mostReads = Self.networkReads }
        try connect()
        hook = loop.addHook { [unowned self] in pass() }
    }

    deinit { close() }

    /// Closes the connection. The broker drops the requests; no event follows.
    package func close() {
        if let hook { loop.removeHook(hook) }
        for timer in [reconnectTimer, greetingTimer, drainTimer].compactMap(\.self) { loop.cancelTimer(timer) }
        hook = nil
        reconnectTimer = nil
        greetingTimer = nil
        drainTimer = nil
        reports = []
        sendFarewell()
        link = nil
        bodyConnections = nil
        // Waits until BYE is sent, unless other connections share the thread.
        network = nil
    }

    /// Ends the session with BYE, so that the broker drops the requests now and not with the lease.
    private func sendFarewell() {
        let farewell = core.endClient()
        carryOut(farewell)
        flush()
        if !farewell.isEmpty { link?.linger(milliseconds: Self.farewellMilliseconds) }
    }

    // MARK: Requests

    /// Requests a URL.
    ///
    /// The request ends with ``ClientEvent/terminal(_:body:)`` or ``ClientEvent/refused(_:)``. With `subscribes: false`
    /// the terminal goes to other subscribers of the handler. Then this client only gets ``ClientEvent/accepted(_:)``
    /// for a durable request, or the terminal that states its refusal.
    ///
    /// - Parameter fetch: the request.
    /// - Throws: `ClientError` if the request exceeds a limit of the protocol.
    package func fetch(_ fetch: Fetch) throws(ClientError) {
        try Self.check(fetch)
        self.fetch(Shared(fetch))
    }

    /// Requests a URL with a checked message.
    ///
    /// - Parameter old: open requests of the handler, if this one replaces them; nil searches all requests in
    ///   O(requests).
    func fetch(_ fetch: Shared<Fetch>, inPlaceOf old: [RequestKey]? = nil) {
        carryOut(core.fetch(fetch, inPlaceOf: old))
    }

    /// Cancels a request. ``ClientEvent/cancelled(_:wasOpen:)`` follows, also for an unknown request.
    ///
    /// - Parameter key: handler and ID of the request.
    package func cancel(_ key: RequestKey) { carryOut(core.cancel(key)) }

    /// Repeats a durable request that has failed and waits for a subscriber. ``ClientEvent/accepted(_:)`` follows once it is
    /// pending on disk, or ``ClientEvent/refused(_:)``, or a terminal that states the refusal.
    ///
    /// - Parameter key: handler and ID of the request.
    package func retry(_ key: RequestKey) { carryOut(core.retry(key)) }

    /// Removes a handler, or all handlers below a name. ``ClientEvent/removed(_:count:)`` follows.
    ///
    /// While disconnected, at most 10,000 removals wait for the next connection.
    ///
    /// - Parameter pattern: handler name, or a name that ends in `/`.
    /// - Returns: false if the removal is refused, because too many wait. Nothing is removed, and no event follows.
    @discardableResult
    package func remove(_ pattern: HandlerPattern) -> Bool { remove(pattern, nil) }

    /// Removes handlers whose open requests are known.
    ///
    /// - Parameter old: open requests of the handlers; nil searches all requests in O(requests).
    func remove(_ pattern: HandlerPattern, _ old: [RequestKey]?) -> Bool {
        guard let actions = core.remove(pattern, old) else { return false }
        carryOut(actions)
        return true
    }

    /// Subscribes to the terminals of a handler, or of all handlers below a name.
    ///
    /// - Parameter pattern: handler name, or a name that ends in `/`.
    package func subscribe(_ pattern: HandlerPattern) { carryOut(core.subscribe(pattern)) }

    /// Ends a subscription.
    ///
    /// - Parameter pattern: pattern of the subscription.
    package func unsubscribe(_ pattern: HandlerPattern) { carryOut(core.unsubscribe(pattern)) }

    /// Stores cookies in the jar of a handler's root, for its requests with `cookies: yes`. A
    /// later broker gets them too, until the handler is removed.
    ///
    /// - Parameters:
    ///   - fields: `Set-Cookie` fields, separated by LF. A jar evaluates at most 50 of them.
    ///   - url: URL of http or https whose server could have set the cookies.
    ///   - handler: handler of a subscription or of an open request.
    package func storeCookies(_ fields: [UInt8], from url: String, for handler: HandlerID) {
        carryOut(core.storeCookies(fields, from: url, for: handler))
    }

    /// Changes the priority of a queued request.
    ///
    /// - Parameters:
    ///   - key: handler and ID of the request.
    ///   - priority: the new class.
    package func setPriority(_ key: RequestKey, _ priority: PriorityClass) {
        carryOut(core.setPriority(key, priority))
    }

    /// Queries the state of the broker. ``ClientEvent/answer(_:json:)`` follows.
    ///
    /// - Parameters:
    ///   - query: subject of the query.
    ///   - page: part of the answer's table.
    package func query(_ query: Query, _ page: QueryPage = QueryPage()) { carryOut(core.query(query, page)) }

    /// Changes a setting of the broker. ``ClientEvent/changed(_:)`` follows, or ``ClientEvent/refused(_:)`` with the
    /// code `bad-setting` and the permitted values.
    ///
    /// - Parameter setting: name and value.
    package func set(_ setting: SettingWords) { carryOut(core.set(setting)) }

    /// Finishes a delivery, so that it can be acknowledged. The broker may then delete its file.
    ///
    /// - Parameter delivery: a delivery of this connection. Others have no effect.
    package func finish(_ delivery: DeliveredTerminal) {
        if !isInPass { loop.passAgain() }
        core.finish(delivery.id)
    }

    /// Returns whether a delivery belongs to the current session. Deliveries of lost sessions cannot be acknowledged.
    func isDue(_ delivery: DeliveredTerminal) -> Bool { core.isDue(delivery.id) }

    /// Acknowledges finished deliveries now instead of at the end of the pass.
    func acknowledge() { carryOut(core.passEnded()) }

    /// Repeats the request of a delivery whose file cannot be read, as after a restart of the broker, which empties the
    /// spool.
    ///
    /// - Parameter delivery: delivery with an unreadable file.
    /// - Returns: false if the request is not repeated: it lost its file too often, is not idempotent, or belongs to
    ///   another client. The delivery is then its end.
    package func resubmit(_ delivery: DeliveredTerminal) -> Bool {
        guard let actions = core.resubmit(delivery) else { return false }
        carryOut(actions)
        return true
    }

    // MARK: The pass

    private func pass() -> EventLoop.Rest {
        isInPass = true
        defer { isInPass = false }
        if case .remote(let remote)? = link, remote.advance() { carryOut(core.linkOpened()) }
        let areAllTaken = takeMessages()
        let isAll = takeBodies() && areAllTaken
        defer { if !retired.isEmpty { retired = [] } }
        // A paused connection whose peer has hung up is not read to its end.
        if let link, link.isEnded || link.isHungUp && isPaused { disconnect() }
        while let event = reports.popFirst() { onEvent(event) }
        chooseBodyConnections()
        carryOut(core.passEnded())
        flush()
        var needsPass = link?.needsPass(hasUnsent: !outbox.isEmpty) ?? false
        if bodyConnections?.flush() == true { needsPass = true }
        return isAll && reports.isEmpty && !needsPass ? .untilEvent : .none
    }

    /// Processes up to `messagesPerPass` messages of the connections that read bodies.
    ///
    /// - Returns: whether no message is left.
    private func takeBodies() -> Bool {
        guard let bodyConnections else { return true }
        for _ in 0..<Self.messagesPerPass {
            guard let (actions, body) = bodyConnections.next(&core) else { return true }
            carryOut(actions, body: body)
        }
        return false
    }

    /// Opens connections for large bodies over a network, and closes them when they are not used.
    private func chooseBodyConnections() {
        if let bodyConnections {
            bodyConnections.note(hasBodies: core.pulls.delaysTerminals)
            guard bodyConnections.token != core.token || bodyConnections.isIdle else { return }
            self.bodyConnections = nil
            core.pulls.closeOthers()
        }
        guard let token = core.token, let network,
            case .remote(let address, let key, let serverKey) = endpoints.currentEndpoint.kind,
            core.phase == .ready, core.pulls.wantsConnections
        else { return }
        bodyConnections = BodyConnections(token: token, loop: loop) {
            try CurveLink(address, key, serverKey: serverKey, usesIPv6: endpoints.usesIPv6, network, loop: loop)
        }
        bodyConnections?.isPaused = isPaused
    }

    /// Processes up to `messagesPerPass` messages.
    ///
    /// - Returns: whether no message is left, so that the loop may wait for the next event.
    private func takeMessages() -> Bool {
        for _ in 0..<Self.messagesPerPass {
            guard !isPaused, let message = link?.next() else { return true }
            do throws(WireError) {
                let body = message.body ?? []
                carryOut(core.received(try NumberedAnswer(head: message.head), count: body.count), body: body)
            } catch {
                // Verbs of later versions are ignored.
                if error.code == .unknownVerb { continue }
                carryOut(core.received(malformed: BrokerFragment(head: message.head), error))
            }
        }
        return false
    }

    private func carryOut(_ actions: consuming [ClientAction], body: [UInt8] = []) {
        if !isInPass { loop.passAgain() }
        actions.reverseInPlace()
        while let action = actions.popLast() {
            switch action {
            case .send(let message): outbox.append((core.numbered(message).encoded(), message.body))
            case .read(let read, let connection): bodyConnections?.send(read, over: connection)
            case .deliver(let delivery): reports.append(.terminal(delivery, body: body))
            case .report(let report): reports.append(event(report, body))
            case .reconnect: disconnect()
            case .store(let file, let offset, let count): store(body, count, in: file, at: offset)
            case .reportGrowth(let progress, let file):
                var progress = progress
                progress.file = storeFailures[file] == nil ? files[file]?.path : nil
                reports.append(.progress(progress))
            case .deliverReceived(let delivery, let number):
                let file = files.removeValue(forKey: number) ?? ReceivedFile(in: bodyFolder)
                let failure = storeFailures.removeValue(forKey: number)
                reports.append(.terminal(delivery.with(file, failure), body: []))
            case .beginBody(let delivery, let number):
                if let bodyStore { files[number] = ReceivedFile(bodyStore.makeFile(for: delivery)) }
            case .reportArrival(let delivery, let bytes, let number):
                if storeFailures[number] == nil { bodyStore?.received(bytes, of: delivery) }
            case .discard(let number):
                if let file = files.removeValue(forKey: number) { retired.append(file) }
                storeFailures[number] = nil
            }
        }
    }

    private func store(_ bytes: [UInt8], _ count: Int, in number: Int, at offset: Int) {
        let file = files[number] ?? ReceivedFile(in: bodyFolder)
        files[number] = file
        let failure = file.write(bytes, count: count, at: offset)
        if failure != 0 { storeFailures[number] = failure }
    }

    private func event(_ report: ClientReport, _ body: [UInt8]) -> ClientEvent {
        switch report {
        case .accepted(let key): return .accepted(key)
        case .progress(let progress): return .progress(progress)
        case .cancelled(let key, let wasOpen): return .cancelled(key, wasOpen: wasOpen)
        case .removed(let pattern, let count): return .removed(pattern, count: count)
        case .answered(let query): return .answer(query, json: body)
        case .changed(let setting): return .changed(setting)
        case .refused(let reply): return .refused(reply)
        case .state(let state):
            switch state {
            case .connected: helloAnswered()
            case .draining: leaveSoon()
            case .disconnected, .incompatible: break
            }
            return .state(state)
        }
    }

    /// Sends queued messages as far as the kernel takes them. The loop wakes when it takes more.
    private func flush() {
        guard let link else { return }
        repeat {
            while let (head, body) = outbox.first, link.send(ZMTP.Message(head: head, body: body)) {
                outbox.removeFirst()
            }
            link.flush()
        } while link.isOpen && link.isIdle && !outbox.isEmpty
    }

    // MARK: Connecting

    private func connect() throws {
        switch endpoints.currentEndpoint.kind {
        case .local(let path):
            do throws(SystemError) {
                let descriptor = try UnixSocket.connect(to: path, of: PrivateFolder.listeners(at: path))
                let stream = try MessageStream(
                    descriptor, as: .dealer, frameBytes: Self.frameBytes, mostMessages: Self.unsentMessages, loop: loop
                ) {}
                link = .local(stream)
            } catch {
                if Self.obstacles.contains(error.number) { throw error }
                return connectLater(nil)
            }
            carryOut(core.linkOpened())
        case .remote(let address, let key, let serverKey):
            do {
                let network = try network ?? Network()
                self.network = network
                link = .remote(
                    try CurveLink(
                        address, key, serverKey: serverKey, usesIPv6: endpoints.usesIPv6, network, loop: loop))
            } catch let error as ZeroMQError {
                throw ClientError(.library, "cannot connect to \(address): \(error)")
            }
            // HELLO follows the handshake.
            greetingTimer = loop.setTimer(after: Self.greetingTime) { [unowned self] in
                greetingTimer = nil
                disconnect(link?.isOpen == true ? .silent : .unreachable)
            }
        }
        link?.setReading(!isPaused)
    }

    /// Records that the broker has answered HELLO.
    private func helloAnswered() {
        endpoints.connected()
        if let greetingTimer { loop.cancelTimer(greetingTimer) }
        greetingTimer = nil
    }

    /// Leaves a bus that drains for another one, once all requests may be made again there.
    private func leaveSoon() {
        guard core.isDraining, endpoints.hasOthers, drainTimer == nil else { return }
        drainTimer = loop.setTimer(after: Self.drainTime) { [unowned self] in
            drainTimer = nil
            guard core.mayMove else { return leaveSoon() }
            sendFarewell()
            disconnect()
        }
    }

    /// Closes the connection, drops its queued messages and schedules a reconnection.
    ///
    /// - Parameter ending: reason; nil for that of the connection itself.
    private func disconnect(_ ending: LinkEnding? = nil) {
        guard let old = link else { return }
        link = nil
        bodyConnections = nil
        if let greetingTimer { loop.cancelTimer(greetingTimer) }
        greetingTimer = nil
        outbox.removeAll()
        if core.mayMove { endpoints.busDrained() }
        carryOut(core.linkLost())
        connectLater(ending ?? old.ending ?? (endpoints.currentEndpoint.isRemote ? .lost : nil))
    }

    private func connectLater(_ ending: LinkEnding?) {
        let now = Int(loop.now.nanoseconds / 1_000_000)
        switch endpoints.failed(ending, at: now, random: .random(in: 0 ... .max)) {
        case .fail(let endpoint, let ending): fail(ClientError(.refused, ending.sentence(endpoint)))
        case .connect(let pause):
            if endpoints.isAway {
                endpoints.sessionEnded()
                carryOut(core.busChanged())
            }
            reconnectTimer = loop.setTimer(after: .nanoseconds(pause)) { [unowned self] in
                do { try connect() } catch { fail(error) }
            }
        }
    }

    private func fail(_ error: any Error) {
        failure = error
        close()
        onEvent(.state(.disconnected))
    }
}
