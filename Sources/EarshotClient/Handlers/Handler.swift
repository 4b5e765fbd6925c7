internal import EarshotLoop
internal import EarshotWire

/// A name under which a program wants results, and the life of what it wants: when it goes, so does all of it.
///
/// A view, a cell or a page has one for as long as it is shown. When the last reference goes, or by ``remove()``, the
/// broker forgets what waits and cuts off what runs, unless somebody else wants the same.
///
/// ```swift
/// @MainActor final class Cell {
///     private let handler: Handler
///     var image: [UInt8] = []
///
///     init(_ bus: Bus) { handler = bus.handler() }
///
///     func show(_ url: String) async throws {
///         let response = try await handler.replace(with: url, priority: .high)
///         image = try await response.body.bytes()
///     }
/// }
/// ```
///
/// A task that awaits one of its functions holds the handler: drop the handler by ``remove()`` or cancel the task.
public final class Handler: Sendable {
    let state: HandlerState
    let bus: Bus

    init(_ state: HandlerState, _ bus: Bus) {
        self.state = state
        self.bus = bus
        bus.commands.put(.open(state))
    }

    deinit { remove() }

    /// Its name on the bus, by which others can watch and remove it.
    public var name: String { state.name.description }

    /// Wants nothing any more, for good. What is awaited ends as ``BusError/Code/removed``, and no function is called
    /// any more on the actor that calls this. If the program has other handlers of this name, their requests go on.
    public func remove() {
        state.remove { bus.commands.put(.remove(state.number)) }
    }

    /// Changes the class of all that it waits for.
    public func setPriority(_ priority: Priority) {
        bus.commands.put(.setHandlerPriority(state.number, priority.wire))
    }

    /// Fetches a URL. Cancelling the task cancels the request: a running transfer is cut off at its socket, unless
    /// somebody else wants the same. It is asked for before the task waits for the first time: what an actor's tasks
    /// fetch is asked for in the order in which they call this.
    ///
    /// - Parameter url: 1 to 8,192 bytes of UTF-8 without spaces, `http` or `https`, or a scheme that a worker
    ///   registers.
    /// - Throws: ``BusError``; `CancellationError` when the task is cancelled.
    public nonisolated(nonsending) func fetch(
        _ url: String, priority: Priority = .normal, _ options: FetchOptions = FetchOptions()
    ) async throws -> Response {
        try await response(url, priority, options, replaces: false)
    }

    /// Fetches a URL in the place of all that the handler wanted before: the reused cell. What was awaited ends as
    /// ``BusError/Code/replaced``.
    ///
    /// - Throws: as ``fetch(_:priority:_:)``.
    public nonisolated(nonsending) func replace(
        with url: String, priority: Priority = .normal, _ options: FetchOptions = FetchOptions()
    ) async throws -> Response {
        try await response(url, priority, options, replaces: true)
    }

    /// Fetches a URL piece by piece, while it arrives. It begins at once, and ends with the download's or the handler's
    /// life: the download does not hold the handler.
    ///
    /// - Parameter replaces: whether it takes the place of all that the handler wanted before.
    /// - Throws: ``BusError``: ``BusError/Code/invalidRequest``, ``BusError/Code/removed`` or ``BusError/Code/closed``.
    public func download(
        _ url: String, priority: Priority = .normal, _ options: FetchOptions = FetchOptions(), replaces: Bool = false
    ) throws -> Download {
        let key = bus.nextKey(state.name)
        let fetch = Shared(try options.request(key, url, priority, streams: true))
        let progress = Observed(DownloadState())
        let request = Request(key, state, bus.commands)
        try request.send(fetch, .download(progress), replaces: replaces)
        return Download(request, progress)
    }

    /// - Parameter caller: on whose actor all of it goes until it waits: a closure that is not isolated to it would be
    ///   begun somewhere else, and what one actor asks for be asked in any order.
    private func response(
        _ url: String, _ priority: Priority, _ options: FetchOptions, replaces: Bool,
        _ caller: isolated (any Actor)? = #isolation
    ) async throws -> Response {
        try Task.checkCancellation()
        let key = bus.nextKey(state.name)
        let fetch = Shared(try options.request(key, url, priority))
        let request = Request(key, state, bus.commands)
        let response = try await withTaskCancellationHandler {
            // What makes the closure the caller's.
            _ = caller
            return try await withCheckedThrowingContinuation { continuation in
                do throws(BusError) {
                    try request.send(fetch, .task(continuation), replaces: replaces)
                } catch {
                    continuation.resume(throwing: error)
                }
            }
        } onCancel: {
            request.cancel()
        }
        // On the caller's actor: a removal there is before this or after it.
        if let obstacle = request.obstacle { throw obstacle }
        return response
    }
}
