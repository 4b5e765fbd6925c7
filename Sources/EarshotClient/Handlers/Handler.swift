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
        bus.commands.put(.openHandler(state))
    }

    deinit { remove() }

    /// Name on the bus, by which other programs can watch and remove the handler.
    public var name: String { state.name.description }

    /// Removes the handler permanently. Has no effect on a removed handler.
    ///
    /// Waiting tasks fail with ``BusError/Code/removed``, and so do later requests. No closure is called afterwards on
    /// the actor that calls this. Requests of other handlers with the same name continue.
    public func remove() {
        state.remove { bus.commands.put(.removeHandler(state.number)) }
    }

    /// Changes the priority of all queued requests of the handler.
    ///
    /// - Parameter priority: the new class.
    public func setPriority(_ priority: Priority) {
        bus.commands.put(.setHandlerPriority(state.number, priority.wireValue))
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
        try await fetchResponse(url, priority, options, replaces: false)
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
        try await fetchResponse(url, priority, options, replaces: true)
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
        let key = bus.nextRequestKey(for: state.name)
        let fetch = Shared(try options.makeFetch(key, url: url, priority: priority, streams: true))
        let progress = Observed(DownloadState())
        let request = Request(key, state, bus.commands)
        try request.send(fetch, .download(progress), replaces: replaces)
        return Download(request, progress)
    }

    /// Runs a request to its end.
    ///
    /// - Parameter caller: actor on which the request starts. A closure without its isolation would start elsewhere,
    ///   and requests of one actor could start in any order.
    private func fetchResponse(
        _ url: String, _ priority: Priority, _ options: FetchOptions, replaces: Bool,
        _ caller: isolated (any Actor)? = #isolation
    ) async throws -> Response {
        try Task.checkCancellation()
        let key = bus.nextRequestKey(for: state.name)
        let fetch = Shared(try options.makeFetch(key, url: url, priority: priority))
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
        if let obstacle = request.invalidityError { throw obstacle }
        return response
    }
}

/// Requests whose responses go to a closure, for programs that do not await them.
extension Handler {
    /// Fetches a URL and calls `deliver` on the main actor, at most once.
    ///
    /// The closure is not called after ``remove()``, ``Request/cancel()`` or ``replace(with:priority:_:)`` on the main
    /// actor, nor after the end of the handler.
    ///
    /// ```swift
    /// try handler.fetch(url, replaces: true, onMain: { result in
    ///     if case .success(let response) = result { print(response.status) }
    /// })
    /// ```
    ///
    /// - Parameters:
    ///   - url: as for ``fetch(_:priority:_:)``.
    ///   - priority: class of the request in the broker's queue.
    ///   - options: further options of the request.
    ///   - replaces: whether the request replaces all earlier ones of the handler.
    ///   - deliver: closure that gets the response or the failure.
    /// - Returns: handle to cancel the request. The request does not depend on it.
    /// - Throws: ``BusError`` with ``BusError/Code/invalidRequest``, ``BusError/Code/removed`` or
    ///   ``BusError/Code/closed``. Then `deliver` is not called.
    @discardableResult
    public func fetch(
        _ url: String, priority: Priority = .normal, _ options: FetchOptions = FetchOptions(), replaces: Bool = false,
        onMain deliver: @escaping @MainActor @Sendable (Result<Response, BusError>) -> Void
    ) throws -> Request {
        try fetch(url, priority, options, replaces: replaces) { request, result in
            await MainActor.run {
                if request.invalidityError == nil { deliver(result) }
            }
        }
    }

    /// Fetches a URL and calls `deliver` on an actor, at most once.
    ///
    /// The closure is not called after ``remove()``, ``Request/cancel()`` or ``replace(with:priority:_:)`` on that
    /// actor, nor after the end of the handler.
    ///
    /// - Parameters:
    ///   - url: as for ``fetch(_:priority:_:)``.
    ///   - priority: class of the request in the broker's queue.
    ///   - options: further options of the request.
    ///   - replaces: whether the request replaces all earlier ones of the handler.
    ///   - actor: actor on which `deliver` runs, and its first argument.
    ///   - deliver: closure that gets the response or the failure.
    /// - Returns: handle to cancel the request. The request does not depend on it.
    /// - Throws: ``BusError`` with ``BusError/Code/invalidRequest``, ``BusError/Code/removed`` or
    ///   ``BusError/Code/closed``. Then `deliver` is not called.
    @discardableResult
    public func fetch<Home: Actor>(
        _ url: String, priority: Priority = .normal, _ options: FetchOptions = FetchOptions(), replaces: Bool = false,
        on actor: Home, deliver: @escaping @Sendable (isolated Home, Result<Response, BusError>) -> Void
    ) throws -> Request {
        try fetch(url, priority, options, replaces: replaces) { request, result in
            await Self.deliverResult(on: actor, request, result, deliver)
        }
    }

    private func fetch(
        _ url: String, _ priority: Priority, _ options: FetchOptions, replaces: Bool,
        _ deliver: @escaping @Sendable (Request, Result<Response, BusError>) async -> Void
    ) throws -> Request {
        let key = bus.nextRequestKey(for: state.name)
        let fetch = Shared(try options.makeFetch(key, url: url, priority: priority))
        let request = Request(key, state, bus.commands)
        try request.send(fetch, .function { await deliver(request, $0) }, replaces: replaces)
        return request
    }

    /// Checks the request and calls the closure in one step of the actor, so that a removal on the actor precedes both
    /// or follows both.
    private static func deliverResult<Home: Actor>(
        on actor: isolated Home, _ request: Request, _ result: Result<Response, BusError>,
        _ deliver: (isolated Home, Result<Response, BusError>) -> Void
    ) {
        if request.invalidityError == nil { deliver(actor, result) }
    }
}
