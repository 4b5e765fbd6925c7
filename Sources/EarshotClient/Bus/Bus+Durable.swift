internal import EarshotLoop
internal import EarshotWire

/// Durable requests, which the broker stores on disk: submission, repetition, and the claim of their results.
extension Bus {
    /// Stores a durable request in the broker. Returns when it is on disk.
    ///
    /// A durable request outlives this program, the connection and the broker. Its result is stored until a program
    /// claims it with ``claim(_:)``, for at most the broker's setting `durable-time`.
    ///
    /// ```swift
    /// try await bus.submit(url, under: "reports", id: "2026-11")
    /// // Now, or after a restart of the program:
    /// for try await ended in try await bus.claim("reports") {
    ///     try await store(ended.request, ended.result)
    ///     try await ended.acknowledge()
    /// }
    /// ```
    ///
    /// Submission is idempotent: the same request with the same ID is stored once. After an error, submit again.
    /// ``remove(_:)`` deletes stored requests and results. Private brokers store no durable requests.
    ///
    /// - Parameters:
    ///   - url: as for ``Handler/fetch(_:priority:_:)``.
    ///   - handler: a handler name used for durable requests only, 1 to 200 visible ASCII bytes. The first subscriber
    ///     that acknowledges a result consumes it, so neither a ``Handler`` nor a ``Watch`` may use the name.
    ///   - id: unique ID of the request under its handler, 1 to 64 visible ASCII bytes.
    ///   - priority: class of the request in the broker's queue.
    ///   - options: must have the ``FetchOptions/method`` `GET` or `HEAD`. The ``FetchOptions/deadline`` starts with
    ///     the submission and continues over restarts.
    /// - Throws: ``BusError`` with ``BusError/Code/notStored`` if the broker cannot store the request,
    ///   ``BusError/Code/idInUse`` if another request has the ID, ``BusError/Code/invalidRequest``,
    ///   ``BusError/Code/noBroker`` or ``BusError/Code/closed``; `CancellationError` if the task is cancelled, which
    ///   withdraws the request.
    public nonisolated(nonsending) func submit(
        _ url: String, under handler: String, id: String, priority: Priority = .normal,
        _ options: FetchOptions = FetchOptions()
    ) async throws {
        try Task.checkCancellation()
        guard let name = HandlerID(handler) else { throw BusError.invalidHandlerName }
        guard let request = RequestID(id) else { throw BusError.invalidRequestID }
        var fetch = try options.makeFetch(RequestKey(name, request), url: url, priority: priority)
        fetch.options.isDurable = true
        fetch.options.subscribes = false
        let answer = Answer<Void>()
        guard commands.put(.submit(fetch, answer)) else { throw BusError.busClosed }
        try await withTaskCancellationHandler {
            try await answer.value()
        } onCancel: {
            answer.abandon()
            commands.put(.withdraw(RequestKey(name, request), answer))
        }
    }

    /// Repeats a durable request that has failed. Returns when it is pending on disk.
    ///
    /// The failure must wait for a claim: no subscriber has received it, or all of them left without acknowledging it.
    /// The request keeps its options, and its times count from now. It has no effect on a request that has not ended.
    ///
    /// - Parameters:
    ///   - id: ID of the request under its handler.
    ///   - handler: name of the handler.
    /// - Throws: ``BusError`` with ``BusError/Code/unknownRequest`` if no such failure waits,
    ///   ``BusError/Code/notStored`` if the broker cannot write to its disk, ``BusError/Code/invalidRequest``,
    ///   ``BusError/Code/idInUse`` if the program already repeats it, ``BusError/Code/noBroker`` or
    ///   ``BusError/Code/closed``.
    public nonisolated(nonsending) func retry(_ id: String, under handler: String) async throws {
        guard let name = HandlerID(handler) else { throw BusError.invalidHandlerName }
        guard let request = RequestID(id) else { throw BusError.invalidRequestID }
        let answer = Answer<Void>()
        guard commands.put(.retry(RequestKey(name, request), answer)) else { throw BusError.busClosed }
        try await answer.value()
    }

    /// Subscribes to a handler and takes the results of its durable requests: first those that wait on disk, then later
    /// ones.
    ///
    /// Delivery is at least once. Each element must be acknowledged with ``WatchedRequest/acknowledge()``. The next
    /// claim gets all elements that were not acknowledged when the program or the broker ended. At most 64
    /// unacknowledged elements are delivered.
    ///
    /// - Parameter pattern: handler name, or a name that ends in `/` for all handlers below it.
    /// - Returns: an endless sequence of results.
    /// - Throws: as ``watch(_:)``.
    public nonisolated(nonsending) func claim(_ pattern: String) async throws -> Watch {
        try await startWatch(on: pattern, isClaim: true)
    }
}
