internal import DequeModule
package import EarshotLoop
package import EarshotWire
internal import Glibc
internal import ZMTP
internal import ZeroMQ

/// Client of the bus on an event loop of its owner.
///
/// Requests outlive the connection. After a disconnection the client reconnects with exponential backoff of 10 to 100
/// ms, over a network of 50 ms to 2 s. It sends HELLO and repeats every open request. Each request ends in one
/// terminal. All calls and events happen on the loop's thread.
///
/// The broker drops the requests when this object closes or its process ends; with a lease and without ``close()``,
/// after the lease.
package final class ClientConnection {
    /// Maximum messages per pass, so that a fast broker cannot delay timers.
    private static let messagesPerPass = 256
    /// Maximum time for connection, handshake and WELCOME over a network.
    private static let greetingTimeout = Duration.seconds(15)
    /// Lease over a network, where a lost connection does not mean a dead client.
    static let networkLease = Duration.seconds(60)
    /// Number of READs without an answer over a network: 8 MiB are on their way, 200 MB/s over a round trip of 40 ms.
    /// With the usual number one lost packet stops the flow.
    private static let maximumNetworkReads = 32
    /// Time for the end of running transfers at a bus that drains, before the client goes to another one.
    private static let drainTimeout = Duration.seconds(1)
    /// Maximum time to send BYE before the socket closes.
    private static let byeTimeoutMilliseconds: Int32 = 100
    /// Maximum frame size in bytes. The answer about a million requests has some hundred MiB.
    private static let maximumFrameBytes = 1 << 30
    /// Maximum messages in the stream that the kernel has not taken. Later ones wait in `outbox`.
    private static let maximumUnsentMessages = 1_000
    /// Errors of this process rather than of the broker: a later attempt cannot succeed.
    private static let unrecoverableErrnos: Set<Int32> = [EMFILE, ENFILE, ENOMEM, ENOBUFS, ENAMETOOLONG]

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
    private var pendingEvents: Deque<ClientEvent> = []
    private var passHook: EventLoop.HookID?
    /// Whether the hook runs, which flushes at its end.
    private var isInPass = false
    private var reconnectTimer: TimerID?
    private var greetingTimer: TimerID?
    private var drainTimer: TimerID?
    /// Files of bodies that the broker sends, by the core's numbers.
    private var receivedFiles: [Int: ReceivedFile] = [:]
    /// Reasons why bodies could not be stored in their files: the `errno` values.
    private var storeFailures: [Int: Int32] = [:]
    /// Files without a use. They stay open until the events of the pass are over, because events name them.
    private var retiredFiles: [ReceivedFile] = []
    /// Folder of body files; nil until a broker has named it, and if the broker sends the bodies.
    package var spool: String? { core.spool }
    /// Whether the broker sends the bodies that it has in files; false before the first session.
    package var isPulling: Bool { core.isPulling }
    /// Whether a terminal has arrived whose body is still being read or taken. Answers of the broker can overtake it.
    package var isReadingBodies: Bool { core.pulls.delaysTerminals || !core.terminalsAwaitingTaken.isEmpty }
    /// Whether the consumer moves large files, so that this object requests their ownership; see
    /// ``DeliveredTerminal/ownsFile``.
    package var takesFiles = false { didSet { core.takesFiles = takesFiles } }
    /// Whether requests wait for the next broker, because the last one accepted none. O(requests).
    package var areRequestsHeld: Bool { core.areRequestsHeld }
    /// Preferred folder for the unnamed files of bodies that the broker sends, so that they can be moved to their
    /// destination; nil for the folder of temporary files.
    package var bodyFolder: String?
    /// Consumer that stores the bodies that the broker sends; nil for unnamed files.
    package weak var bodyStore: (any BodyStore)? { didSet { core.pulls.reportsBodyArrival = bodyStore != nil } }
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
    package var connectionFaultText: String? {
        let sentences = endpoints.reportedFaults.map { $1.userMessage(for: $0) }
        return sentences.isEmpty ? nil : sentences.joined(separator: "; ")
    }

    /// - Parameters:
    ///   - network: thread of libzmq; nil to start one if it is needed.
    ///   - principal: user whose handlers the names mean; nil for the client's own user. Only for the administrator.
    ///   - hasUserRights: whether the session drops the rights of the administrator.
    package init(
        _ endpoints: [BusEndpoint], sharing network: Network?, window: Int, lease: Duration?,
        consumerFinishesDeliveries: Bool, keepsFailures: Bool = false, principal: PrincipalName? = nil,
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
        hello.leaseMilliseconds = Int(min(max(lease, .zero), .seconds(WireLimits.leaseSeconds)) / .milliseconds(1))
        hello.keepsFailures = keepsFailures
        hello.principal = principal
        hello.hasUserRights = hasUserRights
        let isRemote = endpoints.contains(where: \.isRemote)
        hello.pullsBodies = bodies == .pull || isRemote
        core = ClientCore(hello: hello, consumerFinishesDeliveries: consumerFinishesDeliveries)
        if isRemote { core.pulls.maximumReads = Self.maximumNetworkReads }
        try connectToCurrentEndpoint()
        passHook = loop.addHook { [unowned self] in runPass() }
    }

    deinit { close() }

    /// Closes the connection. The broker drops the requests; no event follows.
    package func close() {
        if let passHook { loop.removeHook(passHook) }
        for timer in [reconnectTimer, greetingTimer, drainTimer].compactMap(\.self) { loop.cancelTimer(timer) }
        passHook = nil
        reconnectTimer = nil
        greetingTimer = nil
        drainTimer = nil
        pendingEvents = []
        sendBye()
        link = nil
        bodyConnections = nil
        // Waits until BYE is sent, unless other connections share the thread.
        network = nil
    }

    /// Ends the session with BYE, so that the broker drops the requests now and not with the lease.
    private func sendBye() {
        let byeActions = core.endClient()
        performActions(byeActions)
        flush()
        if !byeActions.isEmpty { link?.linger(milliseconds: Self.byeTimeoutMilliseconds) }
    }

    // MARK: Requests

    /// Requests a URL.
    ///
    /// The request ends with ``ClientEvent/terminal(_:body:)`` or ``ClientEvent/messageRefused(_:)``. With
    /// `subscribes: false` the terminal goes to other subscribers of the handler. Then this client only gets
    /// ``ClientEvent/accepted(_:)`` for a durable request, or the terminal that states its refusal.
    ///
    /// - Parameter fetch: the request.
    /// - Throws: `ClientError` if the request exceeds a limit of the protocol.
    package func fetch(_ fetch: Fetch) throws(ClientError) {
        try Self.checkLimits(of: fetch)
        self.fetch(Shared(fetch))
    }

    /// Requests a URL with a checked message.
    ///
    /// - Parameter old: open requests of the handler, if this one replaces them; nil searches all requests in
    ///   O(requests).
    func fetch(_ fetch: Shared<Fetch>, inPlaceOf old: [RequestKey]? = nil) {
        performActions(core.fetch(fetch, inPlaceOf: old))
    }

    /// Cancels a request. ``ClientEvent/cancelled(_:wasOpen:)`` follows, also for an unknown request.
    ///
    /// - Parameter key: handler and ID of the request.
    package func cancel(_ key: RequestKey) { performActions(core.cancel(key)) }

    /// Repeats a durable request that has failed and waits for a subscriber. ``ClientEvent/accepted(_:)`` follows once
    /// it is pending on disk, or ``ClientEvent/messageRefused(_:)``, or a terminal that states the refusal.
    ///
    /// - Parameter key: handler and ID of the request.
    package func retry(_ key: RequestKey) { performActions(core.retry(key)) }

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
        performActions(actions)
        return true
    }

    /// Subscribes to the terminals of a handler, or of all handlers below a name.
    ///
    /// - Parameter pattern: handler name, or a name that ends in `/`.
    package func subscribe(_ pattern: HandlerPattern) { performActions(core.subscribe(pattern)) }

    /// Ends a subscription.
    ///
    /// - Parameter pattern: pattern of the subscription.
    package func unsubscribe(_ pattern: HandlerPattern) { performActions(core.unsubscribe(pattern)) }

    /// Stores cookies in the jar of a handler's root, for its requests with `cookies: yes`. A later broker gets them
    /// too, until the handler is removed.
    ///
    /// - Parameters:
    ///   - fields: `Set-Cookie` fields, separated by LF. A jar evaluates at most 50 of them.
    ///   - url: URL of http or https whose server could have set the cookies.
    ///   - handler: handler of a subscription or of an open request.
    package func storeCookies(_ fields: [UInt8], from url: String, for handler: HandlerID) {
        performActions(core.storeCookies(fields, from: url, for: handler))
    }

    /// Changes the priority of a queued request.
    ///
    /// - Parameters:
    ///   - key: handler and ID of the request.
    ///   - priority: the new class.
    package func setPriority(_ key: RequestKey, _ priority: PriorityClass) {
        performActions(core.setPriority(key, priority))
    }

    /// Queries the state of the broker. ``ClientEvent/queryAnswer(_:json:)`` follows.
    ///
    /// - Parameters:
    ///   - query: subject of the query.
    ///   - page: part of the answer's table.
    package func query(_ query: Query, _ page: QueryPage = QueryPage()) { performActions(core.query(query, page)) }

    /// Changes a setting of the broker. ``ClientEvent/settingChanged(_:)`` follows, or
    /// ``ClientEvent/messageRefused(_:)`` with the code `bad-setting` and the permitted values.
    ///
    /// - Parameter setting: name and value.
    package func changeSetting(_ setting: SettingWords) { performActions(core.changeSetting(setting)) }

    /// Finishes a delivery, so that it can be acknowledged. The broker may then delete its file.
    ///
    /// - Parameter delivery: a delivery of this connection. Others have no effect.
    package func finishDelivery(_ delivery: DeliveredTerminal) {
        if !isInPass { loop.requestAnotherPass() }
        core.finishDelivery(delivery.id)
    }

    /// Returns whether a delivery belongs to the current session. Deliveries of lost sessions cannot be acknowledged.
    func isOfCurrentSession(_ delivery: DeliveredTerminal) -> Bool { core.isOfCurrentSession(delivery.id) }

    /// Acknowledges finished deliveries now instead of at the end of the pass.
    func acknowledge() { performActions(core.passEnded()) }

    /// Repeats the request of a delivery whose file cannot be read, as after a restart of the broker, which empties the
    /// spool.
    ///
    /// - Parameter delivery: delivery with an unreadable file.
    /// - Returns: false if the request is not repeated: it lost its file too often, is not idempotent, or belongs to
    ///   another client. The delivery is then its end.
    package func resubmitRequest(of delivery: DeliveredTerminal) -> Bool {
        guard let actions = core.resubmitRequest(of: delivery) else { return false }
        performActions(actions)
        return true
    }

    // MARK: The pass

    private func runPass() -> EventLoop.SleepLimit {
        isInPass = true
        defer { isInPass = false }
        if case .remote(let remote)? = link, remote.readConnectionEvents() { performActions(core.linkOpened()) }
        let areMessagesRead = processMessages()
        let isEverythingRead = processBodyMessages() && areMessagesRead
        defer { if !retiredFiles.isEmpty { retiredFiles = [] } }
        // A paused connection whose peer has hung up is not read to its end.
        if let link, link.isEnded || link.isHungUp && isPaused { disconnect() }
        while let event = pendingEvents.popFirst() { onEvent(event) }
        updateBodyConnections()
        performActions(core.passEnded())
        flush()
        var needsPass = link?.needsPass(hasUnsent: !outbox.isEmpty) ?? false
        if bodyConnections?.flush() == true { needsPass = true }
        return isEverythingRead && pendingEvents.isEmpty && !needsPass ? .untilEvent : .noSleep
    }

    /// Processes up to `messagesPerPass` messages of the connections that read bodies.
    ///
    /// - Returns: whether no message is left.
    private func processBodyMessages() -> Bool {
        guard let bodyConnections else { return true }
        for _ in 0..<Self.messagesPerPass {
            guard let (actions, body) = bodyConnections.handleNextEvent(&core) else { return true }
            performActions(actions, body: body)
        }
        return false
    }

    /// Opens connections for large bodies over a network, and closes them when they are not used.
    private func updateBodyConnections() {
        if let bodyConnections {
            bodyConnections.updateIdleTimer(hasBodies: core.pulls.delaysTerminals)
            guard bodyConnections.sessionToken != core.sessionToken || bodyConnections.isIdle else { return }
            self.bodyConnections = nil
            core.pulls.closeFurtherConnections()
        }
        guard let token = core.sessionToken, let network,
            case .remote(let address, let key, let serverKey) = endpoints.currentEndpoint.kind,
            core.phase == .ready, core.pulls.wantsMoreConnections
        else { return }
        bodyConnections = BodyConnections(token: token, loop: loop) {
            try CurveLink(address, key, serverKey: serverKey, usesIPv6: endpoints.usesIPv6, network, loop: loop)
        }
        bodyConnections?.isPaused = isPaused
    }

    /// Processes up to `messagesPerPass` messages.
    ///
    /// - Returns: whether no message is left, so that the loop may wait for the next event.
    private func processMessages() -> Bool {
        for _ in 0..<Self.messagesPerPass {
            guard !isPaused, let message = link?.nextMessage() else { return true }
            do throws(WireError) {
                let answer = try NumberedAnswer(head: message.head)
                let body = message.body ?? []
                performActions(core.messageReceived(answer, count: body.count), body: body)
            } catch {
                // Verbs of later versions are ignored.
                if error.code == .unknownVerb { continue }
                performActions(core.malformedMessageReceived(BrokerFragment(head: message.head), error))
            }
        }
        return false
    }

    private func performActions(_ actions: consuming [ClientAction], body: [UInt8] = []) {
        if !isInPass { loop.requestAnotherPass() }
        actions.reverseInPlace()
        while let action = actions.popLast() {
            switch action {
            case .send(let message): outbox.append((core.numbered(message).encoded(), message.body))
            case .sendRead(let read, let connection): bodyConnections?.send(read, over: connection)
            case .deliver(let delivery): pendingEvents.append(.terminal(delivery, body: body))
            case .report(let report): pendingEvents.append(event(for: report, body: body))
            case .reconnect: disconnect()
            case .store(let file, let offset, let count): storeBytes(body, count: count, inFile: file, at: offset)
            case .reportGrowth(let progress, let file):
                var progress = progress
                progress.filePath = storeFailures[file] == nil ? receivedFiles[file]?.path : nil
                pendingEvents.append(.progress(progress))
            case .deliverReceived(let delivery, let number):
                let file = receivedFiles.removeValue(forKey: number) ?? ReceivedFile(preferredFolder: bodyFolder)
                let failure = storeFailures.removeValue(forKey: number)
                pendingEvents.append(.terminal(delivery.withReceivedFile(file, storeFailure: failure), body: []))
            case .beginBody(let delivery, let number):
                if let bodyStore { receivedFiles[number] = ReceivedFile(storeFile: bodyStore.makeFile(for: delivery)) }
            case .reportArrival(let delivery, let bytes, let number):
                if storeFailures[number] == nil { bodyStore?.bodyBytesStored(bytes, of: delivery) }
            case .discard(let number):
                if let file = receivedFiles.removeValue(forKey: number) { retiredFiles.append(file) }
                storeFailures[number] = nil
            }
        }
    }

    private func storeBytes(_ bytes: [UInt8], count: Int, inFile number: Int, at offset: Int) {
        let file = receivedFiles[number] ?? ReceivedFile(preferredFolder: bodyFolder)
        receivedFiles[number] = file
        let failure = file.write(bytes, count: count, at: offset)
        if failure != 0 { storeFailures[number] = failure }
    }

    private func event(for report: ClientReport, body: [UInt8]) -> ClientEvent {
        switch report {
        case .accepted(let key): return .accepted(key)
        case .progress(let progress): return .progress(progress)
        case .cancelled(let key, let wasOpen): return .cancelled(key, wasOpen: wasOpen)
        case .removed(let pattern, let count): return .removed(pattern, count: count)
        case .queryAnswered(let query): return .queryAnswer(query, json: body)
        case .settingChanged(let setting): return .settingChanged(setting)
        case .messageRefused(let reply): return .messageRefused(reply)
        case .stateChanged(let state):
            switch state {
            case .connected: helloAnswered()
            case .draining: leaveDrainingBus()
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

    private func connectToCurrentEndpoint() throws {
        switch endpoints.currentEndpoint.kind {
        case .local(let path):
            do throws(SystemError) {
                let descriptor = try UnixSocket.connect(
                    to: path, ownedBy: PrivateFolder.trustedListeners(atSocket: path))
                let stream = try MessageStream(
                    descriptor, as: .dealer, frameBytes: Self.maximumFrameBytes,
                    maximumMessages: Self.maximumUnsentMessages, loop: loop
                ) {}
                link = .local(stream)
            } catch {
                if Self.unrecoverableErrnos.contains(error.number) { throw error }
                return scheduleReconnect(after: nil)
            }
            performActions(core.linkOpened())
        case .remote(let address, let key, let serverKey):
            do {
                let network = try network ?? Network()
                self.network = network
                let curve = try CurveLink(
                    address, key, serverKey: serverKey, usesIPv6: endpoints.usesIPv6, network, loop: loop)
                link = .remote(curve)
            } catch let error as ZeroMQError {
                throw ClientError(.library, "cannot connect to \(address): \(error)")
            }
            // HELLO follows the handshake.
            greetingTimer = loop.setTimer(after: Self.greetingTimeout) { [unowned self] in
                greetingTimer = nil
                disconnect(link?.isOpen == true ? .helloTimedOut : .unreachable)
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
    private func leaveDrainingBus() {
        guard core.isDraining, endpoints.hasAlternativeBus, drainTimer == nil else { return }
        drainTimer = loop.setTimer(after: Self.drainTimeout) { [unowned self] in
            drainTimer = nil
            guard core.canChangeBus else { return leaveDrainingBus() }
            sendBye()
            disconnect()
        }
    }

    /// Closes the connection, drops its queued messages and schedules a reconnection.
    ///
    /// - Parameter ending: reason; nil for the reason of the connection itself.
    private func disconnect(_ ending: LinkEnding? = nil) {
        guard let old = link else { return }
        link = nil
        bodyConnections = nil
        if let greetingTimer { loop.cancelTimer(greetingTimer) }
        greetingTimer = nil
        outbox.removeAll()
        if core.canChangeBus { endpoints.busDrained() }
        performActions(core.linkLost())
        scheduleReconnect(after: ending ?? old.ending ?? (endpoints.currentEndpoint.isRemote ? .connectionLost : nil))
    }

    private func scheduleReconnect(after ending: LinkEnding?) {
        let now = Int(loop.now.nanoseconds / 1_000_000)
        switch endpoints.connectionFailed(ending, at: now, random: .random(in: 0 ... .max)) {
        case .noEndpointLeft(let endpoint, let ending): fail(ClientError(.refused, ending.userMessage(for: endpoint)))
        case .connect(let pause):
            if endpoints.isSessionElsewhere {
                endpoints.sessionEnded()
                performActions(core.busChanged())
            }
            reconnectTimer = loop.setTimer(after: .nanoseconds(pause)) { [unowned self] in
                do { try connectToCurrentEndpoint() } catch { fail(error) }
            }
        }
    }

    private func fail(_ error: any Error) {
        failure = error
        close()
        onEvent(.state(.disconnected))
    }
}
