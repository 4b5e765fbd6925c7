internal import EarshotLoop
internal import EarshotWire

/// Owner of requests: when it ends, its requests end.
///
/// A view, a cell or a page has a handler while it is visible. With the last reference, or by ``remove()``, the broker
/// drops its queued requests and aborts its transfers, except those that other handlers share.
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
/// A task that awaits a function of a handler retains the handler. Use ``remove()`` or cancel the task to end it.
public final class Handler: Sendable {
    let state: HandlerState
    let bus: Bus

    init(_ state: HandlerState, _ bus: Bus) {
        self.state = state
        self.bus = bus
        bus.commands.put(.open(state))
    }

    deinit { remove() }

    /// Name on the bus, by which other programs can watch and remove the handler.
    public var name: String { state.name.description }

    /// Removes the handler permanently. Has no effect on a removed handler.
    ///
    /// Waiting tasks fail with ``BusError/Code/removed``, and so do later requests. No closure is called afterwards on
    /// the actor that calls this. Requests of other handlers with the same name continue.
    public func remove() {
        state.remove { bus.commands.put(.remove(state.number)) }
    }

    /// Changes the priority of all queued requests of the handler.
    ///
    /// - Parameter priority: the new class.
    public func setPriority(_ priority: Priority) {
        bus.commands.put(.setHandlerPriority(state.number, priority.wire))
    }

    /// Fetches a URL and returns the response with its whole body.
    ///
    /// The request starts before the task suspends, so requests of one actor start in the order of the calls.
    /// Cancelling the task cancels the request. The broker then drops it from the queue or aborts the transfer, unless
    /// other requests share it.
    ///
    /// - Parameters:
    ///   - url: 1 to 8,192 bytes of UTF-8 without spaces and control characters: `http`, `https`, or a scheme of a
    ///     registered worker.
    ///   - priority: class of the request in the broker's queue.
    ///   - options: further options of the request.
    /// - Returns: a response with a status below 400.
    /// - Throws: ``BusError``; `CancellationError` when the task is cancelled.
    public nonisolated(nonsending) func fetch(
        _ url: String, priority: Priority = .normal, _ options: FetchOptions = FetchOptions()
    ) async throws -> Response {
        try await response(url, priority, options, replaces: false)
    }

    /// Fetches a URL and replaces all earlier requests of the handler, for views that are reused.
    ///
    /// The replaced calls fail with ``BusError/Code/replaced``.
    ///
    /// - Parameters:
    ///   - url: as for ``fetch(_:priority:_:)``.
    ///   - priority: class of the request in the broker's queue.
    ///   - options: further options of the request.
    /// - Returns: a response with a status below 400.
    /// - Throws: ``BusError``; `CancellationError` when the task is cancelled.
    public nonisolated(nonsending) func replace(
        with url: String, priority: Priority = .normal, _ options: FetchOptions = FetchOptions()
    ) async throws -> Response {
        try await response(url, priority, options, replaces: true)
    }

    /// Starts a download, whose body can be read while it arrives.
    ///
    /// The download ends with its own last reference or with the handler. It does not retain the handler.
    ///
    /// - Parameters:
    ///   - url: as for ``fetch(_:priority:_:)``.
    ///   - priority: class of the request in the broker's queue.
    ///   - options: further options of the request.
    ///   - replaces: whether the request replaces all earlier ones of the handler.
    /// - Returns: the running download.
    /// - Throws: ``BusError`` with ``BusError/Code/invalidRequest``, ``BusError/Code/removed`` or
    ///   ``BusError/Code/closed``.
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

    /// Runs a request to its end.
    ///
    /// - Parameter caller: actor on which the request starts. A closure without its isolation would start elsewhere,
    ///   and requests of one actor could start in any order.
    private func response(
        _ url: String, _ priority: Priority, _ options: FetchOptions, replaces: Bool,
        _ caller: isolated (any Actor)? = #isolation
    ) async throws -> Response {
        try Task.checkCancellation()
        let key = bus.nextKey(state.name)
        let fetch = Shared(try options.request(key, url, priority))
        let request = Request(key, state, bus.commands)
        let response = try await withTaskCancellationHandler {
            // Captures the isolation: the closure runs on the caller's actor.
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
        // This check runs on the caller's actor: a removal there precedes or follows it.
        if let obstacle = request.obstacle { throw obstacle }
        return response
    }
}
