internal import EarshotWire

/// A handler that is alive, as the thread of its bus knows it.
final class OpenHandler {
    let state: HandlerState
    let name: OpenName
    /// What has not ended, in no order.
    private(set) var requests: [OpenReceiver] = []

    init(_ state: HandlerState, _ name: OpenName) {
        self.state = state
        self.name = name
    }

    /// Begins a request.
    func add(_ request: Request, _ receiver: Receiver) -> OpenReceiver {
        let open = OpenReceiver(request, receiver, self, at: requests.count)
        requests.append(open)
        return open
    }

    /// Forgets one of its requests. O(1): the last one takes its place.
    func remove(_ open: OpenReceiver) {
        let last = requests.removeLast()
        guard last !== open else { return }
        last.place = open.place
        requests[open.place] = last
    }
}

/// A name, and how many handlers have it.
final class OpenName {
    var handlers = 0
    /// Whether anything was asked for under it by this bus: else the broker knows nothing of one that it made itself.
    var wasUsed = false
}

/// A request that has not ended.
final class OpenReceiver {
    let request: Request
    let receiver: Receiver
    unowned let handler: OpenHandler
    /// Where it is among its handler's.
    fileprivate var place: Int

    fileprivate init(_ request: Request, _ receiver: Receiver, _ handler: OpenHandler, at place: Int) {
        self.request = request
        self.receiver = receiver
        self.handler = handler
        self.place = place
    }
}
