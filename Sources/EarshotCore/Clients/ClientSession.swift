internal import DequeModule
internal import EarshotHTTP
internal import EarshotWire

/// One client: what it wants, hears and is owed, over one connection, or with a lease over several.
struct ClientSession {
    /// `joining -> open <-> away`. A session that ends is dropped, and so is one without a lease whose connection is
    /// gone.
    enum Phase {
        /// Connected, HELLO not yet seen.
        case joining
        case open
        /// Its connection is gone, its lease runs.
        case away
    }

    /// Its connection; of one that is away the one that it had.
    var id: ClientID
    /// What another connection says to go on with it.
    var token: SessionToken
    var phase = Phase.joining
    /// Whether it has but some time left for its HELLO.
    var isGreetingDue = false
    /// How long it is kept when its connection is gone; 0 for not at all.
    var leaseMilliseconds = 0
    /// Tells this session from others that have had its number.
    let serial: UInt64
    /// The present time away, for the timer that ends it; 0 while it is connected.
    var absence: UInt64 = 0
    /// Messages taken in since its HELLO, those that were refused included.
    var heard: UInt64 = 0
    /// Its replies; empty without a lease.
    var replies = ReplyLog()
    /// Whether it can only take one answer for each message (REQ): it gets no progress.
    var isRequestReply: Bool
    var name: String?
    /// Terminals that may be unacknowledged; nil: one that the socket took is delivered.
    var window: Int?
    /// Handlers it hears, by number.
    var subscriptions: Set<Int32> = []
    /// Subtrees it hears.
    var subtrees: Set<HandlerID> = []
    /// Requests it asked for that have no terminal yet.
    var owned = Chain()
    /// Terminals due, oldest first. The first `sent` of them are on their way. A hole keeps the number of one that was
    /// withdrawn after an earlier connection had it; there is none at the front.
    var deliveries: Deque<DueTerminal> = []
    /// How many of the first have been on their way over an earlier connection, and keep their numbers.
    var told = 0
    /// How many are no holes.
    var due = 0
    /// Bytes of header fields in those of them that are in memory.
    var dueBytes = 0
    /// Bytes of bodies in them, and of all else in those that wait in the shell's file.
    var dueBodyBytes = 0
    /// What the heaviest of those that wait in memory takes there, since some began to wait.
    var heaviestWaiting = 0
    /// The present watch over how it reads, for the timer that ends it; 0 while not too much is due. And how far it had
    /// acknowledged when that began.
    var stall: UInt64 = 0
    var stalledAt: UInt64 = 0
    var sent = 0
    /// Sequence number of the last terminal that was acknowledged.
    var acknowledged: UInt64 = 0
    /// The socket refused a terminal and has not been writable since.
    var isBlocked = false

    /// Requests whose last progress its socket did not take, with their serial numbers.
    var missedProgress: [Int32: UInt64] = [:]

    /// Whether the shell was asked to close it.
    var isClosing = false
    /// Whether the connection is gone, and what it owned is being purged.
    var isGone = false
    /// Requests it owns that count as removed and are not purged yet.
    var purging = 0
    /// Terminals of requests being purged that it will get.
    var purgeNotices = 0

    init(id: ClientID, token: SessionToken, serial: UInt64, isRequestReply: Bool) {
        self.id = id
        self.serial = serial
        self.token = token
        self.isRequestReply = isRequestReply
    }

    var isAway: Bool { phase == .away }

    /// Terminals due that are not on their way.
    var waiting: Int { deliveries.count - sent }

    /// Whether no more terminals may be put on their way.
    var isFull: Bool { isAway || isBlocked || sent >= window ?? .max }

    /// Terminals it has not acknowledged, those not begun included.
    var owed: Int { due + purgeNotices }

    /// Whether no work is to be started that only this client wants. One that is away fills its window; without a
    /// window nothing brakes what it would be due.
    func isClosed(_ limits: CoreLimits) -> Bool { isClosed(dueDeliveries: limits.dueDeliveries) }

    /// - Parameter dueDeliveries: the limit of that name.
    func isClosed(dueDeliveries: Int) -> Bool {
        isGone || isBlocked || isAway && window == nil || owed >= window ?? dueDeliveries
    }
}

/// A handler's name, who listens and what is wanted under it.
struct HandlerEntry {
    var id: HandlerID
    var root: Int32
    /// Interests whose IDs are taken.
    var interests = Chain()
    /// Interests that still name it, taken IDs or not.
    var references = 0
    /// Clients subscribed to exactly this handler, by number.
    var subscribers: [Int32] = []
    /// Its requests that have not ended, by owner.
    var owners = OwnerCounts()
    /// What became of it when it was removed with very much; nil for one that has its name.
    var purge: Purge?
    /// Open requests that belong to the handler itself.
    var ownRequests = 0
    /// Durable requests whose outcomes wait on the disk for a listener.
    var resting = Chain()
    /// Terminals that wait for a listener.
    var held = 0
    /// The present time without listeners, for the timer that ends it; 0 while somebody listens.
    var absence: UInt64 = 0
    var requests = Ledger.Requests()
}

/// A handler's first segment: one application.
struct RootEntry {
    var name: String
    /// Handlers with this first segment, those being purged included.
    var handlers = 0
    /// The cookies of those of its requests that take part in them; nil if none ever did.
    var jar: CookieJar?
}
