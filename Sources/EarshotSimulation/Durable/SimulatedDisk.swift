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
            guard let head = result?.0.head, case .terminal(let terminal)? = try? BrokerMessage(head: head),
                case .failed(let failure) = terminal.outcome
            else { return nil }
            return failure.code
        }
    }

    /// Results for the core.
    enum Answer {
        case rows([DurableEntry])
        case stored(DurableID)
        case refused(DurableID)
        case recorded(DurableID, isStored: Bool)
        case read(DurableID, (DurableResult, content: String?)?)
        case reopened(DurableID, head: [UInt8]?)
    }

    private(set) var rows: [DurableID: Row] = [:]
    /// Number of rows of a request; an earlier one of the same name may not be deleted yet.
    private var rowCounts: [RequestName: Int] = [:]
    /// Queued requests, with the content of their bodies.
    private var waiting: [(action: Action.Durable, content: String?)] = []
    var answers: [Answer] = []
    /// Requests deleted since the last check.
    var deletedRequests: [(name: RequestName, id: DurableID)] = []
    /// Whether it rejects writes.
    var isFull = false
    /// Deletions that it has rejected, to be tried again.
    private var unforgotten: [DurableID] = []
    private let canary: DurableCanary?

    init(canary: DurableCanary?) {
        self.canary = canary
    }

    /// The next slice of rows after one, of one principal or of all.
    private func entries(after id: DurableID?, _ principal: PrincipalName?) -> [DurableEntry] {
        let next = rows.filter { other, row in
            other.rawValue > id?.rawValue ?? 0 && (principal == nil || row.principal == principal)
                && !unforgotten.contains(other)
        }
        return next.sorted { $0.key.rawValue < $1.key.rawValue }.prefix(Self.sliceRows).map { id, row in
            DurableEntry(
                id: id, acceptedAt: row.acceptedAt, head: row.head, principal: owner(of: row, id),
                hasResult: row.result != nil, failure: row.failure,
                resultBytes: row.result.map { $0.0.head.count + $0.0.length } ?? 0)
        }
    }

    /// Number of rows that are read at once.
    private static let sliceRows = 8

    /// Name of the principal of a row, for a new broker.
    private func owner(of row: Row, _ id: DurableID) -> String? {
        canary == .disowned && id.rawValue % 8 == 0 ? nil : row.principal?.description
    }

    var isQuiet: Bool { waiting.isEmpty && answers.isEmpty && (isFull || unforgotten.isEmpty) }

    func hasRow(of name: RequestName) -> Bool { rowCounts[name] != nil }

    mutating func submit(_ action: Action.Durable, content: String?) { waiting.append((action, content)) }

    mutating func kill() {
        waiting = []
        answers = []
        unforgotten = []
    }

    /// Executes the oldest queued requests as one batch.
    mutating func work(_ count: Int) {
        let taken = waiting.prefix(count)
        waiting.removeFirst(taken.count)
        if !isFull {
            let earlier = unforgotten
            unforgotten = []
            for id in earlier { forget(id) }
        }
        for (action, content) in taken { carryOut(action, content) }
    }

    var waitingCount: Int { waiting.count }

    private mutating func carryOut(_ action: Action.Durable, _ content: String?) {
        switch action {
        case .readRows(let id, let principal): answers.append(.rows(entries(after: id, principal)))
        case .store(let id, let principal, let acceptedAt, let head):
            guard !isFull, case .fetch(let fetch)? = try? ClientMessage(head: head) else {
                answers.append(.refused(id))
                return
            }
            if canary != .unwritten || id.rawValue % 8 != 0 {
                let handler = ReferenceModel.qualified(fetch.handler, of: principal)
                let name = RequestName(handler: handler, request: fetch.request)
                rows[id] = Row(
                    name: name, principal: principal, url: fetch.url, acceptedAt: acceptedAt, head: head)
                rowCounts[name, default: 0] += 1
            }
            answers.append(.stored(id))
        case .storeResult(let id, let result):
            let isStored = !isFull && rows[id] != nil
            if isStored { rows[id]?.result = (result, content) }
            answers.append(.recorded(id, isStored: isStored))
        case .readResult(let id):
            let other = canary == .exchanged ? rows.values.first { $0.result != nil && $0.name != rows[id]?.name } : nil
            answers.append(.read(id, (other ?? rows[id])?.result))
        case .reopen(let id, let acceptedAt):
            guard !isFull, rows[id]?.result != nil else {
                answers.append(.reopened(id, head: nil))
                return
            }
            rows[id]?.result = nil
            rows[id]?.acceptedAt = acceptedAt
            answers.append(.reopened(id, head: rows[id]?.head))
            if canary == .unkept { rows[id] = nil }
        case .forget(let id):
            if isFull { unforgotten.append(id) } else { forget(id) }
        case .limit: break
        }
    }

    private mutating func forget(_ id: DurableID) {
        guard let name = rows[id]?.name else { return }
        deletedRequests.append((name, id))
        guard canary != .unforgotten || id.rawValue % 8 != 0 else { return }
        rows[id] = nil
        let left = rowCounts[name, default: 1] - 1
        rowCounts[name] = left > 0 ? left : nil
    }
}

/// Simulated shell storage for bodies that wait too long: in the spool, or in memory while that is full.
struct SimulatedWaiting {
    /// Whether writes fail.
    var isFull = false
    /// Contents of bodies by name.
    private(set) var bodies: [String: String] = [:]
    /// Names of bodies that could not be written, but are available in memory.
    private var unwritten: Set<String> = []

    /// Stores a body. An existing one of the same name is not written again.
    /// - Returns: Whether it is stored.
    mutating func keepContent(_ content: String?, as name: String) -> Bool {
        let isWritten = bodies[name] != nil && !unwritten.contains(name)
        bodies[name] = content
        if isFull, !isWritten { unwritten.insert(name) } else { unwritten.remove(name) }
        return isWritten || !isFull
    }

    mutating func release(_ name: String) {
        bodies[name] = nil
        unwritten.remove(name)
    }

    mutating func kill() {
        bodies = [:]
        unwritten = []
    }
}
