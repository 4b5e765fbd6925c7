internal import EarshotWire

/// Record of a live handler in `BusLoop`: its name and its open requests.
final class OpenHandler {
    let state: HandlerState
    let name: OpenName
    /// Open requests, unordered.
    private(set) var requests: [OpenReceiver] = []

    init(_ state: HandlerState, _ name: OpenName) {
        self.state = state
        self.name = name
    }

    /// Adds a request.
    func add(_ request: Request, _ receiver: Receiver) -> OpenReceiver {
        let open = OpenReceiver(request, receiver, self, at: requests.count)
        requests.append(open)
        return open
    }

    /// Removes a request in O(1): the last one moves to its index.
    func remove(_ open: OpenReceiver) {
        let last = requests.removeLast()
        guard last !== open else { return }
        last.place = open.place
        requests[open.place] = last
    }
}

/// A handler name and the number of its handlers.
final class OpenName {
    var handlers = 0
    /// Whether this bus made a request under the name. Otherwise the broker does not know a generated name.
    var wasUsed = false
}

/// An open request.
final class OpenReceiver {
    let request: Request
    let receiver: Receiver
    unowned let handler: OpenHandler
    /// Index in the handler's `requests`.
    fileprivate var place: Int

    fileprivate init(_ request: Request, _ receiver: Receiver, _ handler: OpenHandler, at place: Int) {
        self.request = request
        self.receiver = receiver
        self.handler = handler
        self.place = place
    }
}
