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
                if request.obstacle == nil { deliver(result) }
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
            await Self.call(on: actor, request, result, deliver)
        }
    }

    private func fetch(
        _ url: String, _ priority: Priority, _ options: FetchOptions, replaces: Bool,
        _ deliver: @escaping @Sendable (Request, Result<Response, BusError>) async -> Void
    ) throws -> Request {
        let key = bus.nextKey(state.name)
        let fetch = Shared(try options.request(key, url, priority))
        let request = Request(key, state, bus.commands)
        try request.send(fetch, .function { await deliver(request, $0) }, replaces: replaces)
        return request
    }

    /// Checks the request and calls the closure in one step of the actor, so that a removal on the actor precedes both
    /// or follows both.
    private static func call<Home: Actor>(
        on actor: isolated Home, _ request: Request, _ result: Result<Response, BusError>,
        _ deliver: (isolated Home, Result<Response, BusError>) -> Void
    ) {
        if request.obstacle == nil { deliver(actor, result) }
    }
}
