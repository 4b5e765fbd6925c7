internal import DequeModule
public import EarshotLoop
public import EarshotWire
internal import Glibc
internal import ZMTP

/// A client of the bus, in a loop of its owner's.
///
/// What is asked for outlives the connection: when the broker goes, another socket is made, HELLO said and everything
/// still wanted asked for again, until it has its terminal, which is delivered once. All calls and all events are on
/// the loop's thread. When this object goes its requests do too: the broker purges what a vanished client wanted, with
/// a lease after that time, unless it has said goodbye by ``close()``.
public final class ClientConnection {
    /// Messages taken in one pass: no peer starves the timers.
    private static let messagesPerPass = 256
    /// Milliseconds between two tries to connect: at first, and at most.
    private static let reconnectMilliseconds = 10...100
    /// How long a farewell may take to leave.
    private static let farewellMilliseconds: Int32 = 100
    /// Bytes of a frame at most: a body in memory has 16 MiB, an answer about a million requests some hundred.
    private static let frameBytes = 1 << 30
    /// Messages that wait in the stream for the kernel to take them; more wait here.
    private static let unsentMessages = 1_000
    /// Bytes of a head that are left for what is said besides later: that it replaces, and another class.
    private static let addedBytes = 64
    /// What keeps a process from having a socket, whoever is at its other end. Others pass when a broker comes.
    private static let obstacles: Set<Int32> = [EMFILE, ENFILE, ENOMEM, ENOBUFS, ENAMETOOLONG]

    private let loop: EventLoop
    private let path: String
    private let onEvent: (ClientEvent) -> Void
    private var core: ClientCore
    /// Thrown away as a whole, so that nothing said over the old one survives into the next.
    private var stream: MessageStream?
    private var outbox = Deque<(head: [UInt8], body: [UInt8]?)>()
    private var reports: Deque<ClientEvent> = []
    private var hook: EventLoop.HookID?
    private var reconnectDelay = ClientConnection.reconnectMilliseconds.lowerBound
    private var reconnectTimer: TimerID?
    /// The folder of bodies that are files; nil before a broker has told.
    public var spool: String? { core.spool }
    /// Whether what the broker says is left unread. Nothing is lost by it: a full window stops the broker.
    public var isPaused = false { didSet { stream?.isReading = !isPaused } }
    /// What ended the connection for good.
    public private(set) var failure: (any Error)?

    /// Begins to connect to a broker's endpoint `bus`, be there one or not.
    ///
    /// - Parameters:
    ///   - endpoint: `ipc://` and the path of the broker's socket.
    ///   - client: this instance's name in the broker's reports, 1 to 64 bytes of visible ASCII.
    ///   - window: terminals that may be unfinished at once, 1 to 4,096.
    ///   - lease: how long the broker keeps what this client wants when the connection breaks, to the millisecond and
    ///     at most an hour, so that nothing is fetched twice for that. It also keeps it so long for a process that was
    ///     killed.
    ///   - finishesNone: whether the consumer has to finish each delivery, else only those whose bodies are files.
    ///   - onEvent: called for each event; it may call this object.
    /// - Throws: `SystemError` when there are no sockets to be had, `ClientError` for another kind of endpoint.
    public init(
        endpoint: String, client: String? = nil, window: Int = 256, lease: Duration = .zero,
        finishesNone: Bool = false, loop: EventLoop, onEvent: @escaping (ClientEvent) -> Void
    ) throws {
        guard endpoint.hasPrefix("ipc://") else {
            throw ClientError(.invalidRequest, "an endpoint is ipc:// and a path")
        }
        self.loop = loop
        path = String(endpoint.dropFirst(6))
        self.onEvent = onEvent
        var hello = Hello(client: client, window: window)
        hello.leaseMilliseconds = Int(
            min(max(lease, .zero), .seconds(WireLimits.leaseSeconds)) / .milliseconds(1))
        // A lease is for a client with a name.
        if hello.leaseMilliseconds > 0, client == nil { hello.client = "process-\(getpid())" }
        core = ClientCore(hello: hello, finishesNone: finishesNone)
        try connect()
        hook = loop.addHook { [unowned self] in pass() }
    }

    deinit { close() }

    /// Leaves: the broker purges what this client wanted. Nothing is told any more.
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

    // MARK: What is wanted

    /// Asks for a URL. Its end comes as ``ClientEvent/terminal(_:body:)`` or ``ClientEvent/refused(_:)``; with
    /// `subscribes: false` it is the handler's affair and this client hears nothing of it, but of a durable one
    /// ``ClientEvent/accepted(_:)``, or the terminal that says why not.
    ///
    /// - Throws: `ClientError` when it cannot be said on the wire.
    public func fetch(_ fetch: Fetch) throws(ClientError) {
        try Self.check(fetch)
        self.fetch(Shared(fetch))
    }

    /// As ``fetch(_:)``, of what has been checked.
    ///
    /// - Parameter old: all that is wanted of its handler, if it replaces that; nil to look for it, in O(requests).
    func fetch(_ fetch: Shared<Fetch>, inPlaceOf old: [RequestKey]? = nil) {
        setClock()
        carryOut(core.fetch(fetch, inPlaceOf: old))
    }

    /// - Throws: `ClientError` when a request cannot be said on the wire.
    static func check(_ fetch: Fetch) throws(ClientError) {
        guard (1...WireLimits.urlBytes).contains(fetch.url.utf8.count),
            fetch.url.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f })
        else {
            throw ClientError(
                .invalidRequest, "a URL is 1 to \(WireLimits.urlBytes) bytes of ASCII without spaces and controls")
        }
        let mostBytes = WireLimits.headBytes - addedBytes
        guard hasShortHead(fetch) || ClientMessage.fetch(fetch).encoded().count <= mostBytes else {
            throw ClientError(.invalidRequest, "the header fields are longer than \(mostBytes) bytes")
        }
        guard fetch.body?.count ?? 0 <= WireLimits.requestBodyBytes else {
            throw ClientError(.invalidRequest, "the body is longer than \(WireLimits.requestBodyBytes) bytes")
        }
    }

    /// Returns whether the head is far below its limit. That is cheaper to find out than its length.
    private static func hasShortHead(_ fetch: Fetch) -> Bool {
        fetch.url.utf8.count + fetch.httpFields.count + fetch.options.textBytes <= WireLimits.headBytes / 2
    }

    /// No longer wants one request. Answered by ``ClientEvent/cancelled(_:)``, be there such a request or not.
    public func cancel(_ key: RequestKey) { carryOut(core.cancel(key)) }

    /// No longer wants anything of a handler, or of those below a name. Answered by ``ClientEvent/removed(_:count:)``.
    public func remove(_ pattern: HandlerPattern) { remove(pattern, nil) }

    /// As ``remove(_:)``.
    ///
    /// - Parameter old: all that is wanted of it; nil to look for it, in O(requests).
    func remove(_ pattern: HandlerPattern, _ old: [RequestKey]?) { carryOut(core.remove(pattern, old)) }

    /// Hears what others ask for under a handler, or under those below a name.
    public func subscribe(_ pattern: HandlerPattern) { carryOut(core.subscribe(pattern)) }

    /// No longer hears it.
    public func unsubscribe(_ pattern: HandlerPattern) { carryOut(core.unsubscribe(pattern)) }

    /// Changes a waiting request's class.
    public func setPriority(_ key: RequestKey, _ priority: PriorityClass) {
        carryOut(core.setPriority(key, priority))
    }

    /// Asks the broker about itself. Answered by ``ClientEvent/answer(_:json:)``.
    ///
    /// - Parameter page: part of the answer's table.
    public func query(_ query: Query, _ page: QueryPage = QueryPage()) { carryOut(core.query(query, page)) }

    /// Changes a setting of the broker. Answered by ``ClientEvent/changed(_:)``, or ``ClientEvent/refused(_:)`` with
    /// the code `bad-setting` and a sentence about what is possible.
    public func set(_ setting: SettingWords) { carryOut(core.set(setting)) }

    /// Says that a delivery's file has been read: it may vanish from now on.
    public func finish(_ delivery: Delivery) { core.finish(delivery.id) }

    /// Whether the broker still waits for the acknowledgement of a delivery: not one that came by a connection that is
    /// gone.
    func isDue(_ delivery: Delivery) -> Bool { core.isDue(delivery.id) }

    /// Acknowledges at once what has been finished, which otherwise is done when the pass ends.
    func acknowledge() { carryOut(core.passEnded()) }

    /// Says that a delivery's file could not be read (a broker that restarts sweeps its spool), and asks again.
    ///
    /// - Returns: false when it has been lost too often or was not asked for by this client: then that was its end.
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
        // What is not read of a broker that is gone is not waited for.
        if let stream, stream.isEnded || stream.isHungUp && isPaused { disconnect() }
        while let event = reports.popFirst() { onEvent(event) }
        carryOut(core.passEnded())
        flush()
        return isAll && reports.isEmpty ? .untilEvent : .none
    }

    /// - Returns: whether the loop will tell of what comes next.
    private func takeMessages() -> Bool {
        for _ in 0..<Self.messagesPerPass {
            guard !isPaused, let message = stream?.next() else { return true }
            do throws(WireError) {
                let actions = core.received(try BrokerMessage(head: message.head))
                // A terminal's or an answer's.
                carryOut(actions, body: message.body ?? [])
            } catch {
                reports.append(.refused(ErrorReply(error)))
            }
        }
        return false
    }

    private func carryOut(_ actions: [ClientAction], body: [UInt8] = []) {
        // A loop over the array itself would retain and release everything that each action holds.
        let span = actions.span
        for index in span.indices {
            switch span[index] {
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
            if case .connected = state { reconnectDelay = Self.reconnectMilliseconds.lowerBound }
            return .state(state)
        }
    }

    /// Says what there is to say, as far as the kernel takes it; the loop wakes when it takes more.
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

    /// Drops the connection and what was to go over it, and sets the next try.
    private func disconnect() {
        guard stream != nil else { return }
        stream = nil
        outbox.removeAll()
        carryOut(core.linkLost())
        connectLater()
    }

    private func connectLater() {
        reconnectTimer = loop.setTimer(after: .milliseconds(reconnectDelay)) { [unowned self] in
            do { try connect() } catch { fail(error) }
        }
        reconnectDelay = min(reconnectDelay * 2, Self.reconnectMilliseconds.upperBound)
    }

    private func fail(_ error: any Error) {
        failure = error
        close()
        onEvent(.state(.apart))
    }
}
