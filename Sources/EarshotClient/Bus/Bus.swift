internal import EarshotLoop
internal import EarshotWire
internal import Synchronization

/// A program's connection to the download bus.
///
/// ```swift
/// let bus = try await Bus.connect()
/// let handler = bus.handler()
/// let response = try await handler.fetch("https://example.org/")
/// print(response.status, try await response.body.bytes().count)
/// ```
///
/// One is enough for a program. It has a thread of its own, on which nothing of the program is called; but what a
/// function held that is not wanted any more may end there. When the broker ends and another one comes, it connects
/// anew and asks again for all that is still wanted; those who wait do not notice.
/// Its handlers and watches hold it; it ends when the last of them is gone, or by ``close()``.
public final class Bus: Sendable {
    let commands: Mailbox<BusCommand>
    /// The first segment of the names it makes: turns in the broker's queue and cookies go by it.
    private let root: String
    /// Begins the IDs of its requests, since others may ask for something under the same handler. Seven characters and
    /// a hyphen: Swift keeps texts of up to fifteen in place, without memory of their own, and so does the broker.
    private let prefix: String
    private static let prefixes: UInt64 = 36 * 36 * 36 * 36 * 36 * 36 * 36
    private let numbers = Atomic<UInt64>(0)
    /// Whether its thread has done all it does.
    let hasEnded = Observed(false)

    /// Connects to a broker.
    ///
    /// - Parameters:
    ///   - application: begins the names of handlers that have none; 1 to 100 visible ASCII bytes without a slash.
    ///   - patience: how long the broker may be away before what is awaited ends as ``BusError/Code/noBroker``, and how
    ///     long it may take to answer at first; nil for ever. The bus goes on trying after that.
    ///   - lease: how long the broker keeps what the bus wants when the connection breaks, up to an hour: nothing is
    ///     fetched twice for that, and what may not be done twice goes on. The broker also keeps it for so long when
    ///     the program is killed.
    /// - Throws: ``BusError`` with ``BusError/Code/noBroker``, whose description says how to start one,
    ///   ``BusError/Code/version`` or ``BusError/Code/invalidRequest``; `CancellationError`.
    public static func connect(
        to broker: BrokerChoice = .running, application: String = "swift", patience: Duration? = .seconds(20),
        lease: Duration = .zero
    ) async throws -> Bus {
        guard lease >= .zero, lease <= .seconds(WireLimits.leaseSeconds) else {
            throw BusError(.invalidRequest, "A lease is at most an hour.")
        }
        let bus = try Bus(application)
        do {
            try await bus.begin(BusSettings(broker: broker, patience: patience, lease: lease))
        } catch {
            // What a cancellation closed was cancelled.
            try Task.checkCancellation()
            throw error
        }
        return bus
    }

    private func begin(_ settings: BusSettings) async throws {
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { greeting in
                let (commands, hasEnded) = (commands, hasEnded)
                do {
                    try BackgroundThread.run {
                        BusLoop.run(settings, commands, greeting)
                        hasEnded.change { $0 = true }
                    }
                } catch {
                    greeting.resume(throwing: BusError(error))
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
            throw BusError(error)
        }
        prefix = String(UInt64.random(in: 0..<Self.prefixes), radix: 36) + "-"
        root = "\(application)-\(String(UInt64.random(in: 0 ... .max), radix: 36))"
        guard HandlerID(root) != nil, !application.contains("/"), (1...100).contains(application.utf8.count) else {
            throw BusError(.invalidRequest, "The application's name is 1 to 100 visible ASCII bytes without a slash.")
        }
    }

    deinit { commands.put(.close) }

    /// Ends it: all that is awaited ends as ``BusError/Code/closed``. Returns when that is done, and a private broker
    /// is gone with its folder; in a cancelled task sooner.
    public func close() async {
        commands.put(.close)
        while true {
            let (isOver, version) = hasEnded.current
            if isOver || Task.isCancelled { return }
            await hasEnded.changed(since: version)
        }
    }

    /// A handler with a name that no other has.
    public func handler() -> Handler {
        let number = nextNumber()
        guard let name = HandlerID("\(root)/\(number)") else {
            preconditionFailure("a checked root and a number are no name: \(root)/\(number)")
        }
        return Handler(HandlerState(number, name, isNamed: false), self)
    }

    /// A handler with a name that other programs know, to watch or remove it.
    ///
    /// If a program makes several of one name, each holds its own requests, and the last that goes removes the name;
    /// what other programs ask for under it goes then, too.
    ///
    /// - Parameter name: 1 to 200 bytes of visible ASCII, in segments separated by `/`.
    /// - Throws: ``BusError``, ``BusError/Code/invalidRequest``, for what is no name.
    public func handler(named name: String) throws -> Handler {
        guard let id = HandlerID(name) else { throw BusError.noName }
        return Handler(HandlerState(nextNumber(), id, isNamed: true), self)
    }

    /// Listens to a handler, or to all below a name. Returns when the broker knows it.
    ///
    /// Results are acknowledged when they arrive. This removes those of durable requests from the broker's disk: take
    /// them by ``claim(_:)``.
    ///
    /// - Parameter pattern: a handler's name, or one with a slash behind it for all handlers below.
    /// - Throws: ``BusError``, ``BusError/Code/invalidRequest`` for what is no such name; `CancellationError`.
    public nonisolated(nonsending) func watch(_ pattern: String) async throws -> Watch {
        try await watch(pattern, isClaim: false)
    }

    /// Wants nothing any more of a handler, or of all below a name, whoever asked for it. What this program awaits of
    /// them ends as ``BusError/Code/removed``, and what other programs await too; its handlers can be used again.
    ///
    /// - Parameter pattern: as of ``watch(_:)``.
    /// - Returns: how many requests had not ended.
    /// - Throws: ``BusError``; `CancellationError`, and then they are removed all the same.
    @discardableResult
    public nonisolated(nonsending) func remove(_ pattern: String) async throws -> Int {
        guard let pattern = HandlerPattern(pattern) else { throw BusError.noPattern }
        let answer = Answer<Int>()
        guard commands.put(.purge(pattern, answer)) else { throw BusError.closed }
        return try await answer.value()
    }

    func watch(
        _ pattern: String, isClaim: Bool, _ caller: isolated (any Actor)? = #isolation
    ) async throws -> Watch {
        guard let pattern = HandlerPattern(pattern) else { throw BusError.noPattern }
        let state = WatchState(pattern, isClaim: isClaim)
        let watch = Watch(state, self)
        try await withTaskCancellationHandler {
            // What makes the closure the caller's.
            _ = caller
            try await withCheckedThrowingContinuation { continuation in
                if !commands.put(.watch(state, continuation)) { continuation.resume(throwing: BusError.closed) }
            }
        } onCancel: {
            // Before the loop has heard of it, or after: either ends it.
            state.fail(CancellationError())
            commands.put(.endWatch(state))
        }
        try Task.checkCancellation()
        return watch
    }

    /// Names a request.
    func nextKey(_ handler: HandlerID) -> RequestKey {
        let text = prefix + String(nextNumber(), radix: 36)
        guard let request = RequestID(text) else { preconditionFailure("a random number is no ID: \(text)") }
        return RequestKey(handler, request)
    }

    /// What its thread holds.
    func census() async -> BusCensus {
        await withCheckedContinuation { continuation in
            if !commands.put(.count(continuation)) { continuation.resume(returning: BusCensus()) }
        }
    }

    private func nextNumber() -> UInt64 {
        numbers.add(1, ordering: .relaxed).newValue
    }
}
