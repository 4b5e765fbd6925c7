internal import DequeModule
internal import EarshotHTTP
public import EarshotLoop
public import EarshotWire
internal import Glibc
internal import ZMTP

/// Client of the bus on an event loop of its owner.
///
/// Requests outlive the connection. After a disconnection the client reconnects with exponential backoff of 10 to 100
/// ms, sends HELLO and repeats every open request. Each request ends in one terminal. All calls and events happen on
/// the loop's thread.
///
/// The broker drops the requests when this object closes or its process ends; with a lease and without ``close()``,
/// after the lease.
public final class ClientConnection {
    /// Maximum messages per pass, so that a fast broker cannot delay timers.
    private static let messagesPerPass = 256
    /// Pauses between attempts to connect.
    private static let reconnecting = Backoff(firstMilliseconds: 10, longestMilliseconds: 100)
    /// Maximum time to send BYE before the socket closes.
    private static let farewellMilliseconds: Int32 = 100
    /// Maximum frame size in bytes. Bodies in memory have up to 16 MiB, the answer about a million requests some
    /// hundred.
    private static let frameBytes = 1 << 30
    /// Maximum messages in the stream that the kernel has not taken. Later ones wait in `outbox`.
    private static let unsentMessages = 1_000
    /// Head bytes reserved for fields that a repetition adds: `asked`, or another priority.
    private static let addedBytes = 64
    /// Errors of this process rather than of the broker: a later attempt cannot succeed.
    private static let obstacles: Set<Int32> = [EMFILE, ENFILE, ENOMEM, ENOBUFS, ENAMETOOLONG]

    private let loop: EventLoop
    private let path: String
    private let onEvent: (ClientEvent) -> Void
    private var core: ClientCore
    /// Replaced with each connection, so that no bytes of the old one survive.
    private var stream: MessageStream?
    private var outbox = Deque<(head: [UInt8], body: [UInt8]?)>()
    private var reports: Deque<ClientEvent> = []
    private var hook: EventLoop.HookID?
    /// Attempts to connect since the last session began.
    private var attempts = 0
    private var reconnectTimer: TimerID?
    /// Folder of body files; nil until a broker has named it.
    public var spool: String? { core.spool }
    /// Whether reading is paused. The delivery window is the backpressure: the broker keeps further terminals.
    public var isPaused = false { didSet { stream?.isReading = !isPaused } }
    /// Error that ended the connection for good; nil while it runs.
    public private(set) var failure: (any Error)?

    /// Starts to connect to a broker. The broker may start later.
    ///
    /// - Parameters:
    ///   - endpoint: `ipc://` and the path of the broker's socket `bus`.
    ///   - client: name of this client in the broker's status, 1 to 64 visible ASCII bytes.
    ///   - window: maximum unacknowledged terminals, 1 to 4,096.
    ///   - lease: time for which the broker keeps the requests after a disconnection, from 0 to one hour in whole
    ///     milliseconds. It also applies when the process is killed.
    ///   - finishesNone: whether the consumer finishes every delivery; otherwise only deliveries whose body is a file.
    ///   - loop: event loop that runs the connection.
    ///   - onEvent: closure called for each event. It may call this object.
    /// - Throws: `SystemError` if the process cannot have a socket, `ClientError` for an endpoint without `ipc://`.
    public init(
        endpoint: String, client: String? = nil, window: Int = 256, lease: Duration = .zero,
        finishesNone: Bool = false, loop: EventLoop, onEvent: @escaping (ClientEvent) -> Void
    ) throws {
        guard endpoint.hasPrefix("ipc://") else {
            throw ClientError(.invalidRequest, "the endpoint is invalid: use ipc:// and a path")
        }
        self.loop = loop
        path = String(endpoint.dropFirst(6))
        self.onEvent = onEvent
        var hello = Hello(client: client, window: window)
        hello.leaseMilliseconds = Int(
            min(max(lease, .zero), .seconds(WireLimits.leaseSeconds)) / .milliseconds(1))
        // A lease requires a client name.
        if hello.leaseMilliseconds > 0, client == nil { hello.client = "process-\(getpid())" }
        core = ClientCore(hello: hello, finishesNone: finishesNone)
        try connect()
        hook = loop.addHook { [unowned self] in pass() }
    }

    deinit { close() }

    /// Closes the connection. The broker drops the requests; no event follows.
    public func close() {
        if let hook { loop.removeHook(hook) }
        if let reconnectTimer { loop.cancelTimer(reconnectTimer) }
        hook = nil
        reconnectTimer = nil
        reports = []
        let farewell = core.left()
        carryOut(farewell)
        flush()
        if !farewell.isEmpty { stream?.linger(milliseconds: Self.farewellMilliseconds) }
        stream = nil
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
    public func fetch(_ fetch: Fetch) throws(ClientError) {
        try Self.check(fetch)
        self.fetch(Shared(fetch))
    }

    /// Requests a URL with a checked message.
    ///
    /// - Parameter old: open requests of the handler, if this one replaces them; nil searches all requests in
    ///   O(requests).
    func fetch(_ fetch: Shared<Fetch>, inPlaceOf old: [RequestKey]? = nil) {
        setClock()
        carryOut(core.fetch(fetch, inPlaceOf: old))
    }

    /// Checks a request against the limits of the protocol.
    ///
    /// - Throws: `ClientError` if the request exceeds a limit.
    static func check(_ fetch: Fetch) throws(ClientError) {
        guard (1...WireLimits.urlBytes).contains(fetch.url.utf8.count),
            fetch.url.utf8.allSatisfy({ $0 > 0x20 && $0 != 0x7f })
        else {
            throw ClientError(
                .invalidRequest,
                "the URL is invalid: use 1 to \(WireLimits.urlBytes) bytes of UTF-8 without spaces and control characters"
            )
        }
        let mostBytes = WireLimits.headBytes - addedBytes
        guard hasShortHead(fetch) || ClientMessage.fetch(fetch).encoded().count <= mostBytes else {
            throw ClientError(.invalidRequest, "the header fields are too long: use at most \(mostBytes) bytes")
        }
        guard fetch.body?.count ?? 0 <= WireLimits.requestBodyBytes else {
            throw ClientError(
                .invalidRequest, "the request body is too long: use at most \(WireLimits.requestBodyBytes) bytes")
        }
    }

    /// Returns whether the head is far below its limit, without encoding it.
    private static func hasShortHead(_ fetch: Fetch) -> Bool {
        fetch.url.utf8.count + fetch.httpFields.count + fetch.options.textBytes <= WireLimits.headBytes / 2
    }

    /// Cancels a request. ``ClientEvent/cancelled(_:)`` follows, also for an unknown request.
    ///
    /// - Parameter key: handler and ID of the request.
    public func cancel(_ key: RequestKey) { carryOut(core.cancel(key)) }

    /// Removes a handler, or all handlers below a name. ``ClientEvent/removed(_:count:)`` follows.
    ///
    /// While disconnected, at most 10,000 removals wait for the next connection.
    ///
    /// - Parameter pattern: handler name, or a name that ends in `/`.
    /// - Returns: false if the removal is refused, because too many wait. Nothing is removed, and no event follows.
    @discardableResult
    public func remove(_ pattern: HandlerPattern) -> Bool { remove(pattern, nil) }

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
    public func subscribe(_ pattern: HandlerPattern) { carryOut(core.subscribe(pattern)) }

    /// Ends a subscription.
    ///
    /// - Parameter pattern: pattern of the subscription.
    public func unsubscribe(_ pattern: HandlerPattern) { carryOut(core.unsubscribe(pattern)) }

    /// Stores cookies in the jar of a handler's root, for its requests with `cookies: yes`. A
    /// later broker gets them too, until the handler is removed.
    ///
    /// - Parameters:
    ///   - fields: `Set-Cookie` fields, separated by LF. A jar evaluates at most 50 of them.
    ///   - url: URL of http or https whose server could have set the cookies.
    ///   - handler: handler of a subscription or of an open request.
    public func storeCookies(_ fields: [UInt8], from url: String, for handler: HandlerID) {
        carryOut(core.storeCookies(fields, from: url, for: handler))
    }

    /// Changes the priority of a queued request.
    ///
    /// - Parameters:
    ///   - key: handler and ID of the request.
    ///   - priority: the new class.
    public func setPriority(_ key: RequestKey, _ priority: PriorityClass) {
        carryOut(core.setPriority(key, priority))
    }

    /// Queries the state of the broker. ``ClientEvent/answer(_:json:)`` follows.
    ///
    /// - Parameters:
    ///   - query: subject of the query.
    ///   - page: part of the answer's table.
    public func query(_ query: Query, _ page: QueryPage = QueryPage()) { carryOut(core.query(query, page)) }

    /// Changes a setting of the broker. ``ClientEvent/changed(_:)`` follows, or ``ClientEvent/refused(_:)`` with the
    /// code `bad-setting` and the permitted values.
    ///
    /// - Parameter setting: name and value.
    public func set(_ setting: SettingWords) { carryOut(core.set(setting)) }

    /// Finishes a delivery, so that it can be acknowledged. The broker may then delete its file.
    ///
    /// - Parameter delivery: a delivery of this connection. Others have no effect.
    public func finish(_ delivery: Delivery) { core.finish(delivery.id) }

    /// Returns whether a delivery belongs to the current session. Deliveries of lost sessions cannot be acknowledged.
    func isDue(_ delivery: Delivery) -> Bool { core.isDue(delivery.id) }

    /// Acknowledges finished deliveries now instead of at the end of the pass.
    func acknowledge() { carryOut(core.passEnded()) }

    /// Repeats the request of a delivery whose file cannot be read, as after a restart of the broker, which empties the
    /// spool.
    ///
    /// - Parameter delivery: delivery with an unreadable file.
    /// - Returns: false if the request is not repeated: it lost its file too often, is not idempotent, or belongs to
    ///   another client. The delivery is then its end.
    public func askAgain(_ delivery: Delivery) -> Bool {
        guard let actions = core.askAgain(delivery) else { return false }
        carryOut(actions)
        return true
    }

    // MARK: The pass

    private func setClock() { core.milliseconds = Int(loop.now.nanoseconds / 1_000_000) }

    private func pass() -> EventLoop.Rest {
        setClock()
        let isAll = takeMessages()
        // A paused connection whose peer has hung up is not read to its end.
        if let stream, stream.isEnded || stream.isHungUp && isPaused { disconnect() }
        while let event = reports.popFirst() { onEvent(event) }
        carryOut(core.passEnded())
        flush()
        return isAll && reports.isEmpty ? .untilEvent : .none
    }

    /// Processes up to `messagesPerPass` messages.
    ///
    /// - Returns: whether no message is left, so that the loop may wait for the next event.
    private func takeMessages() -> Bool {
        for _ in 0..<Self.messagesPerPass {
            guard !isPaused, let message = stream?.next() else { return true }
            do throws(WireError) {
                let actions = core.received(try BrokerMessage(head: message.head))
                // Only terminals and answers have a body.
                carryOut(actions, body: message.body ?? [])
            } catch {
                // Verbs of later versions are ignored.
                if error.code == .unknownVerb { continue }
                carryOut(core.received(malformed: BrokerFragment(head: message.head), error))
            }
        }
        return false
    }

    private func carryOut(_ actions: consuming [ClientAction], body: [UInt8] = []) {
        actions.reverseInPlace()
        while let action = actions.popLast() {
            switch action {
            case .send(let message): outbox.append((message.encoded(), message.body))
            case .deliver(let delivery): reports.append(.terminal(delivery, body: body))
            case .report(let report): reports.append(event(report, body))
            case .reconnect: disconnect()
            }
        }
    }

    private func event(_ report: ClientReport, _ body: [UInt8]) -> ClientEvent {
        switch report {
        case .accepted(let key): return .accepted(key)
        case .progress(let progress): return .progress(progress)
        case .cancelled(let key): return .cancelled(key)
        case .removed(let pattern, let count): return .removed(pattern, count: count)
        case .answered(let query): return .answer(query, json: body)
        case .changed(let setting): return .changed(setting)
        case .refused(let reply): return .refused(reply)
        case .state(let state):
            if case .connected = state { attempts = 0 }
            return .state(state)
        }
    }

    /// Sends queued messages as far as the kernel takes them. The loop wakes when it takes more.
    private func flush() {
        guard let stream else { return }
        repeat {
            while let (head, body) = outbox.first, stream.send(Message(head: head, body: body)) {
                outbox.removeFirst()
            }
            stream.flush()
        } while stream.isOpen && stream.isIdle && !outbox.isEmpty
    }

    // MARK: Connecting

    private func connect() throws {
        do throws(SystemError) {
            let descriptor = try UnixSocket.connect(to: path)
            let stream = try MessageStream(
                descriptor, as: .dealer, frameBytes: Self.frameBytes, mostMessages: Self.unsentMessages, loop: loop
            ) {}
            stream.isReading = !isPaused
            self.stream = stream
        } catch {
            if Self.obstacles.contains(error.number) { throw error }
            return connectLater()
        }
        carryOut(core.linkOpened())
    }

    /// Closes the connection, drops its queued messages and schedules a reconnection.
    private func disconnect() {
        guard stream != nil else { return }
        stream = nil
        outbox.removeAll()
        carryOut(core.linkLost())
        connectLater()
    }

    private func connectLater() {
        attempts += 1
        let pause = Duration.nanoseconds(Self.reconnecting.pause(afterFailures: attempts))
        reconnectTimer = loop.setTimer(after: pause) { [unowned self] in
            do { try connect() } catch { fail(error) }
        }
    }

    private func fail(_ error: any Error) {
        failure = error
        close()
        onEvent(.state(.apart))
    }
}
