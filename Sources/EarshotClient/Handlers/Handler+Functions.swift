/// Responses that are delivered to a function instead of being awaited.
extension Handler {
    /// Fetches a URL and calls `deliver` on the main actor, once, unless it is not wanted any more by then: on that
    /// actor nothing is delivered after ``remove()``, ``Request/cancel()``, ``replace(with:priority:_:)`` or the
    /// handler's end.
    ///
    /// ```swift
    /// try handler.fetch(url, replaces: true, onMain: { result in
    ///     if case .success(let response) = result { print(response.status) }
    /// })
    /// ```
    ///
    /// - Parameter replaces: whether it takes the place of all that the handler wanted before.
    /// - Returns: what cancels it; it goes on without.
    /// - Throws: ``BusError``: ``BusError/Code/invalidRequest``, ``BusError/Code/removed`` or ``BusError/Code/closed``.
    ///   Then `deliver` is not called.
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

    /// Fetches a URL and calls `deliver` on an actor, otherwise as
    /// ``fetch(_:priority:_:replaces:onMain:)``.
    ///
    /// - Parameter actor: where `deliver` is called; it is given to it.
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

    /// Looks and calls in one step of the actor, so that a removal there comes before both or after both.
    private static func call<Home: Actor>(
        on actor: isolated Home, _ request: Request, _ result: Result<Response, BusError>,
        _ deliver: (isolated Home, Result<Response, BusError>) -> Void
    ) {
        if request.obstacle == nil { deliver(actor, result) }
    }
}
