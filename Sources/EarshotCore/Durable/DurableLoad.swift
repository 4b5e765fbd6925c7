internal import EarshotWire
internal import OrderedCollections

/// Rows of earlier brokers that the core has not loaded from the table of durable requests, and the messages that wait
/// for them.
///
/// One scan of the table runs at a time, and reads one slice at a time:
///
/// ```
/// (none) → allRows → (none)    loads the rows of all users, once
/// (none) ⇄ unloadedRows        loads rows that a quota left in the table, when there is room again
/// (none) ⇄ rowsToRemove        deletes those of them that a client removes
/// ```
///
/// A row that its user's quota does not admit stays in the table, and so do all later ones of that user.
struct DurableLoad {
    /// Rows of one user that stay in the table.
    struct UnloadedRows {
        /// All rows of the user after this ID are in the table only.
        var lastLoadedID: DurableID
        /// Bytes of the first of them.
        var firstRowBytes: Int
    }

    /// Purpose of reading the table.
    enum Scan {
        /// Loads the rows of all users, once.
        case allRows
        /// Loads rows that a quota left in the table.
        case unloadedRows(PrincipalName)
        /// Deletes those of them that a waiting message removes.
        case rowsToRemove(RemovalScan)

        /// User whose rows are read; nil for all.
        var principal: PrincipalName? {
            switch self {
            case .allRows: nil
            case .unloadedRows(let name): name
            case .rowsToRemove(let scan): scan.principal
            }
        }
    }

    /// Deletion of rows that a waiting message removes.
    struct RemovalScan {
        let principal: PrincipalName
        let removal: Removal
        /// Sender of the message.
        let client: GenerationalHandle<ClientSession>
        /// Number of deleted rows.
        var deletedRowCount = 0
        /// Whether rows are left.
        var hasRemainingRows = false
    }

    /// Requests that a message removes in the namespace of its sender.
    enum Removal {
        case handlers(HandlerPattern)
        case request(HandlerID, RequestID)

        /// Creates the removal that a message requests; nil if it removes no requests.
        init?(_ message: ClientMessage) {
            switch message {
            case .removeHandlers(let pattern): self = .handlers(pattern)
            case .removeRequest(let handler, let request): self = .request(handler, request)
            case .fetch(let fetch) where fetch.options.replacesHandler: self = .handlers(.handler(fetch.handler))
            case .fetch, .hello, .retry, .subscribe, .unsubscribe, .setPriority, .storeCookies, .acknowledge, .query,
                .changeSetting, .readBody, .takeFile, .bye:
                return nil
            }
        }

        func includesRequest(of fetch: Fetch) -> Bool {
            switch self {
            case .handlers(let pattern): pattern.matches(fetch.handler)
            case .request(let handler, let request): fetch.handler == handler && fetch.request == request
            }
        }
    }

    /// Message that the core carries out after a scan, with the body of a FETCH.
    struct WaitingMessage {
        let message: ClientMessage
        let body: RequestBody?
        /// Number of rows that a scan has deleted for it; nil before that.
        var deletedRowCount: Int?
    }

    /// The scan that runs; nil without one.
    var scan: Scan?
    /// Users with rows that stay in the table.
    var unloadedRowsByUser: OrderedDictionary<PrincipalName, UnloadedRows> = [:]
    /// Waiting messages by client, in the order of their arrival. A client has at most one, because the shell passes no
    /// further message of it.
    var waitingMessages: OrderedDictionary<Handle<ClientSession>, WaitingMessage> = [:]
    /// Spool files of results in the table, whose paths clients of earlier brokers may have. Held until all rows are
    /// loaded, each of which holds its own.
    var heldSpoolFiles: [String] = []
    /// Number of rows that were loaded.
    var loadedRowCount = 0

    /// Whether the table may have rows that are not loaded.
    var hasRows: Bool { scan != nil || !unloadedRowsByUser.isEmpty }

    var isEmpty: Bool { !hasRows && waitingMessages.isEmpty && heldSpoolFiles.isEmpty }

    /// Whether waiting messages can be carried out.
    var hasRunnableMessages: Bool { scan == nil && !waitingMessages.isEmpty }

    /// Whether the rows of all users are being loaded.
    var isLoadingAll: Bool { if case .allRows? = scan { true } else { false } }

    /// Returns whether a waiting message has this body.
    func holdsBody(_ body: BodyID) -> Bool {
        !waitingMessages.isEmpty && waitingMessages.values.contains { $0.body?.bodyID == body }
    }

    /// Returns whether a message depends on the rows of all users: it names, lists or removes requests that may be
    /// among them. A plain FETCH does not, because a row takes its ID back when it is loaded.
    static func needsRowsLoaded(_ message: ClientMessage) -> Bool {
        switch message {
        case .fetch(let fetch): fetch.options.isDurable || fetch.options.replacesHandler
        case .retry, .removeHandlers, .removeRequest, .setPriority: true
        case .query(let query, _):
            switch query {
            case .handlers, .requests, .explainRequest: true
            case .ping, .status, .ledger, .origins, .workers, .settings, .cluster, .cookies: false
            }
        case .hello, .subscribe, .unsubscribe, .storeCookies, .acknowledge, .changeSetting, .readBody, .takeFile, .bye:
            false
        }
    }
}
