internal import EarshotWire

/// Removal of a handler with more requests than one pass removes.
///
/// Its name belongs to another record from the start, so no look-up finds its requests. They are removed in slices.
struct HandlerRemoval: Equatable {
    /// Clients that listened when it lost its name, except the remover. Each receives one `FAILED … removed` per
    /// request.
    var failureRecipients: [Handle<ClientSession>]
    /// Message that removed the handler.
    let message: MessagePosition
}

/// Requests that a removal names: all of the handlers that match, or one.
struct RemovedRequests {
    let handlerPattern: HandlerPattern
    /// ID of the one request; nil for all.
    var request: RequestID?
}

/// Removal whose reply can overtake a terminal: one that was sent in the same pass, and that the socket refuses.
struct OvertakableRemoval {
    let client: ClientID
    let requests: RemovedRequests
    /// Last sequence number that was sent before it.
    let sequence: UInt64
}

/// Removal that a client has requested and that is under way: by REMOVE, or by a FETCH that replaces.
///
/// ```
/// unnaming ─→ withdrawing (terminals that wait) ─→ awaiting (handlers without names) ─→ (answered)
/// ```
///
/// The handlers that it awaits are removed during the withdrawal, too. REMOVE of one request begins with the
/// withdrawal.
struct ClientRemoval {
    /// Continuation of a removal.
    enum RemovalContinuation {
        /// Reply to REMOVE of handlers.
        case replyToHandlerRemoval
        /// Reply to REMOVE of one request, with whether that was open.
        case replyToRequestRemoval(HandlerID, RequestID, wasOpen: Bool)
        /// FETCH that replaces.
        case replacementFetch(Fetch, RequestBody?)
    }

    let requests: RemovedRequests
    let continuation: RemovalContinuation
    /// Name at which the next slice of handlers begins; nil for the first.
    var nextHandlerName: String?
    /// Whether handlers may still have names that match.
    var mayMatchNamedHandlers: Bool
    /// Number of removed requests that had not ended.
    var removedOpenRequestCount = 0
    /// Handlers without names whose requests must be gone before the removal ends.
    var awaitedHandlers: Set<Handle<HandlerEntry>> = []

    /// - Parameter removedOpenRequestCount: number of its requests that are removed already.
    init(_ pattern: HandlerPattern, removedOpenRequestCount: Int) {
        requests = RemovedRequests(handlerPattern: pattern)
        continuation = .replyToHandlerRemoval
        mayMatchNamedHandlers = true
        self.removedOpenRequestCount = removedOpenRequestCount
    }

    /// REMOVE of one request, which is removed already.
    init(ofRequest request: RequestID, _ handler: HandlerID, wasOpen: Bool) {
        requests = RemovedRequests(handlerPattern: .handler(handler), request: request)
        continuation = .replyToRequestRemoval(handler, request, wasOpen: wasOpen)
        mayMatchNamedHandlers = false
    }

    /// - Parameter body: body of the request.
    init(forReplacementFetch fetch: Fetch, _ body: RequestBody?) {
        requests = RemovedRequests(handlerPattern: .handler(fetch.handler))
        continuation = .replacementFetch(fetch, body)
        mayMatchNamedHandlers = true
    }

    /// Whether the client stays subscribed.
    var isReplacingRequest: Bool { if case .replacementFetch = continuation { true } else { false } }

    /// Body of the FETCH that waits for the removal; nil without one.
    var body: RequestBody? { if case .replacementFetch(_, let body) = continuation { body } else { nil } }
}

/// A running flight without requests, whose cancellation waits for the remaining messages of its client.
struct DeferredCancellation {
    /// Message that removed the last request; nil if no message did.
    let message: MessagePosition?
    /// Outcome of the flight, kept for a request that rejoins it; nil while the transfer runs. One reference is held.
    var outcome: Handle<Outcome>?
}

/// Position of a message in the input of its client's session.
struct MessagePosition: Equatable {
    let client: ClientID
    /// Number of messages of the session that the broker had read, including this one.
    let messageNumber: UInt64
}
