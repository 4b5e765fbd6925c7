internal import EarshotLoop
internal import EarshotWire

/// Requests that outlive the program, and brokers: the broker keeps them on its disk.
extension Bus {
    /// Has the broker keep a request on its disk, and carry it out whatever becomes of this program and of the broker.
    /// Returns when it is on the disk.
    ///
    /// ```swift
    /// try await bus.submit(url, under: "reports", id: "2026-11")
    /// // Now, or in the next life of the program:
    /// for try await ended in try await bus.claim("reports") {
    ///     try await store(ended.request, ended.result)
    ///     try await ended.acknowledge()
    /// }
    /// ```
    ///
    /// What becomes of it is kept until somebody takes it, by ``claim(_:)``, as long as the broker's setting
    /// `durable-time` says. To submit the same again changes nothing, so who does not know whether it was submitted
    /// does it again. It is no longer wanted by ``remove(_:)``. A private broker keeps nothing.
    ///
    /// - Parameters:
    ///   - handler: a name of the program's own, under which no ``Handler`` asks for anything and nobody watches: the
    ///     first who hears a result takes it.
    ///   - id: names it under its handler; 1 to 64 visible ASCII bytes.
    ///   - options: with ``FetchOptions/method`` `GET` or `HEAD`; ``FetchOptions/deadline`` counts from now on, over
    ///     restarts.
    /// - Throws: ``BusError``: ``BusError/Code/notStored`` when the broker cannot keep it, ``BusError/Code/idInUse``
    ///   when another request has this ID; `CancellationError`, and then it is withdrawn.
    public nonisolated(nonsending) func submit(
        _ url: String, under handler: String, id: String, priority: Priority = .normal,
        _ options: FetchOptions = FetchOptions()
    ) async throws {
        try Task.checkCancellation()
        guard let name = HandlerID(handler) else { throw BusError.noName }
        guard let request = RequestID(id) else {
            throw BusError(.invalidRequest, "A request's ID is 1 to 64 bytes of visible ASCII.")
        }
        var fetch = try options.request(RequestKey(name, request), url, priority)
        fetch.options.isDurable = true
        fetch.options.subscribes = false
        let answer = Answer<Void>()
        guard commands.put(.submit(fetch, answer)) else { throw BusError.closed }
        try await withTaskCancellationHandler {
            try await answer.value()
        } onCancel: {
            answer.giveUp()
            commands.put(.withdraw(RequestKey(name, request), answer))
        }
    }

    /// Listens as ``watch(_:)`` does, and takes what was submitted: first what has ended and waits on the disk, then
    /// what ends from now on.
    ///
    /// Each element is the program's to acknowledge. What is not acknowledged when the program or the broker ends comes
    /// again to who claims it next, so each comes at least once. After 64 that are not acknowledged nothing more comes.
    ///
    /// - Parameter pattern: a handler's name, or one with a slash behind it for all handlers below.
    /// - Throws: as ``watch(_:)``.
    public nonisolated(nonsending) func claim(_ pattern: String) async throws -> Watch {
        try await watch(pattern, isClaim: true)
    }
}
