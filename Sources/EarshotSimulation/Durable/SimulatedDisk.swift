internal import EarshotCore
internal import EarshotWire

/// Simulated disk for durable requests. Requests are queued, executed in batches that are atomic, and confirmed later.
/// A kill loses queued and unconfirmed requests, and keeps written rows.
struct SimulatedDisk {
    struct Row {
        /// With the principal, as in the model.
        var name: RequestName
        var principal: PrincipalName?
        var url: String
        var acceptedAt: Int64
        var head: [UInt8]
        var result: (DurableResult, content: String?)?

        /// Code of its result, if that is a failure.
        var failure: String? {
            guard let head = result?.0.terminalHead, case .terminal(let terminal)? = try? BrokerMessage(head: head),
                case .failed(let failure) = terminal.outcome
            else { return nil }
            return failure.code
        }
    }

    /// Results for the core.
    enum Answer {
        case rows([DurableEntry])
        case requestStored(DurableID)
        case storeRefused(DurableID)
        case resultRecorded(DurableID, isStored: Bool)
        case resultRead(DurableID, (DurableResult, content: String?)?)
        case requestReopened(DurableID, head: [UInt8]?)
    }

    private(set) var rows: [DurableID: Row] = [:]
    /// Number of rows of a request; an earlier one of the same name may not be deleted yet.
    private var rowCounts: [RequestName: Int] = [:]
    /// Queued requests, with the content of their bodies.
    private var queuedActions: [(action: Action.Durable, content: String?)] = []
    var answers: [Answer] = []
    /// Requests deleted since the last check.
    var deletedRequests: [(name: RequestName, id: DurableID)] = []
    /// Whether it rejects writes.
    var isFull = false
    /// Deletions that it has rejected, to be tried again.
    private var rejectedDeletions: [DurableID] = []
    private let canary: DurableCanary?

    init(canary: DurableCanary?) {
        self.canary = canary
    }

    /// The next slice of rows after one, of one principal or of all.
    private func entries(after id: DurableID?, _ principal: PrincipalName?) -> [DurableEntry] {
        let next = rows.filter { other, row in
            other.rawValue > id?.rawValue ?? 0 && (principal == nil || row.principal == principal)
                && !rejectedDeletions.contains(other)
        }
        return next.sorted { $0.key.rawValue < $1.key.rawValue }.prefix(Self.rowsPerSlice).map { id, row in
            DurableEntry(
                id: id, acceptedAt: row.acceptedAt, head: row.head, principal: owner(of: row, id),
                hasResult: row.result != nil, failure: row.failure,
                resultBytes: row.result.map { $0.0.terminalHead.count + $0.0.bodyLength } ?? 0)
        }
    }

    /// Number of rows that are read at once.
    private static let rowsPerSlice = 8

    /// Name of the principal of a row, for a new broker.
    private func owner(of row: Row, _ id: DurableID) -> String? {
        canary == .lostPrincipal && id.rawValue % 8 == 0 ? nil : row.principal?.description
    }

    var isIdle: Bool { queuedActions.isEmpty && answers.isEmpty && (isFull || rejectedDeletions.isEmpty) }

    func hasRow(of name: RequestName) -> Bool { rowCounts[name] != nil }

    mutating func submit(_ action: Action.Durable, content: String?) { queuedActions.append((action, content)) }

    mutating func discardPendingWork() {
        queuedActions = []
        answers = []
        rejectedDeletions = []
    }

    /// Executes the oldest queued requests as one batch.
    mutating func executeActions(_ count: Int) {
        let taken = queuedActions.prefix(count)
        queuedActions.removeFirst(taken.count)
        if !isFull {
            let earlier = rejectedDeletions
            rejectedDeletions = []
            for id in earlier { deleteRow(id) }
        }
        for (action, content) in taken { executeAction(action, content) }
    }

    var queuedActionCount: Int { queuedActions.count }

    private mutating func executeAction(_ action: Action.Durable, _ content: String?) {
        switch action {
        case .readRows(let id, let principal): answers.append(.rows(entries(after: id, principal)))
        case .storeRequest(let id, let principal, let acceptedAt, let head):
            guard !isFull, case .fetch(let fetch)? = try? ClientMessage(head: head) else {
                answers.append(.storeRefused(id))
                return
            }
            if canary != .unwrittenRequest || id.rawValue % 8 != 0 {
                let handler = ReferenceModel.principalQualified(fetch.handler, of: principal)
                let name = RequestName(handler: handler, request: fetch.request)
                rows[id] = Row(
                    name: name, principal: principal, url: fetch.url, acceptedAt: acceptedAt, head: head)
                rowCounts[name, default: 0] += 1
            }
            answers.append(.requestStored(id))
        case .storeResult(let id, let result):
            let isStored = !isFull && rows[id] != nil
            if isStored { rows[id]?.result = (result, content) }
            answers.append(.resultRecorded(id, isStored: isStored))
        case .readResult(let id):
            let other =
                canary == .swappedResult ? rows.values.first { $0.result != nil && $0.name != rows[id]?.name } : nil
            answers.append(.resultRead(id, (other ?? rows[id])?.result))
        case .reopenRequest(let id, let acceptedAt):
            guard !isFull, rows[id]?.result != nil else {
                answers.append(.requestReopened(id, head: nil))
                return
            }
            rows[id]?.result = nil
            rows[id]?.acceptedAt = acceptedAt
            answers.append(.requestReopened(id, head: rows[id]?.head))
            if canary == .deletedRetry { rows[id] = nil }
        case .deleteRequest(let id):
            if isFull { rejectedDeletions.append(id) } else { deleteRow(id) }
        case .setMaximumSize: break
        }
    }

    private mutating func deleteRow(_ id: DurableID) {
        guard let name = rows[id]?.name else { return }
        deletedRequests.append((name, id))
        guard canary != .undeletedRequest || id.rawValue % 8 != 0 else { return }
        rows[id] = nil
        let left = rowCounts[name, default: 1] - 1
        rowCounts[name] = left > 0 ? left : nil
    }
}

/// Simulated shell storage for bodies that wait too long: in the spool, or in memory while that is full.
struct SimulatedBodySpool {
    /// Whether writes fail.
    var isFull = false
    /// Contents of bodies by name.
    private(set) var bodies: [String: String] = [:]
    /// Names of bodies that could not be written, but are available in memory.
    private var memoryOnlyNames: Set<String> = []

    /// Stores a body. An existing one of the same name is not written again.
    /// - Returns: Whether it is stored.
    mutating func keepContent(_ content: String?, as name: String) -> Bool {
        let isWritten = bodies[name] != nil && !memoryOnlyNames.contains(name)
        bodies[name] = content
        if isFull, !isWritten { memoryOnlyNames.insert(name) } else { memoryOnlyNames.remove(name) }
        return isWritten || !isFull
    }

    mutating func releaseBody(_ name: String) {
        bodies[name] = nil
        memoryOnlyNames.remove(name)
    }

    mutating func discardBodies() {
        bodies = [:]
        memoryOnlyNames = []
    }
}
