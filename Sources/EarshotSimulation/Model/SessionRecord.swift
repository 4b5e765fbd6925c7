internal import DequeModule
internal import EarshotCore
internal import EarshotWire

/// What the model knows of one client's session, over one connection or several.
final class SessionRecord {
    /// Its first connection, which names it for good.
    let id: ClientID
    /// Its connection; while it is away the one that it had.
    var connection: ClientID
    let isRequestReply: Bool
    let connectedAt: Tick
    /// What it can be taken over with, if it has a lease.
    let token: SessionToken
    var name: String?
    /// Whether HELLO was accepted.
    var isOpen = false
    var leaseMilliseconds = 0
    /// When its lease ends; nil while it is connected.
    var awayUntil: Tick?
    /// Whether the core has asked for its end.
    var isClosing = false
    /// Whether a terminal could not be read back for it.
    var isUnreadable = false
    /// Messages it said since its HELLO.
    var heard: UInt64 = 0
    /// Its newest replies, oldest first, each with the number of the last terminal before it; all of a session with a
    /// lease are counted.
    var replies: Deque<(reply: ReferenceModel.Reply, place: UInt64)> = []
    var replyCount: UInt64 = 0
    /// How many of the last of them its connection has not been sent.
    var unsentReplies = 0
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
    /// Terminals sent and not acknowledged, oldest first; nil for one that was withdrawn before it was sent again.
    var inFlight: Deque<RequestRecord?> = []
    /// Terminals that an earlier connection was sent and that have to be sent again, under their numbers, before
    /// others.
    var told: Deque<RequestRecord?> = []
    /// The last number that an earlier connection was sent.
    var toldSequence: UInt64 = 0
    var acknowledged: UInt64 = 0
    /// Whether its socket refused a terminal and was not writable since.
    var isBlocked = false

    init(_ id: ClientID, isRequestReply: Bool, token: SessionToken, connectedAt: Tick) {
        self.id = id
        connection = id
        self.isRequestReply = isRequestReply
        self.token = token
        self.connectedAt = connectedAt
    }

    var isAway: Bool { awayUntil != nil }

    var lastSequence: UInt64 { acknowledged + UInt64(inFlight.count) }

    /// Terminals neither acknowledged nor lost.
    var waiting: Int { (inFlight + told).count { $0 != nil } + dueCount }

    /// Those that are to be told, numbers without a terminal included, and how many of them are on their way.
    private var all: Int { inFlight.count + told.count + dueCount }
    private var begun: Int { isAway || isBlocked ? inFlight.count : min(window ?? .max, all) }

    /// Those that wait for its window.
    var unbegun: Int { all - begun }

    /// Whether one more would wait for its window.
    var isFull: Bool { isAway || isBlocked || all >= window ?? .max }

    /// Bytes of header fields in them. O(their number).
    var waitingFieldBytes: Int {
        let requests = due.values.joined() + (inFlight + told).compactMap(\.self)
        return requests.reduce(0) { $0 + ($1.ending?.completion?.httpFields.count ?? 0) }
    }

    /// Whether work is started for it.
    func isServed(_ limits: CoreLimits) -> Bool {
        !isBlocked && !(isAway && window == nil) && waiting < window ?? limits.dueDeliveries
    }

    /// Whether a terminal has to be sent again now.
    var owesAgain: Bool {
        guard !isAway, !isBlocked, let first = told.firstIndex(where: { $0 != nil }) else { return false }
        return inFlight.count + first < window ?? .max
    }

    /// The next reply to be sent again, or behind such replies for the first time.
    var nextReply: (reply: ReferenceModel.Reply, place: UInt64)? {
        unsentReplies > 0 ? replies[replies.count - unsentReplies] : nil
    }

    /// Notes a reply.
    func keep(_ reply: ReferenceModel.Reply, isSent: Bool) {
        replies.append((reply, lastSequence))
        replyCount += 1
        if !isSent { unsentReplies += 1 }
    }

    /// Prepares the replies for a connection that has received so many.
    /// - Returns: false if it cannot have all others.
    func resume(after received: UInt64?) -> Bool {
        guard let received else {
            unsentReplies = 0
            return true
        }
        guard received <= replyCount, replyCount - received <= UInt64(replies.count) else { return false }
        unsentReplies = Int(replyCount - received)
        return true
    }

    /// Numbers of withdrawn terminals that are next count as sent.
    func passHoles() {
        while let first = told.first, first == nil {
            told.removeFirst()
            inFlight.append(nil)
        }
    }

    /// Takes the first terminal that has a number.
    func popNumbered() -> RequestRecord?? {
        if let first = inFlight.popFirst() { return first }
        return told.popFirst()
    }

    /// A number without a terminal needs no acknowledgement once it is the first.
    func dropHoles() {
        while let first = inFlight.first ?? told.first, first == nil {
            _ = popNumbered()
            acknowledged += 1
        }
    }

    /// Its connection is gone: what was sent has to be sent again.
    func leave(until: Tick) {
        awayUntil = until
        unsentReplies = 0
        toldSequence = max(toldSequence, lastSequence)
        told = inFlight + told
        inFlight = []
        isBlocked = false
    }

    /// Names of the terminals that are to be sent.
    var unsent: [RequestName] { Array(due.keys) + told.compactMap { $0?.name } }

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
        for index in told.indices {
            guard let request = told[index], names.contains(request.name) else { continue }
            taken.append(request)
            told[index] = nil
            removed.insert(request.name)
        }
        dropHoles()
        return taken
    }
}
