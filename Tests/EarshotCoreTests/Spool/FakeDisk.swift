import EarshotWire

@testable import EarshotCore

/// A disk for durable requests of a core under test. What a core asked for is done when the test says so, and outlives
/// it.
struct FakeDisk {
    struct Row: Equatable {
        var acceptedAt: Int64
        var head: [UInt8]
        var result: DurableResult?
    }

    private(set) var rows: [DurableID: Row] = [:]
    private var waiting: [Action] = []
    /// Whether nothing more can be written.
    var isFull = false
    private var lastBody: UInt64 = 2_000_000

    /// Takes what was asked for.
    mutating func take(_ actions: [Action]) {
        waiting += actions.filter { action in
            switch action {
            case .storeDurable, .storeResult, .readResult, .forgetDurable: true
            default: false
            }
        }
    }

    /// Changes when a row was accepted, as damage would.
    mutating func date(_ id: DurableID, _ acceptedAt: Int64) { rows[id]?.acceptedAt = acceptedAt }

    /// Forgets what was asked for and not done: a broker's end.
    mutating func lose() { waiting = [] }

    /// Does all that was asked for, and tells the core.
    mutating func work(_ core: inout BrokerCore, now: Tick) {
        let taken = waiting
        waiting = []
        for action in taken {
            switch action {
            case .storeDurable(let id, let acceptedAt, let head):
                guard !isFull else {
                    core.durableRefused(id, isFull: true, now: now)
                    continue
                }
                rows[id] = Row(acceptedAt: acceptedAt, head: head)
                core.durableStored(id, now: now)
            case .storeResult(let id, let result):
                let isStored = !isFull && rows[id] != nil
                if isStored { rows[id]?.result = result }
                core.durableRecorded(id, isStored: isStored, now: now)
            case .readResult(let id):
                guard let result = rows[id]?.result else {
                    core.durableRead(id, nil, now: now)
                    continue
                }
                core.durableRead(id, DurableContent(head: result.head, body: body(of: result)), now: now)
            case .forgetDurable(let id): rows[id] = nil
            default: break
            }
        }
    }

    /// Tells a new core of what is there.
    func restore(_ core: inout BrokerCore, now: Tick) {
        for (id, row) in rows.sorted(by: { $0.key.rawValue < $1.key.rawValue }) {
            core.durableRestored(
                DurableEntry(id: id, acceptedAt: row.acceptedAt, head: row.head, hasResult: row.result != nil), now: now
            )
        }
    }

    private mutating func body(of result: DurableResult) -> CachedBody {
        if result.body != nil {
            lastBody += 1
            return .inline(BodyID(rawValue: lastBody))
        }
        return result.file.map { .file($0) } ?? .missing
    }
}
