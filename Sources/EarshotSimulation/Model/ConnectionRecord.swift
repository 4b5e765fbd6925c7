internal import DequeModule
internal import EarshotCore
internal import EarshotWire

/// What the model knows of one client's connection.
final class ConnectionRecord {
    let id: ClientID
    let isRequestReply: Bool
    /// Whether HELLO was accepted.
    var isOpen = false
    /// Nil: a terminal counts as delivered when the socket took it.
    var window: Int?
    var handlers: Set<HandlerID> = []
    var subtrees: Set<HandlerID> = []
    /// Requests it owns that have not ended, by serial.
    var owned: [Int: RequestRecord] = [:]
    /// Terminals not sent, by name, in the order in which their requests ended.
    var due: [RequestName: [RequestRecord]] = [:]
    var dueCount = 0
    /// What it removed and was not asked for since.
    var removed: Set<RequestName> = []
    var removedHandlers: Set<HandlerID> = []
    /// Terminals sent and not acknowledged, oldest first.
    var inFlight: Deque<RequestRecord> = []
    var acknowledged: UInt64 = 0
    /// Whether its socket refused a terminal and was not writable since.
    var isBlocked = false

    init(_ id: ClientID, isRequestReply: Bool) {
        self.id = id
        self.isRequestReply = isRequestReply
    }

    var lastSequence: UInt64 { acknowledged + UInt64(inFlight.count) }

    /// Terminals neither acknowledged nor lost.
    var waiting: Int { inFlight.count + dueCount }

    /// Bytes of header fields in them. O(their number).
    var waitingFieldBytes: Int {
        let requests = due.values.joined() + inFlight
        return requests.reduce(0) { $0 + ($1.ending?.completion?.httpFields.count ?? 0) }
    }

    /// Whether work is started for it.
    func isServed(_ limits: CoreLimits) -> Bool { !isBlocked && waiting < window ?? limits.dueDeliveries }

    func owe(_ request: RequestRecord) {
        due[request.name, default: []].append(request)
        dueCount += 1
        removed.remove(request.name)
        removedHandlers.remove(request.name.handler)
    }

    /// Takes back what was owed and not sent for these names.
    func withdraw(_ names: [RequestName]) -> [RequestRecord] {
        var taken: [RequestRecord] = []
        for name in names {
            guard let owed = due.removeValue(forKey: name) else { continue }
            taken += owed
            removed.insert(name)
        }
        dueCount -= taken.count
        return taken
    }
}
