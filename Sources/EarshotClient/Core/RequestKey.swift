public import EarshotWire

/// What names a request among all of a broker's: its handler, and the ID chosen by the client.
public struct RequestKey: Hashable, Sendable {
    public var handler: HandlerID
    public var request: RequestID

    public init(_ handler: HandlerID, _ request: RequestID) {
        self.handler = handler
        self.request = request
    }

    init(_ fetch: Fetch) {
        self.init(fetch.handler, fetch.request)
    }
}
