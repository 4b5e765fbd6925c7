internal import EarshotWire

/// Command from a task to the loop thread. `Bus`, `Request` and `Watch` send it through a mailbox, and `BusLoop`
/// executes it.
enum BusCommand: Sendable {
    /// Registers a new handler.
    case open(HandlerState)
    /// Starts a request. `replaces` ends all earlier requests of its handler.
    case fetch(Shared<Fetch>, Request, Receiver, replaces: Bool)
    case cancel(RequestKey)
    case setPriority(RequestKey, PriorityClass)
    /// Changes the priority of all requests of the handler with this number.
    case setHandlerPriority(UInt64, PriorityClass)
    /// Removes the handler with this number.
    case remove(UInt64)
    /// Removes handlers by name, with the requests of all programs.
    case purge(HandlerPattern, Answer<Int>)
    /// Submits a durable request.
    indirect case submit(Fetch, Answer<Void>)
    /// Repeats a durable request that has failed.
    case retry(RequestKey, Answer<Void>)
    /// Withdraws a submission whose task was cancelled.
    case withdraw(RequestKey, Answer<Void>)
    /// Starts a watch. The continuation is resumed when the subscription is active.
    case watch(WatchState, CheckedContinuation<Void, any Error>)
    /// Continues a paused watch that has room again.
    case resume(WatchState)
    /// Acknowledges a claimed result.
    case acknowledge(WatchState, DeliveredTerminal, Answer<Void>)
    /// Ends a watch.
    case endWatch(WatchState)
    /// Requests a census.
    case count(CheckedContinuation<BusTableSizes, Never>)
    /// Closes the bus.
    case close

    /// Fails the waiting task with ``BusError/Code/closed``.
    func refuse() {
        switch self {
        case .fetch(_, _, let receiver, _): receiver.end(.failed(.closed))
        case .purge(_, let answer): answer.complete(.failure(.closed))
        case .submit(_, let answer), .retry(_, let answer), .acknowledge(_, _, let answer):
            answer.complete(.failure(.closed))
        case .watch(_, let continuation): continuation.resume(throwing: BusError.closed)
        case .count(let continuation): continuation.resume(returning: BusTableSizes())
        case .open, .cancel, .setPriority, .setHandlerPriority, .remove, .withdraw, .resume, .endWatch, .close: break
        }
    }
}

/// Sizes of the loop's tables. All zero while there are no handlers, requests and watches.
struct BusTableSizes: Equatable, Sendable {
    var handlers = 0
    var names = 0
    var requests = 0
    var watches = 0
    /// Whether the loop has noticed that it is disconnected.
    var isDisconnected = false
}
