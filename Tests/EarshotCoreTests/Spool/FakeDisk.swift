import EarshotWire

@testable import EarshotCore

/// Disk for durable requests of a core under test. Carries out actions when the test calls, and outlives the core.
struct FakeDisk {
    struct Row: Equatable {
        var acceptedAt: Int64
        var head: [UInt8]
        var principal: String?
        var result: DurableResult?
    }

    private(set) var rows: [DurableID: Row] = [:]
    private var waiting: [Action.Durable] = []
    /// Whether all writes fail.
    var isFull = false
    /// Whether the rows of earlier brokers are read. Otherwise the core waits for the next slice.
    var isReading = true
    /// Number of rows of a slice.
    var sliceRows = 1_000
    private var lastBody: UInt64 = 2_000_000

    /// Adds fields to the head of each stored result, as damage could.
    mutating func damage(_ fields: String) {
        for id in rows.keys {
            guard let head = rows[id]?.result?.terminalHead else { continue }
            // A head without HTTP fields ends with the LF of its last named field.
            rows[id]?.result?.terminalHead =
                head + Array((head.last == UInt8(ascii: "\n") ? fields : "\n" + fields).utf8)
        }
    }

    /// Queues the disk's actions.
    mutating func take(_ actions: [Action]) {
        waiting += actions.compactMap { if case .durable(let requested) = $0 { requested } else { nil } }
    }

    /// Changes the acceptance time of a row, as damage would.
    mutating func date(_ id: DurableID, _ acceptedAt: Int64) { rows[id]?.acceptedAt = acceptedAt }

    /// Discards queued actions, as the end of a broker does.
    mutating func lose() { waiting = [] }

    /// Carries out all queued actions and reports the results to the core.
    mutating func work(_ core: inout BrokerCore, now: MonotonicTime) {
        let taken = waiting
        waiting = []
        for action in taken {
            switch action {
            case .readRows(let id, let principal):
                guard isReading else {
                    waiting.append(action)
                    continue
                }
                core.durableRowsRead(entries(after: id, principal?.description), now: now)
            case .storeRequest(let id, let principal, let acceptedAt, let head):
                guard !isFull else {
                    core.durableRequestStoreFailed(id, isFull: true, now: now)
                    continue
                }
                rows[id] = Row(acceptedAt: acceptedAt, head: head, principal: principal?.description)
                core.durableRequestStored(id, now: now)
            case .storeResult(let id, let result):
                let isStored = !isFull && rows[id] != nil
                if isStored { rows[id]?.result = result }
                core.durableOutcomeWritten(id, isStored: isStored, now: now)
            case .readResult(let id):
                guard let result = rows[id]?.result else {
                    core.durableResultRead(id, nil, now: now)
                    continue
                }
                core.durableResultRead(id, DurableOutcome(head: result.terminalHead, body: body(of: result)), now: now)
            case .reopenRequest(let id, let acceptedAt):
                guard !isFull, rows[id]?.result != nil else {
                    core.durableRequestReopened(id, nil, now: now)
                    continue
                }
                rows[id]?.result = nil
                rows[id]?.acceptedAt = acceptedAt
                core.durableRequestReopened(id, rows[id]?.head, now: now)
            case .deleteRequest(let id): rows[id] = nil
            case .setMaximumSize: break
            }
        }
    }

    /// The next slice of rows after one, of one principal or of all.
    private func entries(after id: DurableID?, _ principal: String?) -> [DurableEntry] {
        rows.filter { $0.key.rawValue > id?.rawValue ?? 0 && (principal == nil || $0.value.principal == principal) }
            .sorted { $0.key.rawValue < $1.key.rawValue }.prefix(sliceRows).map { Self.entry($0.key, $0.value) }
    }

    private static func entry(_ id: DurableID, _ row: Row) -> DurableEntry {
        var entry = DurableEntry(
            id: id, acceptedAt: row.acceptedAt, head: row.head, principal: row.principal,
            hasResult: row.result != nil, resultBytes: row.result.map { $0.terminalHead.count + $0.bodyLength } ?? 0)
        if let head = row.result?.terminalHead, case .terminal(let terminal)? = try? BrokerMessage(head: head) {
            switch terminal.outcome {
            case .result(let status, let response): (entry.status, entry.attempts) = (status, response.attempts)
            case .failed(let failure):
                (entry.failure, entry.status, entry.attempts) = (failure.code, failure.status, failure.attempts)
            }
        }
        return entry
    }

    private mutating func body(of result: DurableResult) -> CachedBody {
        if result.body != nil {
            lastBody += 1
            return .inline(BodyID(rawValue: lastBody))
        }
        return result.file.map { .file($0) } ?? .missing
    }
}
