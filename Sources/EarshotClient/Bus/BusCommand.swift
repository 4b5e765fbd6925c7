internal import EarshotWire

/// What a program's tasks tell the thread of their bus.
enum BusCommand: Sendable {
    /// A handler was made.
    case open(HandlerState)
    /// Something is wanted. With `replaces` all that its handler wanted before is not.
    case fetch(Shared<Fetch>, Request, Receiver, replaces: Bool)
    case cancel(RequestKey)
    case setPriority(RequestKey, PriorityClass)
    /// Of all requests of the handler of this number.
    case setHandlerPriority(UInt64, PriorityClass)
    /// The handler of this number is gone.
    case remove(UInt64)
    /// Nothing of these handlers is wanted any more, whoever asked for it.
    case purge(HandlerPattern, Answer<Int>)
    /// Something is wanted that outlives the program.
    indirect case submit(Fetch, Answer<Void>)
    /// Who submitted it waits no longer.
    case withdraw(RequestKey, Answer<Void>)
    /// Somebody listens; the continuation is resumed when the broker knows it.
    case watch(WatchState, CheckedContinuation<Void, any Error>)
    /// A watcher has room again.
    case resume(WatchState)
    /// A watcher is done with a result that it has claimed.
    case acknowledge(WatchState, Delivery, Answer<Void>)
    /// A watcher is gone.
    case endWatch(WatchState)
    /// What is there is to be counted.
    case count(CheckedContinuation<BusCensus, Never>)
    /// The end.
    case close

    /// Tells who waits that nobody will carry it out.
    func refuse() {
        switch self {
        case .fetch(_, _, let receiver, _): receiver.end(.failed(.closed))
        case .purge(_, let answer): answer.tell(.failure(.closed))
        case .submit(_, let answer), .acknowledge(_, _, let answer): answer.tell(.failure(.closed))
        case .watch(_, let continuation): continuation.resume(throwing: BusError.closed)
        case .count(let continuation): continuation.resume(returning: BusCensus())
        case .open, .cancel, .setPriority, .setHandlerPriority, .remove, .withdraw, .resume, .endWatch, .close: break
        }
    }
}

/// What the thread of a bus holds: nothing, when nothing is wanted.
struct BusCensus: Equatable, Sendable {
    var handlers = 0
    var names = 0
    var requests = 0
    var watches = 0
    /// Whether its thread knows that there is no connection to a broker.
    var isApart = false
}
