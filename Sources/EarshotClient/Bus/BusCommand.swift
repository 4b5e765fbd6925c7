internal import EarshotWire

/// Command from a task to the loop thread. `Bus`, `Request` and `Watch` send it through a mailbox, and `BusLoop`
/// executes it.
enum BusCommand: Sendable {
    /// Registers a new handler.
    case openHandler(HandlerState)
    /// Starts a request. `replaces` ends all earlier requests of its handler.
    case fetch(Shared<Fetch>, Request, Receiver, replaces: Bool)
    case cancel(RequestKey)
    case setPriority(RequestKey, PriorityClass)
    /// Changes the priority of all requests of the handler with this number.
    case setHandlerPriority(UInt64, PriorityClass)
    /// Removes the handler with this number.
    case removeHandler(UInt64)
    /// Removes handlers by name, with the requests of all programs.
    case purgePattern(HandlerPattern, Answer<Int>)
    /// Submits a durable request.
    indirect case submit(Fetch, Answer<Void>)
    /// Repeats a durable request that has failed.
    case retry(RequestKey, Answer<Void>)
    /// Withdraws a submission whose task was cancelled.
    case withdraw(RequestKey, Answer<Void>)
    /// Starts a watch. The continuation is resumed when the subscription is active.
    case watch(WatchState, CheckedContinuation<Void, any Error>)
    /// Continues a paused watch that has room again.
    case resumeWatch(WatchState)
    /// Acknowledges a claimed result.
    case acknowledge(WatchState, DeliveredTerminal, Answer<Void>)
    /// Ends a watch.
    case endWatch(WatchState)
    /// Requests the sizes of the loop's tables.
    case countTables(CheckedContinuation<BusTableSizes, Never>)
    /// Closes the bus.
    case close

    /// Fails the waiting task with ``BusError/Code/closed``.
    func failAsClosed() {
        switch self {
        case .fetch(_, _, let receiver, _): receiver.complete(with: .failed(.busClosed))
        case .purgePattern(_, let answer): answer.complete(.failure(.busClosed))
        case .submit(_, let answer), .retry(_, let answer), .acknowledge(_, _, let answer):
            answer.complete(.failure(.busClosed))
        case .watch(_, let continuation): continuation.resume(throwing: BusError.busClosed)
        case .countTables(let continuation): continuation.resume(returning: BusTableSizes())
        case .openHandler, .cancel, .setPriority, .setHandlerPriority, .removeHandler, .withdraw, .resumeWatch,
            .endWatch, .close:
            break
        }
    }
}

/// Sizes of the loop's tables. All zero while there are no handlers, requests and watches.
struct BusTableSizes: Equatable, Sendable {
    var handlers = 0
    var handlerNames = 0
    var requests = 0
    var watches = 0
    /// Whether the loop has noticed that it is disconnected.
    var isDisconnected = false
}
