internal import EarshotWire

/// Removal of a handler with more requests than one pass removes.
///
/// Its name belongs to another record from the start, so no look-up finds its requests. They are removed in slices.
struct HandlerRemoval: Equatable {
    /// Clients that listened when it lost its name, except the remover. Each receives one `FAILED … removed` per
    /// request.
    var listeners: [Handle<ClientSession>]
    /// Message that removed the handler.
    let message: MessageMark
}

/// Removal that a client has requested and that is under way: by REMOVE, or by a FETCH that replaces.
struct ClientRemoval {
    let pattern: HandlerPattern
    /// FETCH that is carried out after the removal, with its body; nil for a REMOVE, which is answered then.
    var fetch: (message: Fetch, body: RequestBody?)?
    /// Name at which the next slice of handlers begins; nil for the first.
    var next: String?
    /// Whether handlers may still have names that match.
    var isUnnaming = true
    /// Number of removed requests that had not ended.
    var count: Int
    /// Handlers without names whose requests must be gone before the removal ends.
    var awaited: Set<Handle<HandlerEntry>> = []

    init(_ pattern: HandlerPattern, count: Int) {
        self.pattern = pattern
        self.count = count
    }

    /// - Parameter body: body of the request.
    init(replacingBy fetch: Fetch, _ body: RequestBody?) {
        self.init(.handler(fetch.handler), count: 0)
        self.fetch = (fetch, body)
    }
}
