internal import EarshotLoop
internal import EarshotWire
internal import Synchronization

/// Connection of a program to the download bus.
///
/// ```swift
/// let bus = try await Bus.connect()
/// let handler = bus.handler()
/// let response = try await handler.fetch("https://example.org/")
/// print(response.status, try await response.body.bytes().count)
/// ```
///
/// One bus per program is sufficient. It runs on a dedicated thread, which calls no code of the program. Closures of
/// cancelled requests may be deallocated on that thread.
///
/// If the broker ends, the bus reconnects and repeats all open requests; waiting tasks are not interrupted. Requests
/// whose method is not idempotent fail with ``BusError/Code/connectionLost`` instead. Handlers and watches retain the
/// bus. It ends with the last reference, or by ``close()``.
public final class Bus: Sendable {
    let commands: Mailbox<BusCommand>
    /// First segment of generated handler names. The broker schedules fairly between roots, and cookies belong to a
    /// root.
    private let handlerNameRoot: String
    /// Prefix of request IDs, unique to this bus because other programs can use the same handler names. Seven
    /// characters and a hyphen, so that most IDs fit into the 15 bytes that Swift stores without an allocation.
    private let requestIDPrefix: String
    private static let requestIDPrefixCount: UInt64 = 36 * 36 * 36 * 36 * 36 * 36 * 36
    private let lastUniqueNumber = Atomic<UInt64>(0)
    /// Whether the loop thread has ended.
    let hasEnded = Observed(false)

    /// Connects to a broker.
    ///
    /// - Parameters:
    ///   - broker: the broker to connect to, by default the user's.
    ///   - application: prefix of generated handler names, 1 to 100 visible ASCII bytes without `/`.
    ///   - timeout: maximum time without a broker, at first and after a disconnection. When it is over, waiting calls
    ///     and requests fail with ``BusError/Code/noBroker``, and the bus continues to reconnect. Nil waits without
    ///     limit.
    ///   - lease: time for which the broker keeps the requests after a disconnection, from 0 to one hour in whole
    ///     milliseconds. Transfers then continue while the bus reconnects, and requests that are not idempotent
    ///     survive. The lease also applies when the program is killed. Nil is a minute for a bus on a network, where
    ///     connections break, and none on this machine.
    ///   - bodies: way of large bodies to this process. The broker can impose ``BodyAccess/pull``, and a network does.
    /// - Returns: a connected bus.
    /// - Throws: ``BusError`` with ``BusError/Code/noBroker``, whose description states how to start a broker,
    ///   ``BusError/Code/notAuthorized``, ``BusError/Code/version`` or ``BusError/Code/invalidRequest``;
    ///   `CancellationError`.
    public static func connect(
        to broker: BrokerChoice = .running, application: String = "swift", timeout: Duration? = .seconds(20),
        lease: Duration? = nil, bodies: BodyAccess = .path
    ) async throws -> Bus {
        guard (.zero ... .seconds(WireLimits.leaseSeconds)).contains(lease ?? .zero) else {
            throw BusError(.invalidRequest, "The lease is out of range: choose 0 to 3600 seconds.")
        }
        let bus = try Bus(application)
        do {
            try await bus.startLoopThread(BusSettings(broker: broker, timeout: timeout, lease: lease, bodies: bodies))
        } catch {
            // A cancellation closes the bus: report the cancellation, not the closed bus.
            try Task.checkCancellation()
            throw error
        }
        return bus
    }

    private func startLoopThread(_ settings: BusSettings) async throws {
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                let (commands, hasEnded) = (commands, hasEnded)
                do {
                    try BackgroundThread.run {
                        BusLoop.run(settings, commands, continuation)
                        hasEnded.change { $0 = true }
                    }
                } catch {
                    continuation.resume(throwing: BusError(converting: error))
                }
            }
        } onCancel: {
            commands.put(.close)
        }
        try Task.checkCancellation()
    }

    private init(_ application: String) throws(BusError) {
        do throws(SystemError) {
            commands = try Mailbox()
        } catch {
            throw BusError(converting: error)
        }
        requestIDPrefix = String(UInt64.random(in: 0..<Self.requestIDPrefixCount), radix: 36) + "-"
        handlerNameRoot = "\(application)-\(String(UInt64.random(in: 0 ... .max), radix: 36))"
        guard HandlerID(handlerNameRoot) != nil, !application.contains("/"), (1...100).contains(application.utf8.count)
        else {
            throw BusError(
                .invalidRequest, "The application name is invalid: use 1 to 100 visible ASCII bytes without a slash.")
        }
    }

    deinit { commands.put(.close) }

    /// Closes the bus. Waiting calls and open requests fail with ``BusError/Code/closed``.
    ///
    /// Returns when the thread has ended and a private broker has removed its folder. Returns earlier if the task is
    /// cancelled; the bus closes nevertheless.
    public func close() async {
        commands.put(.close)
        while true {
            let (isOver, version) = hasEnded.versionedValue
            if isOver || Task.isCancelled { return }
            await hasEnded.changed(since: version)
        }
    }

    /// Creates a handler with a unique name.
    ///
    /// - Returns: a handler; its requests end with its last reference.
    public func handler() -> Handler {
        let number = nextUniqueNumber()
        guard let name = HandlerID("\(handlerNameRoot)/\(number)") else {
            preconditionFailure("invalid generated handler name: \(handlerNameRoot)/\(number)")
        }
        return Handler(HandlerState(number, name, isNamed: false), self)
    }

    /// Creates a handler with this name, which other programs can watch and remove.
    ///
    /// Several handlers of one program may share a name: each owns its own requests. Removing the last of them removes
    /// the name on the bus, with the requests of other programs under it.
    ///
    /// - Parameter name: 1 to 200 visible ASCII bytes, in segments separated by `/`.
    /// - Returns: a handler; its requests end with its last reference.
    /// - Throws: ``BusError`` with ``BusError/Code/invalidRequest`` for an invalid name.
    public func handler(named name: String) throws -> Handler {
        guard let id = HandlerID(name) else { throw BusError.invalidHandlerName }
        return Handler(HandlerState(nextUniqueNumber(), id, isNamed: true), self)
    }

    /// Subscribes to a handler, or to all handlers below a name. Returns when the subscription is active.
    ///
    /// The bus acknowledges each result on arrival. That deletes results of durable requests from the broker's disk:
    /// use ``claim(_:)`` for those.
    ///
    /// - Parameter pattern: handler name, or a name that ends in `/` for all handlers below it.
    /// - Returns: an endless sequence of results.
    /// - Throws: ``BusError`` with ``BusError/Code/invalidRequest`` for an invalid pattern, ``BusError/Code/noBroker``
    ///   or ``BusError/Code/closed``; `CancellationError`.
    public nonisolated(nonsending) func watch(_ pattern: String) async throws -> Watch {
        try await startWatch(on: pattern, isClaim: false)
    }

    /// Removes a handler, or all handlers below a name, with the requests of all programs.
    ///
    /// Calls that wait for these requests fail with ``BusError/Code/removed``, here and in other programs. The handlers
    /// of this program can be used again. While disconnected, at most 10,000 removals wait for a broker. Further ones
    /// fail with ``BusError/Code/noBroker`` and remove nothing.
    ///
    /// - Parameter pattern: handler name, or a name that ends in `/` for all handlers below it.
    /// - Returns: number of requests that had not ended.
    /// - Throws: ``BusError`` with ``BusError/Code/invalidRequest``, ``BusError/Code/noBroker`` or
    ///   ``BusError/Code/closed``; `CancellationError` if the task is cancelled, which does not stop the removal.
    @discardableResult
    public nonisolated(nonsending) func remove(_ pattern: String) async throws -> Int {
        guard let pattern = HandlerPattern(pattern) else { throw BusError.invalidPattern }
        let answer = Answer<Int>()
        guard commands.put(.purgePattern(pattern, answer)) else { throw BusError.busClosed }
        return try await answer.value()
    }

    func startWatch(
        on pattern: String, isClaim: Bool, _ caller: isolated (any Actor)? = #isolation
    ) async throws -> Watch {
        guard let pattern = HandlerPattern(pattern) else { throw BusError.invalidPattern }
        let state = WatchState(pattern, isClaim: isClaim)
        let watch = Watch(state, self)
        try await withTaskCancellationHandler {
            // Captures the isolation: the closure runs on the caller's actor.
            _ = caller
            try await withCheckedThrowingContinuation { continuation in
                if !commands.put(.watch(state, continuation)) { continuation.resume(throwing: BusError.busClosed) }
            }
        } onCancel: {
            // `fail` covers a subscription that the loop has not received yet, `endWatch` one that it has.
            state.fail(CancellationError())
            commands.put(.endWatch(state))
        }
        try Task.checkCancellation()
        return watch
    }

    /// Returns the key of a new request.
    func nextRequestKey(for handler: HandlerID) -> RequestKey {
        let text = requestIDPrefix + String(nextUniqueNumber(), radix: 36)
        guard let request = RequestID(text) else { preconditionFailure("invalid generated request ID: \(text)") }
        return RequestKey(handler, request)
    }

    /// Returns the sizes of the loop's tables, for leak tests. All zero after the bus has closed.
    func tableSizes() async -> BusTableSizes {
        await withCheckedContinuation { continuation in
            if !commands.put(.countTables(continuation)) { continuation.resume(returning: BusTableSizes()) }
        }
    }

    private func nextUniqueNumber() -> UInt64 {
        lastUniqueNumber.add(1, ordering: .relaxed).newValue
    }
}

/// Parameters of ``Bus/connect(to:application:timeout:lease:bodies:)``.
struct BusSettings: Sendable {
    let broker: BrokerChoice
    /// Maximum time without a broker; nil for no limit.
    let timeout: Duration?
    /// Lease; zero for none, nil for that of the connection's kind.
    let lease: Duration?
    /// Way of the bodies that the broker has in files.
    let bodies: BodyAccess
}
