package import EarshotWire

/// Identity of a request in the broker: its handler, and the ID chosen by the client.
package struct RequestKey: Hashable, Sendable {
    /// Handler of the request.
    package var handler: HandlerID
    /// ID of the request under its handler.
    package var request: RequestID

    /// Creates a key.
    ///
    /// - Parameters:
    ///   - handler: handler of the request.
    ///   - request: ID of the request under its handler.
    package init(_ handler: HandlerID, _ request: RequestID) {
        self.handler = handler
        self.request = request
    }

    init(_ fetch: Fetch) {
        self.init(fetch.handler, fetch.request)
    }
}
